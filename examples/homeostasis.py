"""Neurons that are silent, or fire too much, find their target rate, and find it again.

Leaky integrate-and-fire neurons get Poisson input through weights that are too small for half of
them and too large for the others. `Homeostasis` moves their biases, or in a second experiment their
weights, towards the drive that makes them fire at 20 Hz (Turrigiano & Nelson 2004,
doi:10.1038/nrn1327). Halfway the input doubles its rate: the neurons fire too much, and return.
A control runs the same network without the rule.

    python examples/homeostasis.py [--picture homeostasis.png] [--short]
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import torch
from _experiment import Short
from torch import Tensor, nn

from lightning_accum import Cell, Clamp, Homeostasis, RuleTrainer, attach_updater
from lightning_accum.functional import poisson_encode
from lightning_accum.nn import LIF

TARGET = 20.0  # Hz
INPUTS = 100
INPUT_RATE = 10.0  # Hz, twice that in the second half
NEURONS = 20
SAMPLES = 8  # of the network, each with an input of its own
WINDOW = 250  # ms between two changes
TOO_SMALL, TOO_LARGE = 0.6, 2.0  # mean drive before learning, as a share of the threshold


class Course(NamedTuple):
    """Rates in Hz and the parameter that is moved, of every window of an experiment."""

    rates: Tensor  # [windows, NEURONS]; the first half of the neurons begins silent
    moved: Tensor  # after each window, the mean over a neuron's inputs, [windows, NEURONS]


def run(
    seconds: float, params: str | None, lr: float = 5e-4, seed: int = 0, target: float = TARGET
) -> Course:
    """Simulates the network, with input that doubles its rate halfway.

    Args:
        seconds: simulated time.
        params: which parameter is moved, ``"bias"`` or ``"weight"``; ``None`` for none.
        lr: what one spike takes from it.
        seed: of the weights and the input.
        target: rate, in Hz.
    """
    generator = torch.Generator().manual_seed(seed)
    connection = nn.Linear(INPUTS, NEURONS)
    neurons = LIF(NEURONS, tc_mem=20.0, v_threshold=1.0, time_dim=0)
    # Input adds weight * rate to the potential in every ms, which sums up over the time constant.
    drive = torch.tensor([TOO_SMALL, TOO_LARGE]).repeat_interleave(NEURONS // 2)
    weight = (drive / (INPUTS * INPUT_RATE / 1000 * neurons.tc_mem))[:, None]
    with torch.no_grad():
        nn.init.uniform_(connection.weight, 0.5, 1.5, generator=generator).mul_(weight)
        nn.init.zeros_(connection.bias)
    trainer = RuleTrainer(Homeostasis(lr, target), params=[params or "bias"], time_dim=0)
    trainer.register_cell("layer", Cell(connection, neurons))
    attach_updater(connection, "weight").register_constraint(Clamp(min=0.0), "weight")
    trainer.train(params is not None)  # otherwise nothing is recorded

    windows = round(1000 * seconds / WINDOW)
    rates, moved = [], []
    for window in range(windows):
        rate = INPUT_RATE if window < windows // 2 else 2 * INPUT_RATE
        shape = torch.full((SAMPLES, INPUTS), rate / 1000)
        spikes = neurons(connection(poisson_encode(shape, WINDOW, generator=generator).float()))
        if params is not None:
            trainer()
            trainer.update()
        rates.append(spikes.mean((0, 1)) * 1000)
        parameter = getattr(connection, params or "bias").detach()
        moved.append(parameter.view(NEURONS, -1).mean(1))
    return Course(torch.stack(rates), torch.stack(moved))


def phases(rates: Tensor) -> dict[str, Tensor]:
    """Rates ``[NEURONS]`` at the beginning, before and after the input doubles, and at the end.

    Args:
        rates: ``[windows, NEURONS]``.
    """
    half, tenth = len(rates) // 2, len(rates) // 10
    return {
        "first": rates[0],
        "before": rates[half - tenth : half].mean(0),
        "doubled": rates[half],
        "end": rates[-tenth:].mean(0),
    }


def draw(courses: dict[str, Course], path: str) -> None:
    """Rates over time, a panel for each experiment."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 3.2), layout="constrained")
    for axes, (title, course) in zip(
        figure.subplots(1, len(courses), sharey=True), courses.items(), strict=True
    ):
        seconds = (torch.arange(len(course.rates)) + 0.5) * WINDOW / 1000
        sides = course.rates.split(NEURONS // 2, dim=1)
        for rates, label, colour in zip(
            sides, ("too small", "too large"), ("C0", "C3"), strict=True
        ):
            axes.plot(seconds, rates, color=colour, lw=0.3, alpha=0.3)
            axes.plot(seconds, rates.mean(1), color=colour, lw=1.5, label=f"drive {label} at first")
        axes.axhline(TARGET, color="0.4", lw=0.8, ls="--")
        axes.axvline(seconds[-1] / 2, color="0.6", lw=0.8, ls=":")
        axes.set(title=title, xlabel="time, s")
    figure.axes[0].set(ylabel="rate, Hz", ylim=(-5, 175))
    figure.axes[0].legend(frameon=False, fontsize=8, loc="upper left")
    figure.savefig(path, dpi=90)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="simulated")
    parser.add_argument("--picture", default="homeostasis.png", help="where to draw to")
    parser.add_argument("--short", action=Short, help="30 seconds")
    args = parser.parse_args()
    if args.short:
        args.seconds = 30.0
    torch.set_num_threads(1)

    experiments = {"biases move": "bias", "weights move": "weight", "nothing moves": None}
    courses = {name: run(args.seconds, params) for name, params in experiments.items()}
    print(f"rates of {NEURONS} neurons in Hz, the target is {TARGET:g}:")
    for name, course in courses.items():
        print(f"{name}:")
        seen = {phase: rates.split(NEURONS // 2) for phase, rates in phases(course.rates).items()}
        for at, side in enumerate(("too small", "too large")):
            means = ", ".join(f"{phase} {rates[at].mean():.1f}" for phase, rates in seen.items())
            print(f"  drive {side} at first: {means}")
    draw(courses, args.picture)
    print(f"drawn to {args.picture}")


if __name__ == "__main__":
    main()
