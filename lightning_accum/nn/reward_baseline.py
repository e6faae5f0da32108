"""The reward that was to be expected, a running mean."""

from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor, nn

from lightning_accum._checks import (
    check_below,
    check_counts,
    check_finite,
    check_shape,
    check_tensors,
    check_value,
    check_whole,
)
from lightning_accum.distributed.world import summed


@final
class RewardBaseline(nn.Module):
    r"""Turns rewards into prediction errors: reward minus the mean of the rewards before.

    .. math::
        \delta_b = r_b - \bar r_{c(b)}, \qquad
        \bar r_c \leftarrow \beta^{n_c}\, \bar r_c + (1 - \beta^{n_c})\, \frac{1}{n_c}
        \sum_{b:\, c(b) = c} r_b

    with :math:`n_c` the number of samples of context :math:`c` in the batch. So the mean reaches
    back about :math:`1 / (1 - \beta)` samples of its context, whatever the size of a batch. In
    ``eval`` mode it does not change.

    Rules by reward, such as :class:`~lightning_accum.MSTDP`, need one whose mean is about 0, as the
    mean of :math:`\delta` is.

    The means are a buffer, so that checkpoints hold them and a resumed run goes on with them. With
    several processes they are those of all samples of all processes, in one all-reduce a call:
    every process has to call it equally often. A reward that is not finite does not change
    them.

    Args:
        decay: :math:`\beta`, in [0, 1).
        contexts: number of contexts, such as tasks, situations or classes, each with a mean of its
            own. Default: one mean for all rewards.
        initial: the reward that is expected before any.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> import torch
        >>> baseline = RewardBaseline(decay=0.5)
        >>> baseline(torch.tensor([1.0])), baseline(torch.tensor([1.0]))
        (tensor([1.]), tensor([0.5000]))
        >>> baseline.mean
        tensor([0.7500])
        >>> each = RewardBaseline(contexts=3)
        >>> each(torch.tensor([1.0, 0.0]), torch.tensor([2, 0]))
        tensor([1., 0.])

    Source:
        Frémaux, Sprekeler & Gerstner 2010, "Functional requirements for reward-modulated
        spike-timing-dependent plasticity", doi:10.1523/JNEUROSCI.6249-09.2010.
    """

    mean: Tensor

    def __init__(
        self, decay: float = 0.99, contexts: int | None = None, initial: float = 0.0
    ) -> None:
        super().__init__()
        check_finite(decay=decay, initial=initial)
        how = "pass 0.9 for a mean over about 10 samples, 0.99 for 100"
        check_value(0 <= decay < 1, "decay", decay, "at least 0 and below 1", how)
        if contexts is not None:
            check_counts("a positive number of contexts, or None for one mean", contexts=contexts)
        self.decay, self.contexts, self.initial = decay, contexts, float(initial)
        self.register_buffer("mean", torch.full((contexts or 1,), self.initial))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        before = self.mean
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.mean.dtype != before.dtype:  # 0.1 in single precision is not 0.1 in double
            new = before == before.new_full((), self.initial)
            self.mean.masked_fill_(new.to(self.mean.device), self.initial)
        return self

    @torch.no_grad()
    def forward(self, reward: Tensor, context: Tensor | None = None) -> Tensor:
        """Returns the prediction errors of a batch, and then takes its rewards into the mean.

        Args:
            reward: rewards of any shape and dtype, such as ``[B]``.
            context: of the shape of ``reward``, integers below ``contexts``.

        Returns:
            Rewards minus what was expected before them, of the shape of ``reward``, in the dtype
            of ``mean``. No gradient passes.

        Raises:
            TypeError: if an argument is not a tensor, rewards are complex, or contexts are not
                integers.
            ValueError: if ``context`` does not fit ``contexts`` or ``reward``.
        """
        check_tensors(reward=reward)
        if reward.is_complex():
            raise TypeError(
                f"Argument `reward` should be real. Found {reward.dtype}: pass its real part or its"
                " magnitude."
            )
        reward = reward.detach().to(self.mean.dtype)
        which = self._which(reward, context)
        error = reward - self.mean[which]
        if self.training:
            finite = reward.isfinite()
            rows = torch.stack([torch.where(finite, reward, 0.0), finite.to(reward.dtype)])
            found = self.mean.new_zeros(2, len(self.mean))
            total, count = summed(found.index_add(1, which.flatten(), rows.reshape(2, -1)))
            kept = self.decay**count
            self.mean.copy_(kept * self.mean + (1 - kept) * total / count.clamp(min=1))
        return error

    def _which(self, reward: Tensor, context: Tensor | None) -> Tensor:
        """Returns the context of each reward."""
        if self.contexts is None and context is None:
            return torch.zeros_like(reward, dtype=torch.long)
        if self.contexts is None or context is None:
            found = "none" if context is None else "a tensor"
            raise ValueError(
                "Argument `context` should be passed if and only if the baseline has contexts."
                f" Found {found}, with `contexts = {self.contexts}`."
            )
        check_whole(context=context)
        should = f"the shape of `reward`, {list(reward.shape)}"
        check_shape(context.shape == reward.shape, "context", context, should)
        check_below("context", context, self.contexts)
        return context.long()

    def extra_repr(self) -> str:
        """Returns the settings shown in the module's representation."""
        return f"decay={self.decay}, contexts={self.contexts}"
