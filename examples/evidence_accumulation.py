"""A recurrent spiking network counts cues and remembers the count, if its neurons adapt.

The task is a small form of that of Bellec et al. (2020, doi:10.1038/s41467-020-17236-y). Three cues
of 40 ms come from the left or from the right, 20 ms apart. After a delay of 200 ms a signal asks on
which side there were more. All inputs are Poisson spikes, and every trial is new. An error exists
only in the last 50 ms, when a readout answers.

A membrane with a time constant of 20 ms forgets the cues within the delay, and so do the
eligibility traces of e-prop. The threshold of an adaptive neuron, with one of 500 ms, remembers
both its spikes and the eligibility. Side by side: e-prop with the readout's weights as feedback and
with fixed random feedback, and backpropagation through time by autograd, of 50 neurons that adapt
and of 50 that do not, from the same first weights with the same optimizer. The controls are the
adaptive network as it is at first, its input at the scale that suits it best, with a linear readout
fitted to the same trials until it converges; such a readout of the inputs' traces of 500 ms,
without a network; and the answer by the last cue.

    python examples/evidence_accumulation.py [--picture evidence_accumulation.png] [--short]
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from functools import partial

import lightning.pytorch as pl
import torch
from _controls import UNTRAINED, linear, linear_behind, seen_by, share
from _data import Split
from _experiment import arguments, curves, report, save, spread
from _recurrent import REFITTED, TITLES, Recurrent
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import one_hot

from lightning_accum.functional import decay_factor, trace

CUES, CUE, PAUSE, DELAY, ANSWER = 3, 40, 20, 200, 50  # how many, and how long in ms
STEPS = CUES * (CUE + PAUSE) + DELAY + ANSWER
POPULATIONS, SIZE = 4, 5  # left, right, the question, noise; inputs in each
NEURONS, BATCH = 50, 32
NEURON = {"ALIF": {"beta": 0.1, "tc_adaptation": 500.0}, "LIF": {}}


def trials(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Returns input spikes ``[T, count, 20]`` and the side with more cues, 0 or 1."""
    sides = torch.rand(count, 1, generator=generator) * 0.6 + 0.2  # of a cue from the right
    sides = (torch.rand(count, CUES, generator=generator) < sides).long()
    rates = torch.zeros(STEPS, count, POPULATIONS, SIZE)  # in Hz
    for cue, side in enumerate(sides.T):
        begin = cue * (CUE + PAUSE)
        rates[begin : begin + CUE, torch.arange(count), side] = 100.0
    rates[-ANSWER:, :, 2] = 100.0
    rates[:, :, 3] = 10.0
    spikes = torch.rand(rates.shape, generator=generator) < rates / 1000
    return spikes.flatten(2).float(), (2 * sides.sum(1) > CUES).long()


class Counter(Recurrent):
    """Answers at the end; the loss is the mean cross entropy while it answers."""

    def error(self, y: Tensor, target: Tensor) -> Tensor:
        wrong = (y[-ANSWER:].softmax(-1) - one_hot(target, 2)) / ANSWER
        return torch.cat([torch.zeros_like(y[:-ANSWER]), wrong])

    def score(self, y: Tensor, target: Tensor) -> float:
        """Returns the share of right answers."""
        return float((y[-ANSWER:].mean(0).argmax(-1) == target).float().mean())


def make(learner: str, neuron: str, seed: int) -> Counter:
    """Returns a network that is to learn, of neurons ``"ALIF"``, which adapt, or ``"LIF"``."""
    pl.seed_everything(seed, verbose=False)
    rates = {"lr": 0.005, "penalty": 0.01, "target_rate": 10.0}
    return Counter(POPULATIONS * SIZE, NEURONS, 2, learner, **rates, **NEURON[neuron])


def learn(network: Counter, batches: int, seed: int) -> list[float]:
    """Trains on new trials, and returns the share of right answers in each batch."""
    generator = torch.Generator().manual_seed(seed)
    return network.learn((trials(BATCH, generator) for _ in range(batches)), seed)


def unseen(seed: int) -> tuple[Tensor, Tensor]:
    """Returns 1,024 trials that no network has seen, others for each seed."""
    return trials(1024, torch.Generator().manual_seed(10**6 + seed))


