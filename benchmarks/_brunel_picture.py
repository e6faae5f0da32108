"""The picture of `brunel.py`: time and memory by the number of synapses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

STYLES = {"ours": "#0b6e4f", "NEST": "#c8553d"}


def draw(lines: Mapping[str, list[tuple[float, float, float]]], path: Path | None) -> None:
    """Draws both panels, to nowhere where there is no path; both axes are logarithmic."""
    mpl.rcParams.update({"svg.hashsalt": "brunel", "font.size": 9, "svg.fonttype": "none"})
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
    for name, line in lines.items():
        synapses, seconds, memory = zip(*line, strict=True)
        one = name.endswith("1 thread")
        style = {"color": STYLES[name.split(",")[0]], "marker": "o", "ms": 3}
        style |= {"ls": "--" if one else "-", "lw": 1 if one else 1.8}
        left.plot(synapses, seconds, label=name, **style)
        if not one:
            right.plot(synapses, memory, **style)
    left.axhline(1.0, color="0.5", lw=0.8)
    left.annotate("real time", (0.02, 1.0), xycoords=("axes fraction", "data"), va="bottom")
    left.set(ylabel="s per biological second", yscale="log")
    right.set(ylabel="bytes a synapse", ylim=(0, None))
    for ax in (left, right):
        ax.set(xscale="log", xlabel="synapses")
        ax.grid(True, which="major", lw=0.3)
        ax.spines[["top", "right"]].set_visible(False)
    left.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)
