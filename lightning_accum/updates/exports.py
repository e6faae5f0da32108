"""Warns of changes that became gradients, and that no optimizer has applied."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from torch import Tensor

from lightning_accum._compat import version
from lightning_accum.distributed.shards import is_sharded
from lightning_accum.functional.numbers import fingerprint, same_fingerprints
from lightning_accum.updates.late import Late
from lightning_accum.updates.registered_constraints import RegisteredConstraints

EXPORTED = "_lightning_accum_exported"
"""An attribute of gradients that hold exported changes."""

_LOOK = 4  # exports in a row without a step, before the parameter's value is kept
_RUNS = 3  # times that gradients were emptied between two steps, before a warning
_STEPS = 64  # exports after which a parameter should have moved
_DROPPED, _WAITING = 8, 1 << 10  # such exports before a warning: of emptied gradients, of any


@dataclass
class _Unstepped:
    """What is known of a parameter since an optimizer last stepped it.

    Args:
        version: its version then.
        times: how often changes were exported since.
        dropped: in how many of them the gradient had been emptied.
        value: its value after some of them.
        lost: how many gradients had been emptied before the latest step.
        runs: between how many steps these were; a gradient scaler skips several in a row.
        steps: how many steps were seen; infinite if there were others that autograd does not see.
    """

    version: float
    times: int = 0
    dropped: int = 0
    value: tuple[Tensor, Tensor] | None = None
    lost: int = 0
    runs: int = 0
    steps: float = 0

    @property
    def often_lost(self) -> bool:
        """Whether gradients were emptied often before a step, at least as often as stepped."""
        lost = self.lost + self.dropped
        return self.runs >= _RUNS and lost >= max(self.steps, _DROPPED)

    def stepped(self, param: Tensor) -> _Unstepped:
        """Returns what is known once an optimizer has stepped the parameter."""
        known = _Unstepped(
            version(param),
            lost=self.lost + self.dropped,
            runs=self.runs + (self.dropped > 0),
            steps=self.steps + 1,
        )
        if known.runs >= _RUNS and known.lost >= max(known.steps, _DROPPED) - 1:
            known.value = fingerprint(param.detach())
        return known


class Exports:
    """Warns once if no optimizer steps parameters whose changes are exported."""

    def __init__(self) -> None:
        self._known: dict[str, _Unstepped] = {}
        self._told = False
        self._times = 0
        self._first: dict[str, tuple[float, tuple[Tensor, Tensor]]] = {}
        self._late = Late()
        self.told_of_constraints = False

    def _check_pending(self, module: str, found: bool, applied: int) -> None:
        """Warns of changes that are applied before the exports that should find them.

        Args:
            module: the name of the module.
            found: whether this export finds a change.
            applied: how many changes have been applied otherwise.
        """
        if self._late.look(found, applied):
            warnings.warn(
                f"Changes of `{module}` should be pending when they become gradients. Found none"
                f" in any export so far, and {applied} changes that were applied before, so that"
                " the optimizer has nothing to step by: leave out `rule.update()` and calls of the"
                " updater, or the export.",
                RuntimeWarning,
                stacklevel=6,
            )

    def check(
        self,
        module: str,
        params: Mapping[str, Tensor],
        constraints: RegisteredConstraints,
        changes: Mapping[str, Tensor],
        applied: Mapping[str, int],
    ) -> None:
        """Looks, at each export, at what has become of the one before.

        Args:
            module: the name of the module.
            params: by name, the parameters whose changes become gradients now.
            constraints: those of the updater.
            changes: the changes by name.
            applied: how many changes of each parameter have been applied otherwise.
        """
        if not self._late.over:
            self._check_pending(module, bool(changes), sum(applied.values()))
        self._times += 1
        self._check_moved(module, params, changes)
        if constraints and self._times >= _LOOK and not self._times & (self._times - 1):
            self._check_constraints(module, params, constraints)
        for name, param in params.items():
            if self._told or param.is_inference():  # such tensors have no version
                continue
            still = self._known.get(name)
            if still is None or still.version != version(param):
                self._known[name] = still.stepped(param) if still else _Unstepped(version(param))
                continue
            still.times += 1
            still.dropped += not hasattr(param.grad, EXPORTED)
            if still.value is not None and still.often_lost:
                self._look(f"`{name}` of `{module}`", still, param)
            elif still.times == _LOOK:
                still.value = fingerprint(param.detach())
            elif still.times > _LOOK and (still.dropped == _DROPPED or still.times == _WAITING):
                self._look(f"`{name}` of `{module}`", still, param)

    def _check_moved(
        self, module: str, params: Mapping[str, Tensor], changes: Mapping[str, Tensor]
    ) -> None:
        """Warns, once, of parameters that many steps by exported changes have not moved."""
        if self._times == 1:
            self._first = {n: (version(p), fingerprint(p.detach())) for n, p in params.items()}
        if self._times != _STEPS:
            return
        for name, (written, value) in self._first.items():
            param, change = params.get(name), changes.get(name)
            if param is None or change is None or version(param) < written + _STEPS // 2:
                continue  # it is not stepped, of which another warning tells
            if same_fingerprints(fingerprint(param.detach()), value) and bool(change.any()):
                warnings.warn(
                    f"An optimizer should move `{name}` of `{module}` by the updates that become"
                    f" its gradients. Found it unchanged after {_STEPS} exports and their steps:"
                    " raise the `lr` of the optimizer, which may be 0 or be lost in rounding, and"
                    " look for what empties or clips its gradients, or writes to it.",
                    RuntimeWarning,
                    stacklevel=6,
                )
        self._first = {}

    def _check_constraints(
        self, module: str, params: Mapping[str, Tensor], constraints: RegisteredConstraints
    ) -> None:
        """Warns, once, of parameters that an optimizer has stepped beyond their constraints."""
        if self.told_of_constraints:
            return
        own = {name: param for name, param in params.items() if not is_sharded(param)}
        if broken := constraints.broken(own):
            self.told_of_constraints = True
            named = ", ".join(
                f"`{fn}` on `{name}`" for name in broken for fn in constraints.of(name)
            )
            warnings.warn(
                f"Constraints of `{module}`, whose updates become gradients, should be called"
                f" after each `step()` of the optimizer. Found weights that do not keep {named}:"
                " an updater runs them only when it applies updates itself, so call them after the"
                " step, such as `Clamp(0.0, 1.0)(fc.weight.data)`.",
                RuntimeWarning,
                stacklevel=5,
            )

    def _look(self, label: str, still: _Unstepped, param: Tensor) -> None:
        """Warns, unless something has stepped the parameter that autograd does not see."""
        now = fingerprint(param.detach())
        if not same_fingerprints(now, still.value or now):
            still.times = still.dropped = still.lost = 0
            still.steps = inf
            return
        self._told = True
        lost = still.lost + still.dropped
        emptied = f"{lost} exports whose gradients were emptied before a step"
        found = emptied if lost >= _DROPPED else f"{still.times} exports and no step"
        warnings.warn(
            f"An optimizer should step {label} by the updates that become its gradients. Found"
            f" {found}: call `updates_as_gradients` after `zero_grad()` and before the `step()` of"
            " an optimizer that has the parameter, and `zero_grad()` only after a `step()`.",
            RuntimeWarning,
            stacklevel=5,
        )
