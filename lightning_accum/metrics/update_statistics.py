"""The statistics of a parameter's updates, averaged until they are reset."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lightning_accum.functional.statistics import AVERAGED
from lightning_accum.metrics._panels import PanelMetric
from lightning_accum.plot.panels import Panel
from lightning_accum.sparse.statistics import fast_statistics

_NAMES = (*AVERAGED, "nonfinite")
_PANELS = (
    Panel("weights", ("weight_norm",)),
    Panel("change", ("update_norm", "pos_norm", "neg_norm")),
    Panel("change relative to weights", ("ratio",)),
    Panel("potentiation or depression", ("balance",), limits=(-1.05, 1.05)),
    Panel("shares of the weights", ("at_bound", "at_lower", "at_upper", "zero_share"), (0.0, 1.05)),
    Panel("not finite", ("nonfinite",)),
)


class UpdateStatistics(PanelMetric):
    """Averages the statistics of one parameter's updates since the last reset.

    ``compute`` returns the scalars of
    :func:`~lightning_accum.functional.statistics.update_statistics` by name: ``update_norm``,
    ``weight_norm``, ``ratio``, ``pos_norm``, ``neg_norm``, ``balance``, ``at_lower``, ``at_upper``,
    ``at_bound``, ``zero_share`` and ``nonfinite``, each as its mean over updates: one NaN shows in
    ``nonfinite`` until the next reset. All names are returned, whichever parts and limits were
    passed. With several processes, the mean is over the updates of all of them.

    Args:
        **kwargs: passed to :class:`torchmetrics.Metric`.

    Example:
        >>> import torch
        >>> stats = UpdateStatistics()
        >>> w = torch.tensor([3.0, 4.0])
        >>> stats.update(w, w * 1.1, pos=w * 0.1)
        >>> stats.update(w, w * 1.3, pos=w * 0.3)
        >>> {name: round(float(v), 3) for name, v in stats.compute().items() if "norm" in name}
        {'update_norm': 1.0, 'weight_norm': 6.0, 'pos_norm': 1.0, 'neg_norm': 0.0}
    """

    _panels = _PANELS
    totals: Tensor
    updates: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_sum("totals", torch.zeros(len(_NAMES)))
        self.add_sum("updates", torch.zeros((), dtype=torch.long))

    def update(
        self,
        before: Tensor,
        after: Tensor,
        pos: Tensor | None = None,
        neg: Tensor | None = None,
        lower: float | None = None,
        upper: float | None = None,
    ) -> None:
        """Measures one update.

        Args:
            before: the parameter before the update, of any shape; a copy, not a view.
            after: the parameter after the update, of the same shape.
            pos: potentiating part that was pending.
            neg: depressing part that was pending.
            lower: lower limit of the parameter.
            upper: upper limit of the parameter.

        Raises:
            ValueError: if ``before`` and ``after`` differ in shape, or share their memory.
        """
        found = fast_statistics(before, after, pos, neg, lower, upper)
        if before.data_ptr() == after.data_ptr() != 0:  # 0 without memory
            raise ValueError(
                "Argument `before` should be a copy of the parameter, made before the update. Found"
                " the memory of `after`, in which nothing has changed: pass"
                " `before = param.detach().clone()`."
            )
        # Not in place: a state that was made in inference mode cannot be changed in place.
        self.totals = self.totals + torch.stack([found[name].float() for name in _NAMES])
        self.updates = self.updates + 1

    def compute(self) -> dict[str, Tensor]:
        """Returns the statistics by name, float32 scalars; all are 0 before any update."""
        means = self.totals / self.updates.clamp(min=1)
        return dict(zip(_NAMES, means.unbind(), strict=True))
