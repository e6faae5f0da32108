"""A spiking network learns XOR from reward alone, by MSTDP and by MSTDPET.

The experiment is the rate-coded one of Florian (2007, doi:10.1162/neco.2007.19.6.1468). 60 input,
60 hidden and one output neuron; half of the inputs code for either bit, by Poisson spikes at 40 Hz
for one and by silence for zero; every other input is inhibitory. In an epoch the four patterns are
presented for 500 ms each. Every output spike is rewarded where the answer should be one, and
punished where it should be zero; nothing else tells the network what to do. It has learned if {0,1}
and {1,0} both make the output fire more than {1,1}; {0,0} makes it fire not at all. The controls
have the same rewards, but dealt to the four patterns anew in every epoch.

Time constants, bounds and MSTDPET's rate are the paper's, as two published reproductions have them;
MSTDP's rate was not checked. What differs: the four patterns are presented side by side, as a
batch, instead of one after the other; and changes are applied every 50 ms instead of every ms, for
the weights stand still in a window of the rule.

    python examples/reward_xor.py [--picture reward_xor.png] [--short]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch
from _result import report
from torch import Tensor, nn
from torch.nn.functional import pad

from lightning_accum import MSTDP, MSTDPET, Cell, Rule, attach_updater
from lightning_accum.functional import poisson_encode
from lightning_accum.nn import LIF

PATTERNS = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
XOR = torch.tensor([-1.0, 1.0, 1.0, -1.0])  # reward of an output spike
INPUTS, HIDDEN = 60, 60
RATE = 40.0  # of an input that codes for one, in Hz
PRESENTED = 500  # ms, of 1 ms a step
WINDOW = 50  # ms between two changes of the weights
THRESHOLD = 16.0  # above rest, in mV
STRONGEST = 5.0  # weight, in mV

RULES: dict[str, Callable[[], Rule]] = {
    "MSTDP": partial(MSTDP, 0.1, -0.1, batch_reduction="sum", time_dim=0),
    "MSTDPET": partial(
        MSTDPET, 0.625, -0.625, tc_eligibility=25.0, batch_reduction="sum", time_dim=0
    ),
}


class Between:
    """A constraint: every weight stays excitatory or inhibitory, and below the strongest.

    Args:
        sign: 1 for excitatory inputs and -1 for inhibitory ones, ``[in]``.
    """

    def __init__(self, sign: Tensor) -> None:
        self.low, self.high = (STRONGEST * sign).clamp(max=0), (STRONGEST * sign).clamp(min=0)

    def __call__(self, param: Tensor) -> None:
        param.clamp_(self.low, self.high)


class Synapses(nn.Linear):
    """A connection whose weights are random within bounds.

    Args:
        sign: of each input, ``[in]``.
        outputs: how many.
        generator: of the weights.
    """

    def __init__(self, sign: Tensor, outputs: int, generator: torch.Generator) -> None:
        super().__init__(len(sign), outputs, bias=False)
        nn.init.uniform_(self.weight, 0.0, STRONGEST, generator=generator)
        with torch.no_grad():
            self.weight.mul_(sign)
        attach_updater(self, "weight").register_constraint(Between(sign))


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


class Network(nn.Sequential):
    """Input → hidden neurons → output neuron, ``[T, B, INPUTS]`` to ``[T, B, 1]``."""

    def __init__(self, generator: torch.Generator) -> None:
        every_other = torch.tensor([1.0, -1.0]).repeat(INPUTS // 2)
        super().__init__(
            Synapses(every_other, HIDDEN, generator),
            Delay(),
            LIF(HIDDEN, tc_mem=20.0, v_threshold=THRESHOLD, time_dim=0),
            Synapses(torch.ones(HIDDEN), 1, generator),
            Delay(),
            LIF(1, tc_mem=20.0, v_threshold=THRESHOLD, time_dim=0),
        )

    def reset(self) -> None:
        for module in self:
            if isinstance(module, (Delay, LIF)):
                module.reset()


@torch.no_grad()
def learn(
    rule: Rule, epochs: int, seed: int, rewards: Tensor = XOR, shuffled: bool = False
) -> Tensor:
    """Trains a network, and gives its output's rate for each pattern in Hz, ``[epochs, 4]``.

    Args:
        rule: without cells; both connections learn by it.
        epochs: presentations of all four patterns.
        seed: of the weights, the input, and the order of shuffled rewards.
        rewards: of an output spike, for each pattern.
        shuffled: whether rewards are dealt to the patterns anew in each epoch.
    """
    generator = torch.Generator().manual_seed(seed)
    network = Network(generator)
    rule.register_cell("hidden", Cell(network[0], network[2]))
    rule.register_cell("output", Cell(network[3], network[5]))
    intensity = PATTERNS.repeat_interleave(INPUTS // 2, 1)
    rates = []
    for _ in range(epochs):
        network.reset()
        rule.clear()
        dealt = rewards[torch.randperm(4, generator=generator)] if shuffled else rewards
        spikes = poisson_encode(intensity, PRESENTED, RATE / 1000, generator).float()
        output = torch.zeros(4)
        for window in spikes.split(WINDOW):
            answers = network(window).squeeze(-1)
            rule(reward=answers * dealt)  # [T, B], for both connections
            rule.update()
            output += answers.sum(0)
        rates.append(output / PRESENTED * 1000)
    return torch.stack(rates)


def final(rates: Tensor) -> Tensor:
    """Rates over the last ten epochs, ``[..., 4]`` of ``[..., epochs, 4]``."""
    return rates[..., -10:, :].mean(-2)


def learned(rates: Tensor) -> Tensor:
    """Whether XOR was learned: both patterns that differ make more spikes than {1,1} and {0,0}.

    Args:
        rates: ``[..., epochs, 4]``.
    """
    zero, right, left, both = final(rates).unbind(-1)
    return torch.minimum(right, left) > torch.maximum(zero, both)


def draw(found: dict[str, Tensor], path: str) -> None:
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
            lines = smooth[..., pattern]
            axes.plot(epochs, lines.T, color=colour, lw=0.4)
            label = "{{{},{}}}".format(*bits)
            axes.plot(epochs, lines.mean(0), color=colour, lw=1.8, label=label)
        axes.set(title=title, xlabel="epoch")
    figure.axes[0].set_ylabel("rate of the output, Hz")
    figure.axes[-1].legend(frameon=False, fontsize=8, loc="upper right")
    figure.savefig(path, dpi=72)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--controls", type=int, default=2, help="seeds with shuffled rewards")
    parser.add_argument("--picture", default="reward_xor.png", help="where to draw to")
    parser.add_argument("--short", action="store_true", help="one seed, 25 epochs")
    args = parser.parse_args()
    if args.short:
        args.seeds, args.controls, args.epochs = 1, 1, 25
    torch.set_num_threads(1)

    found = {}
    print(f"output rates in Hz for XOR's patterns, the last 10 of {args.epochs} epochs:")
    print(f"  {'':20s} " + " ".join(f"{{{a:.0f},{b:.0f}}}" for a, b in PATTERNS) + "  learned")
    start = time.process_time()
    for shuffled, seeds in ((False, args.seeds), (True, args.controls)):
        for name, make in RULES.items():
            title = f"{name}, shuffled" if shuffled else name
            runs = [learn(make(), args.epochs, seed, shuffled=shuffled) for seed in range(seeds)]
            rates = found[title] = torch.stack(runs)
            means = " ".join(f"{rate:5.0f}" for rate in final(rates).mean(0))
            print(f"  {title:20s} {means}  {int(learned(rates).sum())} of {seeds} seeds")
    samples = 4 * args.epochs * sum(len(rates) for rates in found.values())
    times = ", ".join(f"{name} {int(learned(found[name]).sum())}" for name in RULES)
    result = f"seeds that learned, of {args.seeds}: {times}"
    report(result, samples / (time.process_time() - start))
    draw(found, args.picture)
    print(f"drawn to {args.picture}")


if __name__ == "__main__":
    main()
