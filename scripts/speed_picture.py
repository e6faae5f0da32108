"""Draws the README's picture of speed, from the figures in ``docs/benchmarks.md``.

Bars are medians of a whole batch: the pass through the network, and what it learns by STDP; with a
malloc that keeps its blocks, since some libraries are several times as slow without.

    .venv/bin/python scripts/speed_picture.py
"""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
TABLE = "784 → 400, batch 32, 250 steps, input at 2%, blocks kept"
EVERY_STEP = ", at every step"


def bars() -> dict[str, float]:
    """Returns milliseconds of a whole batch, by the name of each network that learns."""
    page = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    table = page.partition(f"### {TABLE}\n\n")[2].partition("\n\n")[0]
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()]
    column = cells[0].index("whole batch, ms")
    found = {row[0]: re.match(r"[\d.]+", row[column]) for row in cells[2:]}
    return {name: float(ms[0]) for name, ms in found.items() if ms}


def draw(path: Path) -> None:
    """Draws both groups of networks, the fastest first."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams.update({"svg.hashsalt": "speed", "svg.fonttype": "none", "font.size": 9})
    times = sorted(bars().items(), key=lambda bar: bar[1])
    groups = {
        "weights change at the end of the batch": [b for b in times if EVERY_STEP not in b[0]],
        "weights change at every step": [b for b in times if EVERY_STEP in b[0]],
    }
    figure = Figure(figsize=(8.2, 3.1), layout="constrained")
    axes = figure.subplots(2, sharex=True, height_ratios=[len(group) for group in groups.values()])
    for ax, (title, group) in zip(axes, groups.items(), strict=True):
        names = [name.replace(EVERY_STEP, "") for name, _ in group]
        colors = ["#0b6e4f" if name.startswith("ours") else "#9aa5b1" for name in names]
        drawn = ax.barh(names, [ms for _, ms in group], color=colors)
        ax.bar_label(drawn, [f"{ms:,.0f} ms" for _, ms in group], padding=4)
        ax.set_title(title, loc="left", fontsize=9, fontweight="bold")
        ax.invert_yaxis()
        ax.margins(x=0.1)
        ax.spines[["top", "right", "bottom"]].set_visible(False)
        ax.tick_params(left=False, bottom=False, labelbottom=False)
    figure.savefig(path, metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    draw(DOCS / "pictures" / "speed.svg")
