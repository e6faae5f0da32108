"""How the examples of the zoo print what they found, so that a script can read it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def spread(values: Sequence[float], unit: str = " %", digits: int = 1) -> str:
    """Mean and standard deviation over seeds, and each value."""
    each = ", ".join(f"{value:.{digits}f}" for value in values)
    deviation = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{unit}{deviation} (seeds: {each})"


def report(result: str, speed: float) -> None:
    """Prints a result and how fast it was learned; `scripts/zoo.py` reads both lines.

    Args:
        result: what was reached, with its spread over seeds.
        speed: samples per second of processor time in training, for which ``time.process_time()``
            is the clock: what else the machine does has no part in it.
    """
    print(f"result: {result}")
    print(f"speed: {speed:.0f} samples per second of training")
