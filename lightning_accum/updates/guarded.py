"""Accumulators of a module's parameters, with the policy for changes that hold NaN or Inf."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from lightning_accum.functional.reductions import ReductionFn
from lightning_accum.updates.known import check_known
from lightning_accum.updates.named_accumulators import NamedAccumulators
from lightning_accum.updates.nonfinite import NonFinite, NonFiniteGuard, check_policy


class GuardedAccumulators(NamedAccumulators):
    """Accumulators of a module's parameters, with a policy for NaN and Inf; abstract.

    Args:
        module: the module; it is referenced weakly.
        reduction: how contributions are reduced, as for :meth:`Accumulator.reduction`.
        nonfinite: the policy.
    """

    _complete = False

    def __init__(
        self, module: nn.Module, reduction: ReductionFn | str | None, nonfinite: NonFinite
    ) -> None:
        super().__init__(module, reduction)
        self._guard = NonFiniteGuard(nonfinite)
        self._ledger.skipped = self._guard.counts_of

    def __setattr__(self, name: str, value: Any) -> None:
        known = name in self.__dict__ or name in self._accumulators
        if self._complete and not (known or isinstance(value, (Tensor, tuple))):
            remedy = f"assign to one of {self.names} or `nonfinite`, or call `register_constraint`"
            check_known(self, name, f"`{self.label}`", remedy)
        super().__setattr__(name, value)

    @property
    def nonfinite(self) -> NonFinite:
        """The policy for an update with NaN or Inf: ``"raise"``, ``"skip"`` or ``"ignore"``."""
        return self._guard.policy

    @nonfinite.setter
    def nonfinite(self, policy: NonFinite) -> None:
        self._guard.policy = policy

    def configure(
        self, reduction: ReductionFn | str | None = None, nonfinite: NonFinite | None = None
    ) -> None:
        """Changes how the contributions to all parameters are reduced, and the policy.

        Args:
            reduction: as for :meth:`Accumulator.reduction`; ``None`` leaves it unchanged.
            nonfinite: the policy; ``None`` leaves it unchanged.

        Raises:
            RuntimeError: if the reduction would change while contributions are pending; then
                nothing has changed.
            ValueError: if one of them is unknown; then nothing has changed.
        """
        if nonfinite is not None:
            check_policy(nonfinite)
        if reduction is not None:
            for accumulator in self._accumulators.values():
                accumulator.check_reduction(reduction)
            for accumulator in self._accumulators.values():
                accumulator.reduction(reduction)
            self._reduction = reduction
        if nonfinite is not None:
            self.nonfinite = nonfinite

    @property
    def applied(self) -> dict[str, int]:
        """How often a change of each parameter was applied, including those that were dropped."""
        return dict(self._ledger.applied)

    @property
    def zeroed(self) -> dict[str, int]:
        """How often an applied change of each parameter was multiplied by 0."""
        return dict(self._ledger.zeroed)

    @property
    def skipped(self) -> dict[str, int]:
        """How often each parameter's update was dropped for NaN or Inf; waits for the device."""
        return {name: int(count) for name, count in self._guard.counts.items()}

    @property
    def lately_skipped(self) -> dict[str, int]:
        """The same since a state was loaded, if one was; waits for the device."""
        return self._guard.counts_of()

    def get_extra_state(self) -> dict[str, Tensor]:
        """Returns how often updates were dropped."""
        return self._guard.state()

    def check_extra_state(self, state: Any) -> None:
        """Raises a ``RuntimeError`` if this is not what :meth:`get_extra_state` returns."""
        self._guard.check(self.label, self.names, state)

    def set_extra_state(self, state: dict[str, Tensor]) -> None:
        """Loads a copy of the state that :meth:`get_extra_state` returned.

        Raises:
            RuntimeError: if it is anything else; then nothing has changed.
        """
        self.check_extra_state(state)
        self._guard.load(state)
