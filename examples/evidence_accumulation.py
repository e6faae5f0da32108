"""A recurrent spiking network counts cues and remembers the count, if its neurons adapt.

The task is a small form of that of Bellec et al. (2020, doi:10.1038/s41467-020-17236-y). Three cues
of 40 ms come from the left or from the right, 20 ms apart. After a delay of 200 ms a signal asks on
which side there were more. All inputs are Poisson spikes, and every trial is new. An error exists
only in the last 50 ms, when a readout answers.

A membrane with a time constant of 20 ms forgets the cues within the delay, and so do the
eligibility traces of e-prop. The threshold of an adaptive neuron, with one of 500 ms, remembers
both its spikes and the eligibility. Side by side: e-prop with the readout's weights as feedback and
with fixed random feedback, and backpropagation through time by autograd, of 50 neurons that adapt
and of 50 that do not, from the same first weights with the same optimizer.

    python examples/evidence_accumulation.py [--picture evidence_accumulation.png] [--short]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import lightning.pytorch as pl
import torch
from _recurrent import LEARNERS, Recurrent
from _result import report, spread
from torch import Tensor, nn

CUES, CUE, PAUSE, DELAY, ANSWER = 3, 40, 20, 200, 50  # how many, and how long in ms
STEPS = CUES * (CUE + PAUSE) + DELAY + ANSWER
POPULATIONS, SIZE = 4, 5  # left, right, the question, noise; inputs in each
NEURONS, BATCH = 50, 32
ADAPTIVE = {"beta": 0.1, "tc_adaptation": 500.0}
NEURON = {"ALIF": ADAPTIVE, "LIF": {}}
TITLES = {
    "symmetric": "e-prop, symmetric feedback",
    "random": "e-prop, random feedback",
    "bptt": "backpropagation through time",
}


def trials(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Returns input spikes ``[T, count, 20]`` and the side with more cues, 0 or 1.

    Args:
        count: number of trials.
        generator: of sides and spikes.
    """
    sides = torch.rand(count, 1, generator=generator) * 0.6 + 0.2  # of a cue from the right
    sides = (torch.rand(count, CUES, generator=generator) < sides).long()
    rates = torch.zeros(STEPS, count, POPULATIONS)  # in Hz
    for cue, side in enumerate(sides.T):
        begin = cue * (CUE + PAUSE)
        rates[begin : begin + CUE, torch.arange(count), side] = 100.0
    rates[-ANSWER:, :, 2] = 100.0
    rates[:, :, 3] = 10.0
    rates = rates.repeat_interleave(SIZE, -1)
    spikes = torch.rand(rates.shape, generator=generator) < rates / 1000
    return spikes.float(), (2 * sides.sum(1) > CUES).long()


class Counter(Recurrent):
    """Answers at the end; the loss is the mean cross entropy while it answers."""

    def error(self, y: Tensor, target: Tensor) -> Tensor:
        error = torch.zeros_like(y)
        wrong = y[-ANSWER:].softmax(-1) - nn.functional.one_hot(target, 2)
        error[-ANSWER:] = wrong / ANSWER
        return error

    def score(self, y: Tensor, target: Tensor) -> float:
        """Returns the share of right answers."""
        return float((y[-ANSWER:].mean(0).argmax(-1) == target).float().mean())


def make(learner: str, neuron: str, seed: int) -> Counter:
    """Returns a network that is to learn.

    Args:
        learner: one of ``LEARNERS``.
        neuron: ``"ALIF"`` for neurons that adapt, ``"LIF"`` for others.
        seed: of the first weights.
    """
    pl.seed_everything(seed, verbose=False)
    return Counter(
        POPULATIONS * SIZE,
        NEURONS,
        2,
        learner,
        lr=0.005,
        lr_rate=0.01,
        target_rate=10.0,
        **NEURON[neuron],
    )


def learn(network: Counter, batches: int, seed: int) -> list[float]:
    """Trains on new trials, and returns the share of right answers in each batch.

    Args:
        network: the network.
        batches: number of batches.
        seed: of the trials.
    """

    def stream() -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(seed)
        for _ in range(batches):
            yield trials(BATCH, generator)

    return network.learn(stream(), seed)


@torch.no_grad()
def right(network: Counter, count: int = 256) -> float:
    """Returns the share of right answers in trials that the network has not seen.

    Args:
        network: the network.
        count: number of trials.
    """
    x, target = trials(count, torch.Generator().manual_seed(10**6))
    return network.score(network(x), target)


def draw(found: dict[tuple[str, str], list[list[float]]], path: str) -> None:
    """Draws the right answers over batches: mean of the seeds, and each of them.

    Args:
        found: for each neuron and learner, the shares of each seed.
        path: where to draw to.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 3.0), layout="constrained")
    panels = dict(zip(NEURON, figure.subplots(1, len(NEURON), sharey=True), strict=True))
    colours = dict(zip(LEARNERS, ("C0", "C2", "C3"), strict=True))
    for (neuron, learner), runs in found.items():
        shares = torch.tensor(runs)
        size = min(10, shares.shape[1])  # of the groups of batches to average over
        smooth = 100 * shares.unfold(1, size, size).mean(-1)
        batches = (torch.arange(smooth.shape[1]) + 0.5) * size
        panels[neuron].plot(batches, smooth.T, color=colours[learner], lw=0.4)
        panels[neuron].plot(
            batches, smooth.mean(0), color=colours[learner], lw=1.8, label=TITLES[learner]
        )
    for neuron, axes in panels.items():
        axes.axhline(50.0, color="0.5", lw=0.8, ls="--")
        axes.set(title=neuron, xlabel="batch", ylim=(35, 102))
    panels["ALIF"].set_ylabel("right answers, %")
    panels["LIF"].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=72)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--picture", default="evidence_accumulation.png", help="where to draw to")
    parser.add_argument("--short", action="store_true", help="one seed, three batches")
    args = parser.parse_args()
    if args.short:
        args.seeds, args.batches = 1, 3
    torch.set_num_threads(1)

    found, results = {}, {}
    print(f"right answers in 256 new trials after {args.batches} batches of {BATCH}, each seed:")
    for neuron in NEURON:
        for learner in LEARNERS:
            runs, shares, seconds = [], [], 0.0
            for seed in range(args.seeds):
                network = make(learner, neuron, seed)
                start = time.process_time()
                runs.append(learn(network, args.batches, seed))
                seconds += time.process_time() - start
                shares.append(right(network))
            found[neuron, learner] = runs
            results[neuron, learner] = ([100 * share for share in shares], seconds)
            figures = " ".join(f"{100 * share:5.1f} %" for share in shares)
            print(f"  {neuron:4s} {TITLES[learner]:28s} {figures}")
    shares, seconds = results["ALIF", "symmetric"]
    report(spread(shares), args.seeds * args.batches * BATCH / seconds)
    draw(found, args.picture)
    print(f"drawn to {args.picture}")


if __name__ == "__main__":
    main()
