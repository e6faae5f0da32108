"""What examples of the zoo share: options, results that a script can read, curves over seeds."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


PROVES_NOTHING = "A short run: it shows that the program works, and proves nothing."


class Short(argparse.Action):
    """The option ``--short``, which says what it is."""

    def __init__(self, **options: Any) -> None:
        super().__init__(nargs=0, default=False, **options)

    def __call__(self, parser: Any, namespace: Any, values: Any, option: Any = None) -> None:
        setattr(namespace, self.dest, True)
        print(PROVES_NOTHING)


def arguments(doc: str, file: str, short: str, seeds: int = 3, **more: int) -> argparse.Namespace:
    """Reads the options ``--seeds``, ``--picture`` and ``--short``.

    Args:
        doc: of the example; its first line is shown as help.
        file: of the example; the picture is named after it.
        short: help of ``--short``, which also sets ``seeds`` to 1.
        seeds: how many by default; with 1, there is no option ``--seeds``.
        **more: other options that are integers, by name, with their defaults.
    """
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    if seeds > 1:
        parser.add_argument("--seeds", type=int, default=seeds)
    for name, default in more.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    picture = Path(file).with_suffix(".png").name
    parser.add_argument("--picture", default=picture, help="where to draw to")
    parser.add_argument("--short", action=Short, help=short)
    args = parser.parse_args()
    if args.short or seeds == 1:
        args.seeds = 1
    return args


def spread(values: Sequence[float], unit: str = " %", digits: int = 1) -> str:
    """Mean and standard deviation over seeds, and each value."""
    each = ", ".join(f"{value:.{digits}f}" for value in values)
    deviation = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{unit}{deviation} (seeds: {each})"


def report(
    result: str,
    speed: float,
    controls: Mapping[str, str] | None = None,
    simple: Mapping[str, str] | None = None,
) -> None:
    """Prints a result and its controls, which `scripts/zoo.py` reads, and how fast it was learned.

    Args:
        result: what was reached, with its spread over seeds.
        speed: samples per second of processor time in training, for which ``time.process_time()``
            is the clock: what else the machine does has no part in it.
        controls: what is reached without the rule, with its spread over seeds, by name.
        simple: what simple methods with labels or gradients reach, with its spread, by name.
    """
    print(f"result: {result}")
    for name, reached in (controls or {}).items():
        print(f"control: {name}: {reached}")
    for name, reached in (simple or {}).items():
        print(f"simple: {name}: {reached}")
    print(f"speed: {speed:.0f} samples per second of training")


def curves(
    axes: Axes,
    x: Sequence[float] | Tensor,
    runs: Sequence[Sequence[float]] | Tensor,
    colour: str,
    label: str,
    **each: Any,
) -> None:
    """Draws each run as a thin line, and their mean as a thick one.

    Args:
        axes: where to draw.
        x: of the points of all runs.
        runs: ``[runs, points]``.
        colour: of all lines.
        label: of the mean.
        **each: options of the thin lines.
    """
    values = torch.as_tensor(runs).T
    axes.plot(x, values, color=colour, lw=0.4, **each)
    axes.plot(x, values.mean(1), color=colour, lw=1.8, label=label)


def save(figure: Figure, path: str, dpi: int) -> None:
    """Saves a picture, and prints where."""
    figure.savefig(path, dpi=dpi)
    print(f"drawn to {path}")
