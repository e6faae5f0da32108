"""What is known of a cell when its rule is asked what it has learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import nn

from lightning_accum.cells.single_steps import TRACES
from lightning_accum.cells.tally import Tally
from lightning_accum.rules._options import RuleOptions
from lightning_accum.updates import Updater

_STEPS = 1000


class Link(NamedTuple):
    """What is known of a cell when its rule is asked what it has learned.

    Attributes:
        rule: the name of the rule.
        cell: the name of the cell.
        h: its hyperparameters.
        tally: the counts of its windows.
        updater: the updater of its parameters; ``None`` if they do not exist any more.
        steps: how many recorded steps no call has evaluated.
    """

    rule: str
    cell: str
    h: RuleOptions
    tally: Tally
    updater: Updater | None
    steps: int = 0

    @property
    def params(self) -> Sequence[str]:
        """The parameters that the rule trains."""
        return self.h.params

    @property
    def is_short(self) -> bool:
        """Whether the rule pairs spikes, and all windows are steps, so few that none may pair any.

        Rewards, too, may come at the end of a long sequence of steps.
        """
        few = self.tally.longest == 1 and self.tally.windows < _STEPS
        return few and not TRACES.isdisjoint(vars(self.h))

    @property
    def connection(self) -> nn.Module | None:
        """The connection, unless it does not exist any more."""
        return None if self.updater is None else self.updater.known_parent
