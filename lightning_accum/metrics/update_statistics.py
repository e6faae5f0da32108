"""The statistics of a parameter's updates and of neurons' activity, until they are reset."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from lightning_accum._checks import check_shape
from lightning_accum._compat.torchmetrics_internals import default_states, mark_updated
from lightning_accum._persistent_metric import PersistentMetric
from lightning_accum.distributed.world import of_all
from lightning_accum.functional.update_statistics import (
    AVERAGED,
    MeasuredChange,
    change_statistics,
    combined,
    count_statistics,
    spike_counts,
)
from lightning_accum.plot import open_sides, pyplot
from lightning_accum.sparse.events import count_spikes
from lightning_accum.sparse.update_statistics import fast_measures


class _Panel(NamedTuple):
    """Values that share an axis, which reaches from zero to the largest, unless it has limits."""

    title: str
    names: tuple[str, ...]
    limits: tuple[float, float] | None = None


def _draw_panels(
    values: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]],
    panels: Sequence[_Panel],
    caller: str,
) -> tuple[Any, Any]:
    """Draws present values as bars, or a sequence of them as curves, in a new figure."""
    # There is an axis for each panel. `caller` is the method that draws, for messages.
    rows = [values] if isinstance(values, Mapping) else list(values)
    columns = min(3, len(panels))
    lines = math.ceil(len(panels) / columns)
    figure, axes = pyplot(caller).subplots(
        lines, columns, figsize=(3.0 * columns, 2.2 * lines), squeeze=False, layout="constrained"
    )
    for ax, panel in zip(axes.flat, panels, strict=True):
        curves = {name: [float(row[name]) for row in rows] for name in panel.names}
        for i, (name, curve) in enumerate(curves.items()):
            if len(rows) == 1:
                ax.bar([i], curve, color=f"C{i}", width=0.6)
            else:
                ax.plot(curve, color=f"C{i}", label=name)
        ax.set_title(panel.title, fontsize="medium")
        top = max((value for curve in curves.values() for value in curve), default=0.0)
        ax.set_ylim(panel.limits or (0.0, 1.1 * top if 0 < top < math.inf else 1.0))
        if len(rows) > 1:
            ax.set_xlabel("result", fontsize="small")
            if len(panel.names) > 1:
                ax.legend(fontsize="small", frameon=False)
        else:
            turned = {"rotation": 20, "ha": "right"} if len(panel.names) > 2 else {}
            ax.set_xticks(range(len(panel.names)), panel.names, fontsize="small", **turned)
            ax.set_xlim(-0.7, len(panel.names) - 0.3)
        open_sides(ax)
    return figure, axes.ravel()


_NAMES = (*AVERAGED, "nonfinite")
_PANELS = (
    _Panel("weights", ("weight_norm",)),
    _Panel("change", ("update_norm", "pos_norm", "neg_norm")),
    _Panel("change relative to weights", ("ratio",)),
    _Panel("potentiation or depression", ("balance",), limits=(-1.05, 1.05)),
    _Panel(
        "shares of the weights", ("at_bound", "at_lower", "at_upper", "zero_share"), (0.0, 1.05)
    ),
    _Panel("not finite", ("nonfinite",)),
)


class AdditiveMetric(PersistentMetric):
    """A metric whose states add up over updates, over processes, and in ``merge_state``."""

    # A state with one element takes the shape of the first tensor that is added to it.

    panels: ClassVar[Sequence[_Panel]] = ()
    """Which values share an axis; without any, torchmetrics draws them."""

    def add_sum(self, name: str, default: Tensor) -> None:
        """Adds a state that is summed over processes, with its value after ``reset``."""
        self.add_state(name, default, dist_reduce_fx="sum", persistent=True)

    def _renew(self) -> None:
        """Forgets the cached result, and notes whether the new states hold data."""
        super()._renew()
        if any(bool(getattr(self, name).any()) for name in default_states(self)):
            mark_updated(self)

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Draws present values as bars, or results over time as curves, in panels."""
        if ax is not None or not self.panels:
            return super().plot(val, ax)
        found = self.compute() if val is None else val
        return _draw_panels(found, self.panels, f"{type(self).__name__}.plot")


