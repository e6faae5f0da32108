"""The options that all rules have."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from lightning_accum._checks import names_in
from lightning_accum.cells.fields import field
from lightning_accum.cells.independent import IndependentCellTrainer
from lightning_accum.engine.accumulate import Backend
from lightning_accum.functional.reductions import ReductionFn
from lightning_accum.observe import Picker


class RuleOptions(IndependentCellTrainer, kw_only=True):
    """Lists the options that :class:`~lightning_accum.rules.base.Rule` describes."""

    dt: float = 1.0
    batch_reduction: ReductionFn | str = "mean"
    time_dim: int | None = None
    params: Sequence[str] = field(default=("weight",), converter=partial(names_in, "params"))
    carry: bool = field(default=True, hyperparameter=False)
    backend: Backend = field(default="auto", hyperparameter=False)
    picker: Picker | None = None
