"""Fills the table of ``docs/benchmarks.md``, and draws the README's picture of speed.

All figures are those of ``docs/measurements.md``, which `bench.py` writes. A table stands between
``<!-- table: NAME -->`` and ``<!-- end -->``; the text around it is written by hand.

    .venv/bin/python scripts/bench_front.py
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE, ALL = DOCS / "benchmarks.md", DOCS / "measurements.md"
PICTURE = DOCS / "pictures" / "speed.svg"
STEPS = {100: 250, 400: 250, 1600: 50}
EVERY_STEP = ", at every step"
AT = re.compile(r"^\*.+; commit \S+\*$", re.M)


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


def batches(text: str, neurons: int) -> dict[str, Batch]:
    """Returns what each network that ran takes, by its name, with a malloc that keeps blocks."""
    load = f"### 784 → {neurons}, batch 32, {STEPS[neurons]} steps, input at 2%, blocks kept"
    return {
        row["network"]: Batch(number(row["whole batch, ms"]), number(row["plasticity, ms"]))
        for row in rows(text, load)
        if not row["whole batch, ms"].startswith("not run")
    }


def markdown(head: list[str], body: list[list[str]]) -> str:
    """Returns a table in Markdown."""
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def machine(text: str) -> str:
    """Returns where the networks were compared."""
    top, _, rest = text.partition("<!-- competitors -->")
    found = AT.findall(rest.partition("<!--")[0]) or AT.findall(top)
    return found[0] if found else "*machine unknown*"


def error_table(text: str) -> str:
    """Networks that learn from an error: milliseconds and memory of a batch."""
    _, *parts = text.partition("<!-- three_factor -->")[2].partition("<!--")[0].split("\n### ")
    found = {
        part.partition(",")[0]: rows(part, part.partition("\n")[0])
        for part in parts
        if "| batch, ms |" in part
    }
    names = list(dict.fromkeys(row["network"] for each in found.values() for row in each))
    body = []
    for name in names:
        taken = [next((r for r in each if r["network"] == name), None) for each in found.values()]
        cells = [f"{number(r['batch, ms']):,.0f} ({r['peak MB']})" if r else "–" for r in taken]
        body.append([name, *cells])
    return markdown(["ms a batch (peak MB)", *found], body)


TABLES: dict[str, Callable[[str], str]] = {
    "machine": machine,
    "error": error_table,
}


def filled(page: str, text: str) -> str:
    """Returns the page with its tables made of the text of ``docs/measurements.md``."""
    for name, make in TABLES.items():
        before, start, rest = page.partition(f"<!-- table: {name} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        if not end:
            raise ValueError(f"docs/benchmarks.md should have a place for {name}. Found none.")
        page = f"{before}{start}\n{make(text)}\n\n{end}{after}"
    return page


def draw(text: str, path: Path) -> None:
    """Draws the networks of 400 neurons in two groups, the fastest first."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams.update({"svg.hashsalt": "speed", "svg.fonttype": "none", "font.size": 9})
    times = sorted(batches(text, 400).items(), key=lambda bar: bar[1].whole)
    groups = {
        "weights change at the end of the batch": [b for b in times if EVERY_STEP not in b[0]],
        "weights change at every step": [b for b in times if EVERY_STEP in b[0]],
    }
    figure = Figure(figsize=(8.2, 3.4), layout="constrained")
    axes = figure.subplots(2, sharex=True, height_ratios=[len(group) for group in groups.values()])
    for ax, (title, group) in zip(axes, groups.items(), strict=True):
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
    figure.savefig(path, metadata={"Date": None}, facecolor="white")


def main() -> None:
    """Writes the page and the picture."""
    text = ALL.read_text(encoding="utf-8")
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), text), encoding="utf-8")
    draw(text, PICTURE)


if __name__ == "__main__":
    main()
