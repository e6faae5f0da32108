"""A recurrent spiking network learns to generate three signals, by e-prop and by backpropagation.

The task is that of Bellec et al. (2020, doi:10.1038/s41467-020-17236-y). 60 recurrent neurons see a
frozen raster of Poisson spikes for one second, always the same. Three leaky readouts have to follow
a target each: a sum of sinusoids of 1, 2, 3 and 5 Hz with random amplitudes and phases. The error
is the mean squared one over the variance of the targets: 1 for a readout that stays at the mean.

Side by side: e-prop with the readout's weights as feedback, e-prop with fixed random feedback, and
backpropagation through time by autograd, from the same first weights with the same optimizer. The
controls are the best that a readout could do, by least squares: of the network as it was at first,
its input at the gain that suits it best; and, without a network, of traces of the input with three
time constants, those that suit it best, which makes as many weights.

    python examples/pattern_generation.py [--picture pattern_generation.png] [--short]
"""

from __future__ import annotations

import itertools
import math
import time

import lightning.pytorch as pl
import torch
from _experiment import arguments, curves, report, save, spread
from _recurrent import LEARNERS, REFITTED, TITLES, Recurrent
from matplotlib.figure import Figure
from torch import Tensor

from lightning_accum.functional import decay_factor, trace

STEPS, RATE = 1000, 50.0  # of 1 ms; of the input, in Hz
INPUTS, NEURONS, SIGNALS = 20, 60, 3
TIME_CONSTANTS = (5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)  # of traces of the input, in ms
GAINS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 48.0, 64.0, 96.0)  # of a network that does not learn
FREQUENCIES = torch.tensor([1.0, 2.0, 3.0, 5.0])


def task(seed: int) -> tuple[Tensor, Tensor]:
    """Returns a raster ``[T, 1, INPUTS]`` and targets ``[T, 1, SIGNALS]``."""
    generator = torch.Generator().manual_seed(seed)
    raster = torch.rand(STEPS, 1, INPUTS, generator=generator) < RATE / 1000
    amplitudes, phases = torch.rand(2, SIGNALS, len(FREQUENCIES), generator=generator)
    seconds = torch.arange(STEPS)[:, None, None] / 1000
    waves = torch.sin(2 * math.pi * (FREQUENCIES * seconds + phases))
    signals = (waves * (0.5 + 1.5 * amplitudes)).sum(-1)
    return raster.float(), (signals / signals.std(0)).unsqueeze(1)


class Generator(Recurrent):
    """Follows targets; the loss is half the mean square over time."""

    def error(self, y: Tensor, target: Tensor) -> Tensor:
        return (y - target) / len(y)

    def score(self, y: Tensor, target: Tensor) -> float:
        """Returns the mean squared error over the variance of the targets."""
        return normalized_error(y, target)


def normalized_error(y: Tensor, target: Tensor) -> float:
    """Returns the mean squared error over the variance of the targets."""
    return float((y - target).square().mean() / (target - target.mean(0)).square().mean())


def make(learner: str, seed: int, gain: float = 8.0) -> Generator:
    """Returns a network that is to learn, by one of ``LEARNERS``."""
    pl.seed_everything(seed, verbose=False)
    rates = {"lr": 0.02, "penalty": 0.03, "target_rate": 20.0}
    return Generator(INPUTS, NEURONS, SIGNALS, learner, **rates, gain=gain)


def final(errors: list[float]) -> float:
    """Returns the mean error of the last ten presentations."""
    return sum(errors[-10:]) / len(errors[-10:])


def best_readout(features: Tensor, target: Tensor) -> float:
    """Returns the least error of any linear readout of features ``[T, 1, N]``."""
    wanted = target.squeeze(1).double()
    # The driver for a deficient rank: some neurons are silent.
    found = torch.linalg.lstsq(features.squeeze(1).double(), wanted, driver="gelsd")
    return normalized_error((features.squeeze(1).double() @ found.solution), wanted)


def untrained(seed: int, gain: float = 1.0) -> float:
    """Returns the least error of any readout of a network as it is at first."""
    raster, target = task(seed)
    return best_readout(make("symmetric", seed, gain).filtered(raster), target)


def by_traces(seed: int) -> float:
    """Returns the least error of any readout of the input's traces, three of each input."""
    raster, target = task(seed)
    traces = [trace(raster, decay_factor(tc, 1.0)) for tc in TIME_CONSTANTS]
    some = itertools.combinations(traces, NEURONS // INPUTS)
    return min(best_readout(torch.cat(three, -1), target) for three in some)


def draw(found: dict[str, list], shown: dict[str, Tensor], controls: list, path: str) -> None:
    """Draws the errors of all seeds, and the targets and what two learners made of them."""
    figure = Figure(figsize=(9.6, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for colour, (learner, runs) in zip(("C0", "C2", "C3"), found.items(), strict=True):
        curves(left, range(len(runs[0])), runs, colour, TITLES[learner])
    for least in controls:
        left.axhline(least, color="0.5", lw=0.8, ls="--")
    left.set(xlabel="presentation", ylabel="normalized error", yscale="log")
    left.legend(frameon=False, fontsize=8)
    for (title, signals), colour in zip(shown.items(), ("k", "C0", "C3"), strict=True):
        below = signals - 6 * torch.arange(SIGNALS)
        right.plot(below, color=colour, lw=0.9, label=[title, "_", "_"])
    right.set(xlabel="ms", yticks=[], ylim=(-22, 3))
    right.legend(frameon=False, fontsize=8, loc="lower left", ncols=3)
    save(figure, path, dpi=72)


def main() -> None:
    args = arguments(__doc__, __file__, short="one seed, five presentations")
    presentations = 5 if args.short else 100
    torch.set_num_threads(1)
    found = {learner: [] for learner in LEARNERS}
    seconds, reached, shown = {}, {}, {"target": task(0)[1].squeeze(1)}
    refitted = []
    print(f"normalized error, mean of the last 10 of {presentations} presentations:")
    for learner, runs in found.items():
        start = time.process_time()
        for seed in range(args.seeds):
            network = make(learner, seed)
            runs.append(network.learn([task(seed)] * presentations, seed))
            if seed == 0 and learner != "random":
                shown[TITLES[learner].split(",")[0]] = network(task(0)[0]).detach().squeeze(1)
            if learner == "symmetric":
                raster, target = task(seed)
                refitted.append(best_readout(network.filtered(raster), target))
        seconds[learner] = time.process_time() - start
        reached[learner] = spread([final(run) for run in runs], "", 3)
        print(f"  {TITLES[learner]:28s} {reached[learner]}")
    print(f"  {REFITTED:28s} {spread(refitted, '', 3)}")
    seeds = range(args.seeds)
    fixed = [min(untrained(seed, gain) for gain in GAINS) for seed in seeds]
    controls = {
        "untrained, best readout": fixed,
        "traces of the input, best readout": [by_traces(seed) for seed in seeds],
    }
    report(
        reached["symmetric"],
        args.seeds * presentations / seconds["symmetric"],
        {name: spread(values, "", 3) for name, values in controls.items()},
        {"BPTT": reached["bptt"]},
    )
    draw(found, shown, fixed, args.picture)


if __name__ == "__main__":
    main()
