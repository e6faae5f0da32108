"""What this package has set itself to reach beside other libraries, and what it reaches."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Protocol

from _measure import goals


class Costs(Protocol):
    """Milliseconds of a network, turn by turn."""

    simulation: list[float]
    whole: list[float]
    plasticity: list[float]
    memory: float


Nets = Mapping[str, Costs]
FOREIGN = ("ours, on snnTorch's", "ours, on Norse's", "ours, on SpikingJelly's")
BY_HAND = "ours, rule called by hand"
OTHERS = ("Inferno", "BindsNET", "SpikingJelly", "Norse", "snnTorch")


def plasticity(nets: Nets, *begin: str) -> float:
    """The least of the networks whose names begin so; NaN where there is none."""
    found = [
        statistics.median(net.plasticity) for name, net in nets.items() if name.startswith(begin)
    ]
    return min(found, default=float("nan"))


def simulation(nets: Nets) -> float:
    """The least of the other libraries'."""
    found = [statistics.median(n.simulation) for k, n in nets.items() if k.startswith(OTHERS)]
    return min(found, default=float("nan"))


def foreign(nets: Nets) -> float:
    """Plasticity on layers of others, the middle one of three."""
    return statistics.median(plasticity(nets, name) for name in FOREIGN)


def once(nets: Nets) -> Nets:
    """The networks that learn once a batch."""
    return {name: net for name, net in nets.items() if "at every step" not in name}


def each(nets: Nets) -> Nets:
    return {name: net for name, net in nets.items() if "at every step" in name}


def against(*begin: str) -> Callable[[Nets], float]:
    return lambda nets: plasticity(once(nets), *begin) / foreign(nets)


def against_each(name: str) -> Callable[[Nets], float]:
    return lambda nets: plasticity(each(nets), name) / plasticity(each(nets), BY_HAND)


def native(nets: Nets) -> Costs:
    return nets["ours, native layers"]


def whole(nets: Nets) -> float:
    return simulation(nets) / statistics.median(native(nets).whole)


# what; the ratio; what it should be at least, by number of neurons
BARS: list[tuple[str, Callable[[Nets], float], dict[int, float]]] = [
    ("plasticity on other layers: Inferno's cost over ours", against("Inferno"),
     {100: 40, 400: 110, 1600: 170}),
    ("… SpikingJelly's, the faster of its modes", against("SpikingJelly"),
     {100: 14, 400: 100, 1600: 160}),
    ("… Norse's", against("Norse"), {100: 6, 400: 14, 1600: 16}),
    ("whole step on our layers: fastest other simulation without learning over it", whole,
     {100: 1, 400: 2.5, 1600: 2}),
    ("updates at every step: Inferno's plasticity over ours", against_each("Inferno"),
     {100: 14, 400: 14, 1600: 14}),
    ("… BindsNET's with torch.mean", against_each("BindsNET with torch.mean"),
     {100: 11, 400: 11, 1600: 11}),
    ("… BindsNET's, the faster of its two", against_each("BindsNET"), {}),
    ("… Norse's", against_each("Norse"), {100: 2, 400: 2, 1600: 2}),
]  # fmt: skip


MOST_MEMORY = {100: 30, 400: 80, 1600: 120}  # MB, by number of neurons


def print_bars(title: str, found: Mapping[int, Nets]) -> None:
    """Prints what was reached, at each number of neurons, beside what should be."""
    rows = []
    for what, ratio, least in BARS:
        cells = []
        for neurons, nets in found.items():
            reached, bar = ratio(nets), least.get(neurons)
            missed = bar is not None and not reached >= bar
            told = f"{reached:.1f}×" + ("" if bar is None else f" of {bar:g}×")
            cells.append(f"**{told}**" if missed else told)
        rows.append([what, *cells])
    peaks = []
    for neurons, nets in found.items():
        peak, most = native(nets).memory, MOST_MEMORY[neurons]
        told = f"{peak:.0f} of {most} MB" if peak == peak else "–"
        peaks.append(f"**{told}**" if peak > most else told)
    rows.append(["peak memory of a whole batch on our layers, at most", *peaks])
    head = ["reached, and the bar (bold where it is missed)"]
    goals(title, [*head, *(f"N = {neurons}" for neurons in found)], rows)
