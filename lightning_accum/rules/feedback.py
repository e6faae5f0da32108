"""Feedback: how an error of the outputs becomes the learning signal of each hidden neuron."""

import math
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from lightning_accum._checks import (
    check_finite,
    check_integers,
    check_positive,
    check_type,
    check_value,
)
from lightning_accum.cells.cell import submodule
from lightning_accum.engine.feedback import Feedback


@final
class DirectFeedback(Feedback):
    """Takes the error as the learning signal: it has an entry for each neuron already.

    Example:
        >>> import torch
        >>> DirectFeedback()(torch.tensor([[0.5, -1.0]]))
        tensor([[ 0.5000, -1.0000]])
    """

    def matrix(self) -> None:
        """Returns ``None``, as the error passes unweighted."""


@final
class RandomFeedback(Feedback):
    r"""Fixed random weights: broadcast alignment.

    :math:`B_{kj}` is normal with standard deviation ``scale``. It is a buffer: it is saved with the
    rule, and the same in all processes.

    Args:
        classes: number of outputs.
        neurons: number of neurons, or their shape.
        scale: standard deviation; :math:`1/\sqrt{\text{neurons}}` when ``None``.
        seed: seed of the random numbers; the global generator is not used.

    Raises:
        ValueError: if a number or the scale is not positive.

    Example:
        >>> import torch
        >>> feedback = RandomFeedback(10, 100)
        >>> feedback(torch.randn(5, 10)).shape
        torch.Size([5, 100])

    Source:
        Lillicrap et al. 2016, doi:10.1038/ncomms13276; for each neuron of every layer directly:
        Nøkland 2016, arXiv:1609.01596.
    """

    weight: Tensor

    def __init__(
        self, classes: int, neurons: int | Sequence[int], scale: float | None = None, seed: int = 0
    ) -> None:
        super().__init__()
        shape = (neurons,) if isinstance(neurons, int) else tuple(neurons)
        check_integers(
            classes=classes, seed=seed, **{f"neurons[{i}]": n for i, n in enumerate(shape)}
        )
        size = math.prod(shape)
        scale = max(size, 1) ** -0.5 if scale is None else scale
        check_positive(classes=classes, neurons=size, scale=scale)
        generator = torch.Generator().manual_seed(seed)
        self.register_buffer("weight", torch.randn(classes, size, generator=generator) * scale)

    def matrix(self) -> Tensor:
        """Returns the fixed weights ``[classes, neurons]``."""
        return self.weight


class _OfReadout(Feedback):
    """Feedback that reads the weights of a readout, which belongs to the model."""

    def __init__(self, readout: nn.Linear | str) -> None:
        super().__init__()
        self.path = readout if isinstance(readout, str) else ""
        self._readout: weakref.ref[nn.Linear] | None = None
        if not isinstance(readout, str):
            self.bind(readout)

    def bind(self, readout: nn.Module) -> None:
        """Reads this readout from now on; it is held weakly."""
        should = "an `nn.Linear` [classes, neurons], or its path in the model"
        check_type(isinstance(readout, nn.Linear), "readout", readout, should)
        assert isinstance(readout, nn.Linear)
        self._readout = weakref.ref(readout)

    def bind_model(self, model: nn.Module) -> None:
        """Looks up the readout by its path, if it was given as one."""
        given = None if self.path or self._readout is None else self._readout()
        if given is not None and not any(module is given for module in model.modules()):
            raise ValueError(
                f"Argument `readout` of `{type(self).__name__}` should be a module of the model"
                f" that is trained, a `{type(model).__name__}`. Found an `nn.Linear` of another"
                " model, or of an earlier copy: give its path, as in"
                f' `{type(self).__name__}("readout")`.'
            )
        if self.path:
            self.bind(submodule(model, self.path, "readout"))

    @property
    def readout(self) -> nn.Linear:
        """The readout."""
        readout = None if self._readout is None else self._readout()
        if readout is None:
            place = f" at `{self.path}`" if self.path else ""
            raise RuntimeError(
                f"`{type(self).__name__}` should have a readout{place}. Found that it is not bound,"
                " that this is a copy, or that the readout no longer exists: call"
                " `feedback.bind(model.readout)`."
            )
        return readout

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_readout": None}


@final
class SymmetricFeedback(_OfReadout):
    r"""The readout's own weights, :math:`B = W^\text{out}`: what backpropagation uses.

    Args:
        readout: the linear readout, ``[classes, neurons]``; or its dotted path in the model, which
            a callback looks up when a fit begins.

    Raises:
        TypeError: if it is not an ``nn.Linear``.

    Example:
        >>> import torch
        >>> readout = nn.Linear(3, 2, bias=False)
        >>> _ = nn.init.ones_(readout.weight)
        >>> SymmetricFeedback(readout)(torch.tensor([[1.0, 2.0]]))
        tensor([[3., 3., 3.]])
    """

    def matrix(self) -> Tensor:
        """Returns the readout's weights ``[classes, neurons]``."""
        return self.readout.weight.detach()


@final
class LearnedFeedback(_OfReadout):
    r"""Weights that learn to be the readout's, without being told them (Kolen & Pollack).

    They begin at random, decay by a share :math:`\lambda` in each call of the rule, and take the
    same updates as the readout, whatever rule or optimizer makes these:

    .. math:: B \leftarrow (1 - \lambda)\, B + U, \qquad
              U = W^\text{out}_\text{now} - (1 - \lambda)\, W^\text{out}_\text{before}

    The difference of the two shrinks by :math:`1 - \lambda` in each call.

    Args:
        readout: as for :class:`SymmetricFeedback`.
        classes, neurons, scale, seed: those of the first weights, as for :class:`RandomFeedback`.
        decay: :math:`\lambda`, the share that decays in each call of the rule.

    Raises:
        TypeError: if the readout is not an ``nn.Linear``.
        ValueError: if the decay is not between 0 and 1.

    Source:
        Kolen & Pollack 1994, doi:10.1109/ICNN.1994.374486; Akrout et al. 2019, arXiv:1904.05391.
    """

    weight: Tensor
    before: Tensor
    begun: Tensor

    def __init__(
        self,
        readout: nn.Linear | str,
        classes: int,
        neurons: int,
        decay: float = 1e-3,
        scale: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(readout)
        check_finite(decay=decay)
        check_value(0 <= decay < 1, "decay", decay, "a share from 0 to below 1")
        self.decay = decay
        first = RandomFeedback(classes, neurons, scale, seed).weight
        self.register_buffer("weight", first)
        self.register_buffer("before", torch.zeros_like(first))
        self.register_buffer("begun", torch.zeros((), dtype=torch.bool))

    def matrix(self) -> Tensor:
        """Returns the weights ``[classes, neurons]``."""
        return self.weight

    def followed(self) -> Iterator[nn.Parameter]:
        """Yields the weights of the readout, and its bias."""
        yield from self.readout.parameters()

    @torch.no_grad()
    def follow(self) -> None:
        """Takes the update of the readout since the last call, and decays."""
        now = self.readout.weight.detach().to(self.weight)
        update = (now - (1 - self.decay) * self.before) * self.begun
        self.weight.mul_(1 - self.decay).add_(update)
        self.before.copy_(now)
        self.begun.fill_(True)
