"""Structural plasticity: replaces synapses by others between batches, at constant number."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any, final

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from lightning_accum._checked_state import CheckedState
from lightning_accum._checks import check_finite, check_integers, check_type
from lightning_accum.nn._synapse_draws import uniform
from lightning_accum.nn.sparse_linear import SparseLinear, keys_of
from lightning_accum.updates.atomic_changes import call_uninterrupted

_logger = logging.getLogger("lightning_accum")


@final
class Rewire(CheckedState):
    r"""Removes synapses of a :class:`SparseLinear`, and grows as many new ones, when it is called.

    With ``share``, the synapses with the smallest weights are pruned, as many as the share says.
    Without, it is Deep R: a synapse has a fixed sign :math:`s`, every call takes

    .. math:: w \leftarrow w - \alpha s + \sigma \nu, \qquad \nu \sim \mathcal N(0, 1),

    and then removes the synapses whose weight does not have their sign any more, :math:`s w \le 0`.
    The new synapses are drawn evenly from all pairs of an input and an output that have none. In a
    connection with a ``seed`` or ``targets``, every output keeps its number of synapses: the share
    is of its own, and the new ones are its own, so that it does not matter which process has it.

    Call it between batches. Pending changes, the gradient, the optimizers' states, and the
    eligibility that rules carry stay with their synapse, and are zero for a new one. An interrupt
    leaves all as before the call, or as after it. Averages over training, such as those of
    ``EMAWeightAveraging``, do not follow, and mix weights of synapses that replaced each other.

    Args:
        share: the share of synapses to replace in each call; ``None`` for Deep R.
        sign: the sign of all weights, 1 or -1, or ``None`` for a random one that is fixed for each
            pair of an input and an output; see :meth:`signs`. Only Deep R removes by it.
        start: the size :math:`|w|` of a new synapse's weight.
        shrink: :math:`\alpha`, of Deep R.
        noise: :math:`\sigma`, of Deep R.
        seed: of what is drawn, which is the same in all processes that train together.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> import torch
        >>> connection = SparseLinear(100, 50, density=0.1)
        >>> optimizer = torch.optim.Adam(connection.parameters())
        >>> rewire = Rewire(share=0.2, start=0.01)
        >>> rewire(connection, optimizer)
        100

    Source:
        Bellec, Kappel, Maass & Legenstein 2018, "Deep rewiring: training very sparse deep
        networks", ICLR, arXiv:1711.05136; pruning by size: Mocanu et al. 2018,
        doi:10.1038/s41467-018-04316-3.
    """

    _shown = ("share", "sign", "start", "shrink", "noise", "seed")

    calls: Tensor

    def __init__(
        self,
        share: float | None = None,
        sign: float | None = 1.0,
        start: float = 0.0,
        shrink: float = 0.0,
        noise: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_finite(start=start, shrink=shrink, noise=noise)
        check_integers(seed=seed)
        if share is not None:
            check_finite(share=share)
        if not 0 <= (share or 0) <= 1 or min(start, shrink, noise) < 0 or sign not in (1, -1, None):
            raise ValueError(
                "Arguments of `Rewire` should be a `share` from 0 to 1, `start`, `shrink` and"
                " `noise` that are not negative, and a `sign` of 1, -1 or None. Found"
                f" `{share = }`, `{start = }`, `{shrink = }`, `{noise = }` and `{sign = }`."
            )
        if share is not None and (shrink or noise):
            raise ValueError(
                "Arguments `shrink` and `noise` should be 0 with a `share`, because they are those"
                f" of Deep R. Found `{shrink = }` and `{noise = }`."
            )
        self.share, self.sign, self.start = share, sign, start
        self.shrink, self.noise, self.seed = shrink, noise, seed
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))  # decides what is drawn

    @torch.no_grad()
    def forward(self, connection: SparseLinear, *optimizers: torch.optim.Optimizer) -> int:
        """Replaces synapses, and returns how many.

        Args:
            connection: the connection.
            *optimizers: all that have a state for its weight.

        Raises:
            TypeError: if an argument is something else.
            ValueError: if an optimizer does not train the connection's weight.
        """
        should = "a SparseLinear, whose synapses can be replaced"
        check_type(isinstance(connection, SparseLinear), "connection", connection, should)
        _check_optimizers(connection, optimizers)
        calls, weight = int(self.calls), connection.weight.detach()
        generator = torch.Generator("cpu").manual_seed((self.seed * 1_000_003 + calls) % 2**63)
        if self.share is None:
            signs = self.signs(connection)
            weight = weight - self.shrink * signs
            if self.noise:
                weight.add_(_noise(connection, generator).to(weight.device), alpha=self.noise)
            removed = weight * signs <= 0
        else:
            removed = torch.zeros_like(weight, dtype=torch.bool)
            removed[_smallest(connection, weight.abs(), self.share)] = True
        made = connection.replacement(removed, generator, optimizers, weight)
        signs = self._signs(connection, made.keys, weight)
        made.weight[made.new] = self.start * signs[made.new]
        call_uninterrupted(*made.calls, partial(self.calls.add_, 1))
        if not calls and connection.weight.requires_grad:
            _watch(connection, optimizers)
        return int(made.new.sum())

    def signs(self, connection: SparseLinear) -> Tensor:
        """Returns the sign of each synapse, ``[synapses]``.

        Begin Deep R with ``connection.weight.data.abs_().mul_(rewire.signs(connection))``.
        """
        return self._signs(connection, keys_of(connection), connection.weight)

    def _signs(self, connection: SparseLinear, keys: Tensor, like: Tensor) -> Tensor:
        """Returns the sign of each synapse, by their keys."""
        if self.sign is not None:
            return torch.full_like(like, self.sign)
        others = connection.total - connection.out_features  # outputs, if this is a share
        x = keys + keys // connection.out_features * others + connection.first + self.seed
        for _ in range(2):  # a hash of the pair: the sign needs no memory
            x = ((x >> 29) ^ x) * 0x1B873593CC9E2D51
        return 1.0 - 2.0 * ((x >> 41) & 1).to(like.dtype)


def _smallest(connection: SparseLinear, size: Tensor, share: float) -> Tensor:
    """Returns the places of a share of the smallest values, of each output if it has a seed."""
    if connection.targets is None:
        return size.topk(round(share * len(size)), largest=False)[1]
    firsts, each = connection.starts_of_outputs[:-1], connection.starts_of_outputs.diff()
    by_size = size.argsort(stable=True)
    by_output = by_size[connection.outputs[by_size].argsort(stable=True)]
    rank = torch.arange(len(size), device=size.device) - firsts.repeat_interleave(each)
    return by_output[rank < (share * each.double()).round().repeat_interleave(each)]


def _noise(connection: SparseLinear, generator: torch.Generator) -> Tensor:
    """Returns normal noise for each synapse, drawn for each pair by itself if it has a seed."""
    weight = connection.weight
    if connection.targets is None:
        return torch.randn(len(weight), generator=generator, dtype=weight.dtype, device="cpu")
    seed = int(torch.randint(2**62, (), generator=generator))
    outputs, inputs = connection.indices.long()
    even = uniform(seed, outputs + connection.first, inputs, dtype=torch.float64)
    noise: Tensor = torch.special.ndtri(even.clamp(min=2.0**-54))  # -inf at 0
    return noise.to(weight.dtype)


def _watch(connection: SparseLinear, given: Sequence[torch.optim.Optimizer]) -> None:
    """Has an optimizer's next step say that it has a state for the weight, and was not given."""
    kept, known = weakref.ref(connection.weight), {id(each.state) for each in given}

    def look(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        weight = kept()
        params = [param for group in optimizer.param_groups for param in group["params"]]
        if weight is None or not any(param is weight for param in params):
            return
        handle.remove()
        values = optimizer.state.get(weight, {}).values()
        if id(optimizer.state) in known or not any(
            isinstance(value, Tensor) and value.shape == weight.shape for value in values
        ):
            return
        _logger.warning(
            "`Rewire` should be called with all optimizers that have a state for the weight. Found"
            " `%s`, whose state of removed synapses now belongs to others: pass it, as"
            " `rewire(connection, optimizer)`.",
            type(optimizer).__name__,
        )

    handle = register_optimizer_step_pre_hook(look)
    weakref.finalize(connection, handle.remove).atexit = False


def _check_optimizers(connection: SparseLinear, optimizers: Sequence[object]) -> None:
    """Raises an error unless every optimizer trains the weight, Lightning's wrappers included."""
    for each in optimizers:
        groups = getattr(each, "param_groups", None)
        if groups is None:
            raise TypeError(
                "Arguments `*optimizers` should be the optimizers of the weight, one by one, as"
                f" `rewire(connection, adam)`. Found `{type(each).__name__}`."
            )
        if not any(param is connection.weight for group in groups for param in group["params"]):
            raise ValueError(
                "Arguments `*optimizers` should train the weight of the connection. Found"
                f" `{type(each).__name__}` without it: pass the optimizer that has it."
            )