def right(network: Counter, seed: int = 0) -> float:
    """Returns the share of right answers in unseen trials."""
    x, target = unseen(seed)
    return network.score(network(x), target)


def learned_and_unseen(batches: int, seed: int) -> Split:
    """Returns the trials that a network of a seed learns from, ``[B, T, 20]``, and the unseen."""
    generator = torch.Generator().manual_seed(seed)
    seen, targets = zip(*(trials(BATCH, generator) for _ in range(batches)), strict=True)
    x, target = unseen(seed)
    return Split(torch.cat(seen, 1).transpose(0, 1), torch.cat(targets), x.transpose(0, 1), target)


def at_the_end(features: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Returns the mean of features while the network answers, ``[B, features]``."""
    return torch.cat([features(x.transpose(0, 1))[-ANSWER:].mean(0) for x in x.split(256)])


def by_traces(split: Split) -> float:
    """Returns what a linear readout of the inputs' traces of 500 ms reaches, without a network."""
    traces = partial(trace, decay=decay_factor(500.0, 1.0))
    return linear(seen_by(split, partial(at_the_end, traces)))


def by_last_cue(split: Split) -> float:
    """Returns what is reached by who sees the last cue only."""
    begin = (CUES - 1) * (CUE + PAUSE)
    cue = split.test_images[:, begin : begin + CUE].sum(1).unflatten(1, (POPULATIONS, SIZE)).sum(2)
    return share((cue[:, 1] > cue[:, 0]).long(), split.test_labels)


def draw(found: dict[tuple[str, str], list[list[float]]], path: str) -> None:
    """Draws the right answers of each neuron and learner over batches, averaged over ten."""
    figure = Figure(figsize=(9.6, 3.0), layout="constrained")
    for neuron, axes in zip(NEURON, figure.subplots(1, 2, sharey=True), strict=True):
        for learner, colour in zip(TITLES, ("C0", "C2", "C3"), strict=True):
            size = min(10, len(found[neuron, learner][0]))
            smooth = 100 * torch.tensor(found[neuron, learner]).unfold(1, size, size).mean(-1)
            batches = (torch.arange(smooth.shape[1]) + 0.5) * size
            curves(axes, batches, smooth, colour, TITLES[learner])
        axes.axhline(50.0, color="0.5", lw=0.8, ls="--")
        axes.set(title=neuron, xlabel="batch", ylim=(35, 102))
    figure.axes[0].set_ylabel("right answers, %")
    axes.legend(frameon=False, fontsize=8)
    save(figure, path, dpi=72)


def main() -> None:
    args = arguments(__doc__, __file__, short="one seed, three batches")
    batches = 3 if args.short else 100
    torch.set_num_threads(1)
    splits = [learned_and_unseen(batches, seed) for seed in range(args.seeds)]
    found, networks, reached, speeds = {}, {}, {}, {}
    print(f"right answers in 1,024 new trials after {batches} batches of {BATCH}:")
    for key in itertools.product(NEURON, TITLES):
        neuron, learner = key
        networks[key] = [make(learner, neuron, seed) for seed in range(args.seeds)]
        start = time.process_time()
        found[key] = [learn(each, batches, seed) for seed, each in enumerate(networks[key])]
        speeds[key] = args.seeds * batches * BATCH / (time.process_time() - start)
        reached[key] = spread([100 * right(each, seed) for seed, each in enumerate(networks[key])])
        print(f"  {neuron:4s} {TITLES[learner]:28s} {reached[key]}", flush=True)
    eprop = "ALIF", "symmetric"
    features = [partial(at_the_end, each.filtered) for each in networks[eprop]]
    refitted = [linear(seen_by(*each)) for each in zip(splits, features, strict=True)]
    print(f"  ALIF {REFITTED:28s} {spread(refitted)}")
    untrained = [partial(at_the_end, make("bptt", "ALIF", s).filtered) for s in range(args.seeds)]
    controls = {
        UNTRAINED: spread([linear_behind(*each) for each in zip(splits, untrained, strict=True)]),
        "traces of the inputs, linear readout": spread([by_traces(split) for split in splits]),
        "by the last cue": spread([by_last_cue(split) for split in splits]),
    }
    report(reached[eprop], speeds[eprop], controls, {"BPTT": reached["ALIF", "bptt"]})
    draw(found, args.picture)


if __name__ == "__main__":
    main()
