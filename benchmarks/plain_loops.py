"""Samples per second of a training step of the demo's network.

Compared with two loops over time that compute the same change: one makes an outer product for each
sample (``[batch, out, in]``), the other one matrix product a step.

    python benchmarks/plain_loops.py [--smoke]
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

import torch
from _measure import middle, peak_memory, print_peak, setting, table, timed
from torch import Tensor, nn

from lightning_accum import STDP, Cell, RuleTrainer
from lightning_accum.functional import decay_factor
from lightning_accum.nn import AdaptiveLIF, PoissonEncoder, WinnerTakeAll

# name: inputs, neurons, batch, steps, highest input rate in Hz
LOADS = {
    "digits, 64 → 100": (64, 100, 16, 100, 500.0),
    "MNIST-sized, 784 → 100": (784, 100, 32, 250, 60.0),
    "MNIST-sized, 784 → 400": (784, 400, 32, 250, 60.0),
}
SMOKE = {"tiny, 16 → 8": (16, 8, 4, 10, 200.0)}
LR_POST, LR_PRE, TC = 0.01, -0.005, 20.0


class Network(nn.Module):
    """Poisson input, a plastic connection, and neurons that compete."""

    def __init__(self, inputs: int, neurons: int, steps: int, rate: float, whole: bool) -> None:
        super().__init__()
        self.whole = whole
        self.encoder = PoissonEncoder(steps, max_rate=rate, seed=0)
        self.fc = nn.Linear(inputs, neurons, bias=False)
        nn.init.uniform_(self.fc.weight, 0.0, 20.0 / inputs)
        self.lif = AdaptiveLIF(
            neurons, theta_plus=0.1, time_dim=0 if whole else None, inhibition=WinnerTakeAll(5)
        )

    @torch.no_grad()
    def forward(self, spikes: Tensor) -> Tensor:
        self.lif.reset()
        if self.whole:
            return self.lif(self.fc(spikes.float()))
        return torch.stack([self.lif(self.fc(step.float())) for step in spikes])


class Fused:
    """The package: recorded by monitors, time folded into one product."""

    def __init__(self, inputs: int, neurons: int, steps: int, rate: float) -> None:
        self.net = Network(inputs, neurons, steps, rate, whole=True)
        self.trainer = RuleTrainer(STDP(LR_POST, LR_PRE, TC, TC), time_dim=0, carry=False)
        self.trainer.register_cell("enc", Cell(self.net.fc, self.net.lif))
        self.simulate_alone = Network(inputs, neurons, steps, rate, whole=True)

    def simulation(self, spikes: Tensor) -> Tensor:
        return self.simulate_alone(spikes)

    def step(self, spikes: Tensor) -> None:
        self.net(spikes)
        self.trainer()
        self.trainer.update()

    @property
    def weight(self) -> Tensor:
        return self.net.fc.weight


class Naive:
    """A loop over time with traces, and an outer product in every step."""

    def __init__(
        self, inputs: int, neurons: int, steps: int, rate: float, per_sample: bool
    ) -> None:
        self.net = Network(inputs, neurons, steps, rate, whole=False)
        self.per_sample = per_sample

    def simulation(self, spikes: Tensor) -> Tensor:
        return self.net(spikes)

    @torch.no_grad()
    def step(self, spikes: Tensor) -> None:
        net, a = self.net, decay_factor(TC)
        net.lif.reset()
        x_pre = torch.zeros(spikes.shape[1:])
        x_post = torch.zeros(spikes.shape[1], net.fc.out_features)
        delta = torch.zeros_like(net.fc.weight)
        for step in spikes:
            pre = step.float()
            post = net.lif(net.fc(pre))
            x_pre, x_post = a * x_pre + pre, a * x_post + post
            if self.per_sample:
                delta += LR_POST * torch.einsum("bo,bi->boi", post, x_pre).mean(0)
                delta += LR_PRE * torch.einsum("bo,bi->boi", x_post, pre).mean(0)
            else:
                delta += (LR_POST * post.T @ x_pre + LR_PRE * x_post.T @ pre) / spikes.shape[1]
        net.fc.weight += delta

    @property
    def weight(self) -> Tensor:
        return self.net.fc.weight


FORMS: dict[str, Callable[..., Fused | Naive]] = {
    "fused": Fused,
    "a product per step": lambda *load: Naive(*load, per_sample=False),
    "[batch, out, in] per step": lambda *load: Naive(*load, per_sample=True),
}


def build(form: str, load: tuple[int, int, int, int, float]) -> tuple[Fused | Naive, Tensor]:
    inputs, neurons, batch, steps, rate = load
    torch.manual_seed(0)
    made = FORMS[form](inputs, neurons, steps, rate)
    images = torch.rand(batch, inputs, generator=torch.Generator().manual_seed(1)) ** 3
    return made, made.net.encoder(images)


def agree(load: tuple[int, int, int, int, float]) -> None:
    """Every form starts from the same weights and has to end at the same ones."""
    ends = []
    for form in FORMS:
        made, spikes = build(form, load)
        made.step(spikes)
        ends.append(made.weight.detach())
    for form, end in zip(FORMS, ends, strict=True):
        error = (end - ends[0]).abs().max().item()
        if error > 1e-5 * ends[0].abs().max().item():
            raise AssertionError(f"Form `{form}` differs from the fused one by {error}.")


def memory_of(form: str, name: str) -> None:
    made, spikes = build(form, {**LOADS, **SMOKE}[name])
    print_peak(lambda: made.step(spikes))


def measure(name: str, load: tuple[int, int, int, int, float], repeats: int) -> None:
    agree(load)
    built = {form: build(form, load) for form in FORMS}
    times: dict[tuple[str, str], list[float]] = {}
    for turn in range(repeats + 1):  # the first turn warms up
        for form, (made, spikes) in built.items():
            for part in ("simulation", "step"):
                call = getattr(made, part)
                elapsed = timed(lambda call=call, spikes=spikes: call(spikes))
                if turn:
                    times.setdefault((form, part), []).append(elapsed)
    batch = load[2]
    print(f"\n### {name}, batch {batch}, {load[3]} steps, input density "
          f"{built['fused'][1].float().mean():.3f}\n")  # fmt: skip
    rows = []
    for form in FORMS:
        simulation = statistics.median(times[form, "simulation"])
        steps = times[form, "step"]
        step = statistics.median(steps)
        peak = peak_memory(__file__, form, name)
        rows.append(
            [form, f"{simulation:.1f}", middle(steps), f"{step - simulation:.1f}",
             f"{1e3 * batch / step:.0f}", f"{peak:.0f}"]
        )  # fmt: skip
    table(["form", "simulation ms", "step ms", "plasticity ms", "samples/s", "peak MB"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="tiny loads, just to see it run")
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--memory-of", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(2)
    if args.memory_of:
        memory_of(*args.memory_of)
        return
    print(setting())
    for name, load in (SMOKE if args.smoke else LOADS).items():
        measure(name, load, 2 if args.smoke else args.repeats)


if __name__ == "__main__":
    main()
