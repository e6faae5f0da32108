"""Networks side by side: they take turns, and each is held to the definition first."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from _measure import middle, peak_memory, print_peak, table, timed
from _stdp_work import AnyLoad, Make, answer, ignore, matched, pairs, raster, weights
from torch import Tensor


class Pair:
    """A contender without its rule and with it, on the same weights and spikes."""

    def __init__(self, make: Make, load: AnyLoad, start: Tensor) -> None:
        self.start = start
        self.plain, self.learner = make(load, False), make(load, True)
        spikes = raster(load)
        self.spikes = self.plain.feed(spikes)
        self.simulation: list[float] = []
        self.whole: list[float] = []
        self.memory = math.nan  # MB
        self.reset()
        self.rate = answer(self.plain, load, self.spikes).mean().item()
        post = answer(self.learner, load, self.spikes)
        change, expected = (self.learner.weight - start).double(), pairs(load, spikes, post)
        error, most = (change - expected).abs().max().item(), expected.abs().max().item()
        if not error <= 3e-4 * most:  # a change that is added in every step is rounded in every one
            raise AssertionError(f"{make} differs from the definition by {error:.1e} of {most:.1e}")

    def reset(self) -> None:
        with torch.no_grad():
            self.plain.weight.copy_(self.start)
            self.learner.weight.copy_(self.start)

    def turn(self) -> float:
        """Times a batch of each, and gives the seconds spent."""
        self.reset()
        self.simulation.append(timed(lambda: self.plain.run(self.spikes, ignore)))
        self.whole.append(timed(lambda: self.learner.run(self.spikes, ignore)))
        return (self.simulation[-1] + self.whole[-1]) / 1e3

    @property
    def plasticity(self) -> list[float]:
        """What a batch that learns takes beyond the one before it that does not."""
        return [whole - alone for whole, alone in zip(self.whole, self.simulation, strict=True)]


def in_turns(
    contenders: Mapping[str, Make], load: AnyLoad, seconds: float, most: int
) -> tuple[dict[str, Pair], dict[str, str]]:
    """Times contenders in turn, the first of which sets the output rate.

    Args:
        contenders: by name.
        load: their work.
        seconds: how long each may run; three turns are the least.
        most: turns, at most.

    Returns:
        By name, those that ran, and why others did not.
    """
    start = weights(load, matched(next(iter(contenders.values()))(load, False), load))
    nets: dict[str, Pair] = {}
    missing: dict[str, str] = {}
    for name, make in contenders.items():
        with noting(missing, name):
            nets[name] = Pair(make, load, start)
    spent = dict.fromkeys(nets, 0.0)
    for turn in range(most):
        for name, pair in nets.items():
            if turn < 3 or spent[name] < seconds:
                spent[name] += pair.turn()
    return nets, missing


def side_by_side(
    contenders: Mapping[str, Make],
    load: AnyLoad,
    seconds: float,
    script: str | None,
) -> dict[str, Pair]:
    """Prints a table of all, the first of which sets the output rate.

    Args:
        contenders: by name.
        load: their work.
        seconds: how long each may run; three turns are the least, fifteen the most.
        script: measures memory, as `peak_memory` has it, if there is one.
    """
    nets, missing = in_turns(contenders, load, seconds, most=15)
    rows = []
    for name, pair in nets.items():
        row = [name, middle(pair.whole), f"{statistics.median(pair.plasticity):.1f}"]
        if script:
            pair.memory = peak_memory(script, name, *map(str, load))
            row.append(f"{pair.memory:.0f}")
        rows.append(row)
    for name, why in missing.items():
        rows.append([name, f"not run: {why}", "–", *["–"] * bool(script)])
    head = ["network", "whole batch, ms", "plasticity, ms"]
    table(head + ["peak MB"] * bool(script), rows)
    print(f"\nNeurons fire in {next(iter(nets.values())).rate:.1%} of the steps.")
    return nets


@contextmanager
def noting(known: dict[str, str], name: str) -> Iterator[None]:
    """Takes note of another library that cannot be imported, or fails."""
    try:
        yield
    except (ImportError, RuntimeError) as error:
        if name.startswith("ours") and not isinstance(error, ImportError):
            raise
        known[name] = type(error).__name__


def memory_of(make: Make, load: AnyLoad) -> None:
    """Prints the MB of a batch; two steps before it bring in all code."""
    net = make(load, True)
    with torch.no_grad():
        net.weight.copy_(weights(load))
    spikes = net.feed(raster(load))
    net.run(spikes[:2], ignore)
    print_peak(lambda: net.run(spikes, ignore))
