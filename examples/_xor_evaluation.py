"""What experiments of XOR from reward share: patterns, delay, criterion, table and picture."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import torch
from _experiment import curves, save, spread
from scipy.stats import binomtest  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.nn.functional import pad

from lightning_accum import MSTDP, Rule

PATTERNS = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
XOR = torch.tensor([-1.0, 1.0, 1.0, -1.0])  # reward of an output spike


class Delay(nn.Module):
    """Hands on what came one step before, across calls: a spike is not felt where it happens."""

    last: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        before = pad(x[:-1], (0, 0, 0, 0, 1, 0))
        if self.last is not None:
            before[0] = self.last
        self.last = x[-1]
        return before

    def reset(self) -> None:
        self.last = None


def final(rates: Tensor) -> Tensor:
    """Rates over the last ten epochs, ``[..., 4]`` of ``[..., epochs, 4]``."""
    return rates[..., -10:, :].mean(-2)


def margin(rates: Tensor) -> Tensor:
    """By how many Hz both patterns that differ make more spikes than the others, or 0.

    To tell them apart the wrong way round is worth as much as not to tell them apart: otherwise a
    control that unlearns would make a gain of its own.

    Args:
        rates: ``[..., epochs, 4]``.
    """
    zero, right, left, both = final(rates).unbind(-1)
    return (torch.minimum(right, left) - torch.maximum(zero, both)).clamp(min=0)


def learned(rates: Tensor) -> Tensor:
    """Whether XOR was learned: both patterns that differ make more spikes than {1,1} and {0,0}."""
    return margin(rates) > 0


def head(epochs: int, criterion: str) -> None:
    """Prints the head of a table, whose last columns count the seeds that meet a criterion."""
    print(f"output rates in Hz for XOR's patterns, the last 10 of {epochs} epochs:")
    patterns = " ".join(f"{{{a:.0f},{b:.0f}}}" for a, b in PATTERNS)
    print(f"  {'':18s} {patterns}  {criterion}, with 95 % intervals")


def row(title: str, rates: Tensor) -> None:
    """Prints a row of the table, of rates ``[seeds, epochs, 4]``."""
    means = " ".join(f"{rate:5.0f}" for rate in final(rates).mean(0))
    count, seeds = int(learned(rates).sum()), len(rates)
    low, high = (100 * limit for limit in binomtest(count, seeds).proportion_ci())
    print(f"  {title:18s} {means}  {count} of {seeds} seeds, {low:.0f} to {high:.0f} %")


def compare(
    learn: Callable[..., Tensor],
    rules: Mapping[str, Rule],
    epochs: int,
    seeds: int,
    controls: int,
) -> tuple[dict[str, Tensor], str, float, dict[str, str]]:
    """Trains networks at a rate of 0, by each rule, and with shuffled rewards; prints their rows.

    Args:
        learn: trains one network; gives its output's rates, ``[epochs, 4]``.
        rules: by name.
        epochs: presentations of all patterns.
        seeds: how many networks for each rule.
        controls: how many with shuffled rewards.

    Returns:
        The rates, ``[seeds, epochs, 4]``, by title; the margins of the last rule's seeds; the
        samples per second of training; and the controls.
    """
    untrained = torch.stack([learn(MSTDP(0.0, 0.0), 10, seed) for seed in range(seeds)])
    row("rate 0", untrained)
    found = {}
    start = time.process_time()
    for shuffled, count in ((False, seeds), (True, controls)):
        for name, rule in rules.items():
            title = f"{name}, shuffled" if shuffled else name
            runs = [learn(rule, epochs, seed, shuffled=shuffled) for seed in range(count)]
            found[title] = torch.stack(runs)
            row(title, found[title])
    samples = 4 * epochs * sum(len(rates) for rates in found.values())
    speed = samples / (time.process_time() - start)
    kinds = {"rate 0": untrained, "shuffled rewards": found[title], "result": found[name]}
    spreads = {kind: spread(margin(rates).tolist(), " Hz") for kind, rates in kinds.items()}
    return found, spreads.pop("result"), speed, spreads


def draw(found: Mapping[str, Tensor], path: str) -> None:
    """The output's rate for each pattern over epochs: mean of the seeds, and each of them."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 2.8), layout="constrained")
    colours = ("0.5", "C0", "C2", "C3")
    for axes, (title, rates) in zip(
        figure.subplots(1, len(found), sharey=True), found.items(), strict=True
    ):
        size = max(1, rates.shape[1] // 20)  # of the groups of epochs to average over
        smooth = rates.unfold(1, size, size).mean(-1)
        epochs = (torch.arange(smooth.shape[1]) + 0.5) * size
        for pattern, (bits, colour) in enumerate(
            zip(PATTERNS.int().tolist(), colours, strict=True)
        ):
            curves(axes, epochs, smooth[..., pattern], colour, "{{{},{}}}".format(*bits))
        axes.set(title=title, xlabel="epoch")
    figure.axes[0].set_ylabel("rate of the output, Hz")
    figure.axes[-1].legend(frameon=False, fontsize=8, loc="upper right")
    save(figure, path, dpi=72)
