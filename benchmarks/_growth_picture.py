"""The picture of `growth.py`: a panel for each sweep, both axes logarithmic."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

# value, ms of plasticity, ms of the whole batch
Lines: TypeAlias = list[tuple[float, float, float]]

COLORS = {
    "ours": "#0b6e4f",
    "a product per step": "#8f8f8f",
    "SpikingJelly": "#c8553d",
    "Norse": "#3d5a80",
}
UNDER = {
    "limit: one dense product": {"ls": "--", "color": "black"},
    "limit: memory read once": {"ls": ":", "color": "black"},
    "ours, dense alone": {"ls": (0, (4, 2)), "color": "#58b09c"},
    "ours, pre alone": {"ls": (0, (1, 1)), "color": "#58b09c"},
    "ours, post alone": {"ls": (0, (3, 1, 1, 1)), "color": "#58b09c"},
}
AXES = {
    "steps": "steps of a batch",
    "batch": "samples of a batch",
    "neurons": "neurons",
    "density": "input spikes per neuron and step",
}


def draw(panels: Mapping[str, Mapping[str, Lines]], cross: float, path: Path | None) -> None:
    """Draws all panels, to nowhere where there is no path; files differ where data do alone."""
    mpl.rcParams.update({"svg.hashsalt": "growth", "font.size": 9, "svg.fonttype": "none"})
    columns = 2
    rows = math.ceil(len(panels) / columns)
    figure, axes = plt.subplots(rows, columns, figsize=(9, 3.6 * rows), squeeze=False)
    for ax, (name, lines) in zip(axes.flat, panels.items(), strict=False):
        for network, line in lines.items():
            x, plasticity, whole = zip(*line, strict=True)
            if network in UNDER:
                ax.plot(x, plasticity, lw=1, label=network, zorder=1, **UNDER[network])
                continue
            color = COLORS[network]
            ax.plot(x, plasticity, color=color, lw=1.8, marker="o", ms=3, label=network, zorder=3)
            ax.plot(x, whole, color=color, lw=0.7, alpha=0.7, zorder=2)
        if name == "density" and cross == cross:
            ax.axvline(cross, color="#58b09c", lw=0.8)
            ax.annotate(
                f"others overtake\npre at {cross:.2g}", (cross, 0.97), (-3, 0),
                xycoords=("data", "axes fraction"), textcoords="offset points",
                ha="right", va="top", fontsize=8,
            )  # fmt: skip
        ax.set(xscale="log", yscale="log", xlabel=AXES[name], ylabel="ms a batch")
        ax.grid(True, which="major", lw=0.3)
        ax.spines[["top", "right"]].set_visible(False)
    known = {}
    for ax in axes.flat:
        handles, labels = ax.get_legend_handles_labels()
        known.update(zip(labels, handles, strict=True))
    figure.legend(known.values(), known.keys(), loc="lower center", ncols=3, frameon=False)
    figure.tight_layout(rect=(0, 0.1 if rows > 1 else 0.3, 1, 1))
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)