class UpdateStatistics(AdditiveMetric):
    """Averages the statistics of one parameter's updates since the last reset.

    ``compute`` returns the scalars of
    :func:`~lightning_accum.functional.update_statistics.update_statistics` by name, each as its
    mean over updates: one NaN shows in ``nonfinite`` until the next reset. All names are returned,
    whichever parts and limits were passed. With several processes, the mean is over the updates of
    all of them.

    Args:
        split: whether processes divide the parameter, as that of a connection of
            ``Populations(..., split=True)``. An update is then measured as one, of all shares;
            every process has to call ``update``.
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

    panels = _PANELS
    totals: Tensor
    updates: Tensor

    def __init__(self, split: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.split = split
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
        """Measures one update; the arguments are those of ``update_statistics``.

        Raises:
            ValueError: if ``before`` and ``after`` differ in shape, or share their memory.
        """
        change = fast_measures(before, after, pos, neg, lower, upper)
        if self.split:
            change = combined([MeasuredChange(*each) for each in of_all([*map(float, change)])])
        found = change_statistics(change)
        if before.data_ptr() == after.data_ptr() != 0:  # 0 without memory
            raise ValueError(
                "Argument `before` should be a copy of the parameter, made before the update. Found"
                " the memory of `after`, in which nothing has changed: pass"
                " `before = param.detach().clone()`."
            )
        # Not in place: a state that was made in inference mode cannot be changed in place.
        values = [torch.as_tensor(found[name], dtype=torch.float32) for name in _NAMES]
        self.totals = self.totals + torch.stack(values)
        self.updates = self.updates + 1

    def compute(self) -> dict[str, Tensor]:
        """Returns the statistics by name, float32 scalars; all are 0 before any update."""
        return dict(zip(_NAMES, (self.totals / self.updates.clamp(min=1)).unbind(), strict=True))


class FiringStatistics(AdditiveMetric):
    """Measures how active neurons were since the last reset.

    ``compute`` returns ``firing_rate``, the mean number of spikes in a step of one sample and
    neuron, and ``silent_share``, the share of neurons that never fired. The number of neurons is
    known from the first update; every process needs one before their states are combined.

    Args:
        **kwargs: passed to :class:`torchmetrics.Metric`.

    Example:
        >>> import torch
        >>> stats = FiringStatistics()
        >>> stats.update(torch.tensor([[[1, 0]], [[1, 0]]]))
        >>> stats.compute()
        {'firing_rate': tensor(0.5000), 'silent_share': tensor(0.5000)}
    """

    panels = (
        _Panel("spikes per step", ("firing_rate",)),
        _Panel("share of the neurons", ("silent_share",), limits=(0.0, 1.05)),
    )
    counts: Tensor
    steps: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_sum("counts", torch.zeros(1))
        self.add_sum("steps", torch.zeros((), dtype=torch.long))

    def update(self, spikes: Tensor) -> None:
        """Counts spikes.

        Args:
            spikes: activity of shape ``[T, B, ...]`` and any dtype, 0 or 1; its values are checked
                only on the CPU, as reading them elsewhere would wait for the device.

        Raises:
            ValueError: if the neuron dimension is missing, the number of neurons is another than
                before, or a value is neither 0 nor 1.
        """
        found = spike_counts(spikes)
        if spikes.is_cpu and spikes.dtype != torch.bool and count_spikes(spikes) is None:
            raise ValueError(
                "Argument `spikes` should be 0 or 1, so that their mean is a firing rate. Found"
                f" values from {spikes.min():g} to {spikes.max():g}: pass what the neuron fires,"
                " such as `spikes > 0`, and average graded activity with"
                " `lightning_accum.accumulators.Mean`."
            )
        size = self.counts.numel()
        fits, should = size in (1, found.numel()), f"{size} neurons, as before"
        check_shape(fits, "spikes", spikes, should, "keep one metric for each layer, or reset it")
        self.counts = self.counts + found
        self.steps = self.steps + spikes.shape[0] * spikes.shape[1]

    def compute(self) -> dict[str, Tensor]:
        """Returns the statistics by name, float32 scalars."""
        return count_statistics(self.counts, self.steps)
