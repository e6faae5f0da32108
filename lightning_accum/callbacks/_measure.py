"""What one applied update did, and how the neurons fired, by the names under which it is logged."""

from __future__ import annotations

from torch import Tensor

from lightning_accum.functional.statistics import spike_counts, update_statistics
from lightning_accum.learn.host import CellHost
from lightning_accum.observe import WindowRecorder


def activity(host: CellHost) -> dict[str, Tensor]:
    """Firing rate, in spikes per step and neuron, and share of silent neurons, of each cell."""
    values: dict[str, Tensor] = {}
    for (cell, name), monitor in host.trainer.named_monitors:
        recorder = monitor.reducer
        if name != "post" or not isinstance(recorder, WindowRecorder):
            continue
        window = recorder.window()
        if window is not None:
            counts = spike_counts(window)
            values[f"activity/{cell}/firing_rate"] = counts.mean() / (
                window.shape[0] * window.shape[1]
            )
            values[f"activity/{cell}/silent_share"] = (counts == 0).float().mean()
    return values


class Measurement:
    """The parameters before an update is applied, to be compared with what they are afterwards.

    Args:
        host: whose updaters are about to be applied.
        ids: the ``id`` of every parameter to which they will be.
    """

    def __init__(self, host: CellHost, ids: set[int]) -> None:
        self._taken = []
        for cell, updater in host.updaters.items():
            for name in updater.names:
                if id(getattr(updater.parent, name)) not in ids:
                    continue
                accumulator = updater._getacc_(updater, name)
                param = getattr(updater.parent, name).detach()
                parts = accumulator.pos, accumulator.neg
                self._taken.append((cell, name, updater, param, param.clone(), parts))

    def values(self) -> dict[str, Tensor]:
        """The statistics of what was applied since, ``updates/<cell>/<param>/<statistic>``."""
        values: dict[str, Tensor] = {}
        for cell, name, updater, param, before, (pos, neg) in self._taken:
            lower, upper = updater.limits(name)
            found = update_statistics(before, param, pos, neg, lower, upper)
            for statistic, value in found.items():
                values[f"updates/{cell}/{name}/{statistic}"] = value.float()
        return values
