"""Warns of an own ``step_param`` that leaves its parameter as it is."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from lightning_accum._compat import is_traced, version
from lightning_accum.functional.numbers import fingerprint, same_fingerprints

_STEPS = 16  # in which nothing was written, before the values are compared


class FirstSteps:
    """Watches the first steps of an optimizer, until one of them writes to a parameter."""

    def __init__(self) -> None:
        self._watches = True
        self._steps = 0
        self._values: list[tuple[Tensor, Tensor]] = []
        self._versions: list[float] = []
        self._group: int | None = None  # the id of the parameter that comes first

    def begin(self, params: Sequence[Tensor]) -> None:
        """Notes what is known of parameters before a step.

        Args:
            params: the parameters.
        """
        if self._watches and not is_traced():
            self._group = self._group or id(params[0])
            same = self._group == id(params[0])
            self._versions = [version(param) for param in params] if same else []

    def end(
        self, optimizer: str, params: Sequence[Tensor], grads: Sequence[Tensor], lr: float | Tensor
    ) -> None:
        """Warns, once, if no step so far has changed a parameter; only then waits for the device.

        Args:
            optimizer: the name of its class.
            params: the parameters that were given to :meth:`begin`.
            grads: their gradients.
            lr: the learning rate.
        """
        if not (self._watches and self._versions):
            return
        if self._versions != [version(param) for param in params]:
            self._watches, self._values = False, []
            return
        if not float(lr):
            return
        self._steps += 1
        # Something that autograd does not see may have written to them, such as `param.data`.
        now = [fingerprint(param.detach()) for param in params]
        if self._steps == 1:
            self._values = now
        if self._steps < _STEPS or not any(grad.any() for grad in grads):
            return
        self._watches = False
        if len(now) == len(self._values) and all(map(same_fingerprints, now, self._values)):
            warnings.warn(
                f"`step_param` of `{optimizer}` should change `param` in place. Found no parameter"
                f" changed in the first {self._steps} steps, with gradients and a learning rate of"
                f" {float(lr):g}: write `param.sub_(...)`, not `param = param - ...`, which makes a"
                " new tensor.",
                RuntimeWarning,
                stacklevel=8,
            )
        self._values = []

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()  # a copy begins anew
