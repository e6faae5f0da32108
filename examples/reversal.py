"""Choices whose right answers change now and then, learned from a reward that comes late.

Ten cells spike for each of eight cues, and one of four neurons decides, in 10 ms. The reward, one
for a right answer, comes 20 ms after, when all is silent. The rule of ``cartpole.py`` keeps what
might be rewarded eligible; its reward is less the mean of the latest. In each block of trials,
every cue has another right answer. The result is the share of right answers after the first block.
Weights are bounded, so that neurons go on to try: a spike that is certain changes nothing.

The controls: what was learned in the first block and then kept; the same rule with an eligibility
of 1 ms; rewards of another game; a rate of 0. The simple method is a table of a value for each
answer to each cue, which knows what every reward was for; it moves towards them at a constant rate.
Rates and bounds are those that are best for a seed of their own.

    python examples/reversal.py [--seeds 5] [--picture reversal.png] [--short]
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from itertools import product

import torch
from _experiment import arguments, curves, report, save, spread
from cartpole import Neurons, Surprise
from matplotlib.figure import Figure
from torch import Tensor, nn

from lightning_accum import Cell, Clamp, RuleTrainer, attach_updater

CUES, ACTIONS, CELLS, STREAMS = 8, 4, 10, 8  # side by side
CHOICE, LATE, BLOCK, BLOCKS = 10, 20, 150, 6  # ms, ms, trials, blocks


def answers(seed: int) -> Tensor:
    """The right answer to each cue in each block, never that of the block before."""
    generator = torch.Generator().manual_seed(seed)
    steps = torch.randint(1, ACTIONS, (BLOCKS, CUES), generator=generator)
    return steps.cumsum(0) % ACTIONS


class Deciders:
    """Spiking neurons that learn by the rule."""

    def __init__(
        self, rate: float, strongest: float, eligible: float = 30.0, frozen: bool = False
    ) -> None:
        self.connection = nn.Linear(CUES * CELLS, ACTIONS, bias=False)
        nn.init.zeros_(self.connection.weight.requires_grad_(False))
        attach_updater(self.connection, "weight").register_constraint(Clamp(-strongest, strongest))
        self.neurons, self.frozen, self.mean = Neurons(compete=True), frozen, 0.0
        rule = Surprise(rate, tc_eligibility=eligible)
        self.trainer = RuleTrainer(rule, time_dim=0, batch_reduction="sum")
        self.trainer.register_cell("decide", Cell(self.connection, self.neurons))

    def decide(self, cues: Tensor) -> Tensor:
        self.trainer.clear()
        self.neurons.potential = torch.zeros(())
        likely = nn.functional.one_hot(cues, CUES).repeat_interleave(CELLS, 1) / 2
        spikes = (torch.rand(CHOICE, *likely.shape) < likely).float()
        spikes = torch.cat([spikes, torch.zeros(LATE, *likely.shape)])
        return self.neurons(self.connection(spikes))[CHOICE - 1].argmax(1)

    def learn(self, rewards: Tensor, trial: int) -> None:
        late = torch.zeros(CHOICE + LATE, STREAMS)
        late[-1] = rewards - self.mean
        self.mean += 0.02 * (float(rewards.mean()) - self.mean)
        if not (self.frozen and trial >= BLOCK):
            self.trainer(reward=late)
            self.trainer.update()


class Shuffled(Deciders):
    """The same, with the rewards of other games."""

    def learn(self, rewards: Tensor, trial: int) -> None:
        super().learn(rewards[torch.randperm(STREAMS)], trial)


class Table:
    """A value for each answer to each cue."""

    def __init__(self, rate: float, noise: float) -> None:
        self.values, self.rate, self.noise = torch.zeros(CUES, ACTIONS), rate, noise

    def decide(self, cues: Tensor) -> Tensor:
        self.cues, likely = cues, (self.values[cues] / self.noise).softmax(1)
        self.chosen = torch.multinomial(likely, 1).squeeze(1)
        return self.chosen

    def learn(self, rewards: Tensor, trial: int) -> None:
        for cue, chosen, reward in zip(self.cues, self.chosen, rewards, strict=True):
            self.values[cue, chosen] += self.rate * (reward - self.values[cue, chosen])


def play(learner: Deciders | Table, seed: int, blocks: int) -> Tensor:
    """The share of right answers in percent, by trial."""
    torch.manual_seed(seed)
    right, found = answers(seed), []
    for trial in range(blocks * BLOCK):
        cues = torch.randint(CUES, (STREAMS,))
        rewards = (learner.decide(cues) == right[trial // BLOCK, cues]).float()
        learner.learn(rewards, trial)
        found.append(100 * rewards.mean())
    return torch.stack(found)


SETTINGS = tuple(product((0.1, 0.3, 1.0), (0.04, 0.06, 0.1)))
LEARNERS: dict[str, tuple[Callable[..., Deciders | Table], tuple[tuple[float, float], ...]]] = {
    "the rule": (Deciders, SETTINGS),
    "kept from the first block": (partial(Deciders, frozen=True), SETTINGS),
    "eligible for 1 ms": (partial(Deciders, eligible=1.0), SETTINGS),
    "rewards of other games": (Shuffled, SETTINGS),
    "rate 0": (Deciders, ((0.0, 1.0),)),
    "table of values": (Table, tuple(product((0.3, 0.6, 1.0), (0.05, 0.1, 0.2)))),
}


def main() -> None:
    args = arguments(__doc__, __file__, short="one seed, two blocks, one setting", seeds=5)
    torch.set_num_threads(1)
    blocks, found, took = 2 if args.short else BLOCKS, dict[str, Tensor](), 0.0
    print("rate, and bound of weights or noise of decisions, by a seed of their own:")
    for name, (make, settings) in LEARNERS.items():
        start = time.process_time()
        some = settings[: 1 if args.short else None]
        late = {each: play(make(*each), 1000, blocks)[BLOCK:].mean() for each in some}
        best = max(late, key=late.__getitem__)
        print(f"  {name}: {best[0]:g}, {best[1]:g}")
        found[name] = torch.stack([play(make(*best), i, blocks) for i in range(args.seeds)])
        took = took or time.process_time() - start
    shares = {name: spread(runs[:, BLOCK:].mean(1).tolist()) for name, runs in found.items()}
    (_, result), *controls, simple = shares.items()
    trials = (args.seeds + len(some)) * blocks * BLOCK * STREAMS
    report(result, trials / took, dict(controls), dict([simple]))
    axes = Figure(figsize=(6, 3), layout="constrained").subplots()
    for i, (name, runs) in enumerate(found.items()):
        smooth = runs.unfold(1, 10, 10).mean(-1)
        curves(axes, range(5, blocks * BLOCK, 10), smooth, f"C{i}", name)
    axes.set(xlabel="trials", ylabel="right answers (%)")
    axes.figure.legend(frameon=False, fontsize=7, ncols=3, loc="outside lower center")
    save(axes.figure, args.picture, 120)


if __name__ == "__main__":
    main()
