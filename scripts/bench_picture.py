"""Draws the picture of speed, of figures in ``docs/measurements.md``, which `bench.py` writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

DOCS = Path(__file__).resolve().parent.parent / "docs"
ALL = DOCS / "measurements.md"
PICTURE = DOCS / "pictures" / "speed.svg"
LOAD = "### 784 → 400, batch 32, 250 steps, input at 2%"
EVERY_STEP = ", at every step"
SAMPLE = "### 784 → 400, 350 steps of 1 ms"


class Batch(NamedTuple):
    """Milliseconds of a batch, and of its part that learns."""

    whole: float
    plasticity: float


def rows(text: str, after: str) -> list[dict[str, str]]:
    """Returns the first table after a line, a dictionary of its columns for each row."""
    _, found, rest = text.partition(f"{after}\n\n")
    if not found:
        raise ValueError(f"docs/measurements.md should have a table after {after!r}. Found none.")
    lines = rest.partition("\n\n")[0].splitlines()
    head, _, *body = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return [dict(zip(head, cells, strict=True)) for cells in body]


def number(cell: str) -> float:
    """Returns the median that a cell begins with."""
    return float(cell.split()[0])


def batches(text: str) -> dict[str, Batch]:
    """Returns what each network that ran takes, by its name, with a malloc that keeps blocks."""
    return {
        row["network"]: Batch(number(row["whole batch, ms"]), number(row["plasticity, ms"]))
        for row in rows(text, LOAD)
        if not row["whole batch, ms"].startswith("not run")
    }


def sample(text: str) -> dict[str, float]:
    """Returns the ms in which networks that ran simulate one sample and learn from it."""
    return {
        row["network"]: number(row["ms"])
        for row in rows(text, SAMPLE)
        if not row["ms"].startswith("not run") and "once for all steps" not in row["network"]
    }


def draw(text: str, path: Path) -> None:
    """Draws the networks of 400 neurons in three groups, the fastest first."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams.update({"svg.hashsalt": "speed", "svg.fonttype": "none", "font.size": 9})
    times = list(batches(text).items())
    groups = {
        "weights change at the end of the batch": [b for b in times if EVERY_STEP not in b[0]],
        "weights change at every step": [b for b in times if EVERY_STEP in b[0]],
        "one sample, weights change at every step": [
            (name, Batch(ms, ms)) for name, ms in sample(text).items()
        ],
    }
    figure = Figure(figsize=(8.2, 4.6), layout="constrained")
    axes = figure.subplots(len(groups), height_ratios=[len(group) for group in groups.values()])
    axes[1].sharex(axes[0])
    for ax, (title, group) in zip(axes, groups.items(), strict=True):
        group.sort(key=lambda bar: bar[1].whole)
        bars(ax, title, group)
    figure.savefig(path, metadata={"Date": None}, facecolor="white")


def bars(ax: Any, title: str, group: list[tuple[str, Batch]]) -> None:
    """Draws a bar for each network, the part that learns darker."""
    names = [name.replace(EVERY_STEP, "").replace("`", "") for name, _ in group]
    ours = [name.startswith("ours") for name in names]
    passes = [ms.whole - ms.plasticity for _, ms in group]
    ax.barh(names, passes, color=["#8fc7b0" if mine else "#cfd6dd" for mine in ours])
    learning = ax.barh(
        names,
        [ms.plasticity for _, ms in group],
        left=passes,
        color=["#0b6e4f" if mine else "#8a95a3" for mine in ours],
    )
    ax.bar_label(learning, [f"{ms.whole:,.0f} ms" for _, ms in group], padding=4)
    ax.set_title(title, loc="left", fontsize=9, fontweight="bold")
    ax.invert_yaxis()
    ax.margins(x=0.1)
    ax.spines[["top", "right", "bottom"]].set_visible(False)
    ax.tick_params(left=False, bottom=False, labelbottom=False)


def main() -> None:
    """Draws the picture."""
    draw(ALL.read_text(encoding="utf-8"), PICTURE)


if __name__ == "__main__":
    main()
