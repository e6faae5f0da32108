"""Measures the STDP window of rules through the rules themselves, against closed forms.

Input i of a neuron fires in step i and in no other, so that the raster of all inputs is the
identity matrix, and the neuron fires at prescribed times. One window then holds every spike-time
difference Δt at once, one a synapse, and the change of the weights is the curve Δw(Δt). Beside the
isolated pair, for which triplet terms vanish and all choices of pairs are one, there are two
postsynaptic spikes in a row and two presynaptic ones, for which that is not so.

    python examples/stdp_window.py [--picture stdp_window.png] [--short]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from _experiment import Short
from torch import Tensor, nn

from lightning_accum import STDP, Cell, KernelSTDP, Rule, RuleTrainer, TripletSTDP

REACH = 80.0  # largest |Δt|, in ms
GAP = 30.0  # between the two spikes of a doublet, in ms
PROTOCOLS = {
    "one pair": (1, 1),
    "two postsynaptic spikes": (1, 2),
    "two presynaptic spikes": (2, 1),
}

PAIR = {"lr_post": 0.010, "lr_pre": -0.006, "tc_post": 34.0, "tc_pre": 17.0}
TRIPLET = {
    **{"lr_post_pair": 0.010, "lr_pre_pair": -0.006, "tc_post_fast": 34.0, "tc_pre_fast": 17.0},
    **{"lr_post_triplet": 0.012, "lr_pre_triplet": -0.005},
    **{"tc_post_slow": 40.0, "tc_pre_slow": 100.0},
}


class Told(nn.Module):
    """A neuron that fires at prescribed times, whatever its input.

    Args:
        spikes: ``[T, 1, 1]``.
    """

    def __init__(self, spikes: Tensor) -> None:
        super().__init__()
        self.register_buffer("spikes", spikes)

    def forward(self, current: Tensor) -> Tensor:
        return self.spikes


def measure(rule: Rule, pre: Tensor, post: Tensor, **options: Any) -> Tensor:
    """The change ``[N]`` that a rule makes of the weights from N inputs to one neuron.

    Args:
        rule: the rule.
        pre: spikes of the inputs, ``[T, N]``.
        post: spikes of the neuron, ``[T]``.
        **options: of running the rule, such as ``dt``.
    """
    connection = nn.Linear(pre.shape[1], 1, bias=False, dtype=torch.float64)
    nn.init.zeros_(connection.weight)
    neuron = Told(post.double()[:, None, None])
    trainer = RuleTrainer(rule, time_dim=0, **options)
    trainer.register_cell("synapses", Cell(connection, neuron))
    neuron(connection(pre.double()[:, None]))
    trainer()
    trainer.update()
    return connection.weight.detach()[0]


class Protocol(NamedTuple):
    """Spikes of a protocol, and when they are: every input has its own Δt."""

    delta: Tensor  # of the first postsynaptic from the last presynaptic spike, in ms, [N]
    pre: Tensor  # [T, N]
    post: Tensor  # [T]
    pre_times: Tensor  # in ms, [N, spikes of one input]
    post_times: Tensor  # in ms, [spikes]


def protocol(pre_spikes: int, post_spikes: int, dt: float) -> Protocol:
    """One presynaptic spike and one postsynaptic one, at all Δt; or two of either."""
    reach, gap = round(REACH / dt), round(GAP / dt)
    inputs = 2 * reach + 1
    steps = inputs + 2 * gap
    raster = torch.zeros(steps, inputs)
    raster[gap : gap + inputs] = torch.eye(inputs)
    last = torch.arange(gap, gap + inputs)
    first_post = gap + reach
    pre_times = torch.stack([last - gap * k for k in range(pre_spikes)], 1)
    post_times = torch.tensor([first_post + gap * k for k in range(post_spikes)])
    pre = sum(raster.roll(-gap * k, 0) for k in range(pre_spikes))
    post = torch.zeros(steps)
    post[post_times] = 1.0
    delta = (first_post - last).double() * dt
    return Protocol(delta, pre, post, pre_times.double() * dt, post_times.double() * dt)


def ages(spikes: Tensor, at: Tensor, mode: str, own: bool = True) -> Tensor:
    """How long before each time the spikes were, ``[..., times, spikes]``; never is infinite.

    Args:
        spikes: their times, ``[..., spikes]``.
        at: the times, ``[..., times]``.
        mode: ``"cumulative"`` for the ages of all earlier spikes, ``"nearest"`` for the latest's.
        own: whether a spike at that very time counts.
    """
    age = at.unsqueeze(-1) - spikes.unsqueeze(-2)
    age = age.masked_fill(age < 0 if own else age <= 0, torch.inf)
    return age.amin(-1, keepdim=True) if mode == "nearest" else age


def pair_form(seen: Protocol, mode: str) -> Tensor:
    """Pair STDP: exponentials of spike-time differences, summed over pairs."""
    on_post = torch.exp(-ages(seen.pre_times, seen.post_times, mode) / PAIR["tc_pre"])
    on_pre = torch.exp(-ages(seen.post_times, seen.pre_times, mode) / PAIR["tc_post"])
    return PAIR["lr_post"] * on_post.sum((-2, -1)) + PAIR["lr_pre"] * on_pre.sum((-2, -1))


def triplet_form(seen: Protocol, mode: str) -> Tensor:
    """Triplet STDP (Pfister & Gerstner 2006, eqs. 3 and 4), for any few spikes."""
    h, pre, post = TRIPLET, seen.pre_times, seen.post_times

    def trace(spikes: Tensor, at: Tensor, tc: float, own: bool = True) -> Tensor:
        return torch.exp(-ages(spikes, at, mode, own) / tc).sum(-1)

    slow_post = trace(post, post, h["tc_post_slow"], own=False)
    slow_pre = trace(pre, pre, h["tc_pre_slow"], own=False)
    on_post = h["lr_post_pair"] + h["lr_post_triplet"] * slow_post
    on_pre = h["lr_pre_pair"] + h["lr_pre_triplet"] * slow_pre
    on_post = on_post * trace(pre, post, h["tc_pre_fast"])
    on_pre = on_pre * trace(post, pre, h["tc_post_fast"])
    return on_post.sum(-1) + on_pre.sum(-1)


def hat(delta: Tensor) -> Tensor:
    """A kernel in the shape of a hat: potentiation near coincidence, depression around it."""
    square = (delta / 15.0) ** 2
    return 0.010 * (1 - square) * torch.exp(-square / 2)


def kernel_form(seen: Protocol) -> Tensor:
    """Kernel STDP: the kernel of each spike's difference from the other side's latest one."""
    on_post = ages(seen.pre_times, seen.post_times, "nearest")
    on_pre = ages(seen.post_times, seen.pre_times, "nearest")
    on_pre = on_pre.masked_fill(on_pre == 0, torch.inf)  # is a pair once
    pairs = torch.cat([on_post.flatten(1), -on_pre.flatten(1)], 1)
    return hat(pairs).nan_to_num().sum(1)  # of an infinite difference it is 0 * inf


# A rule, and what it should give: for another rule, add a line and its closed form.
RULES: dict[str, tuple[Rule, Callable[[Protocol], Tensor]]] = {
    f"{name}, {mode}": (rule(**rates, trace_mode=mode), partial(form, mode=mode))
    for name, rule, rates, form in (
        ("pairs", STDP, PAIR, pair_form),
        ("triplets", TripletSTDP, TRIPLET, triplet_form),
    )
    for mode in ("cumulative", "nearest")
}
RULES["kernel, a hat"] = (KernelSTDP(hat), kernel_form)


class Curve(NamedTuple):
    """The change of the weight over Δt, measured through the rule and in closed form."""

    delta: Tensor
    measured: Tensor
    expected: Tensor

    @property
    def error(self) -> float:
        """The largest difference between the two."""
        return (self.measured - self.expected).abs().max().item()


def window(name: str, spikes: tuple[int, int], dt: float = 1.0, **options: str) -> Curve:
    """The window of one of the rules.

    Args:
        name: of the rule.
        spikes: how many presynaptic and postsynaptic ones.
        dt: step, in ms.
        **options: of running the rule, such as its ``backend``.
    """
    seen = protocol(*spikes, dt)
    rule, closed_form = RULES[name]
    measured = measure(rule, seen.pre, seen.post, dt=dt, **options)
    return Curve(seen.delta, measured, closed_form(seen))


def draw(dt: float, path: str) -> None:
    """One panel a protocol: what was measured as dots, the closed forms as lines."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 3.6), layout="constrained")
    every = round(5.0 / dt)  # a dot every 5 ms, those of one rule between those of the others
    for axes, (title, spikes) in zip(
        figure.subplots(1, 3, sharey=True), PROTOCOLS.items(), strict=True
    ):
        for i, name in enumerate(RULES):
            at, measured, expected = window(name, spikes, dt)
            for side in (at > 0, at < 0):
                axes.plot(at[side], expected[side], color=f"C{i}", lw=0.8)
            dots = (torch.arange(len(at)) % every == i * every // len(RULES)) | (at == 0)
            axes.plot(at[dots], measured[dots], ".", color=f"C{i}", ms=4, label=name)
        axes.axhline(0, color="0.8", lw=0.8, zorder=0)
        axes.axvline(0, color="0.8", lw=0.8, zorder=0)
        axes.set(title=title, xlabel="Δt = t_post − t_pre, ms")
    figure.axes[0].set_ylabel("Δw")
    names = figure.axes[0].get_legend_handles_labels()
    figure.legend(*names, loc="outside lower center", ncols=len(RULES), frameon=False)
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dt", type=float, default=0.25, help="step, in ms")
    parser.add_argument("--picture", default="stdp_window.png", help="where to draw to")
    parser.add_argument("--short", action=Short, help="steps of 1 ms")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dt = 1.0 if args.short else args.dt

    print(
        f"largest difference from the closed form, |Δt| up to {REACH:g} ms in steps of {dt:g} ms:"
    )
    for name in RULES:
        errors = [
            max(window(name, spikes, dt, backend=path).error for path in ("auto", "plain"))
            for spikes in PROTOCOLS.values()
        ]
        each = ", ".join(f"{title} {e:.0e}" for title, e in zip(PROTOCOLS, errors, strict=True))
        print(f"  {name:22s} {each}")
    pair, triplet = (
        window(name, (1, 1), dt) for name in ("pairs, cumulative", "triplets, nearest")
    )
    alone = (pair.measured - triplet.measured).abs().max().item()
    print(f"what triplet terms add to an isolated pair: {alone:.0e}")
    draw(dt, args.picture)
    print(f"drawn to {args.picture}")


if __name__ == "__main__":
    main()
