"""Pairings at several frequencies: triplet STDP follows visual cortex, and pair STDP cannot.

Sjöström, Turrigiano & Nelson (2001, doi:10.1016/S0896-6273(01)00542-6) paired presynaptic and
postsynaptic spikes 10 ms apart, at 0.1 to 50 Hz. At low frequencies the order of the two says
whether the synapse grows or shrinks; at high ones it grows in either. Pfister & Gerstner (2006,
doi:10.1523/JNEUROSCI.1425-06.2006) fitted their triplet rule to that, with 60 pairs in a regular
train for the protocol. Here the parameters of their table 4 go through `TripletSTDP`, and the best
of pair rules through `STDP`. E is the paper's measure: the mean over the ten points of the squared
deviation, in standard errors of the mean.

    python examples/triplet_frequency.py [--picture triplet_frequency.png] [--short]
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable
from functools import cache
from itertools import product

import torch
from _experiment import Short
from stdp_window import measure
from torch import Tensor

from lightning_accum import STDP, Rule, TripletSTDP

PAIRS = 60
LEAD = 10  # |Δt|, in ms
PERIODS = (10_000, 100, 50, 25, 20)  # between pairs, in ms: 0.1, 10, 20, 40 and 50 Hz
TIMES = (5.0, 10.0, 20.0, 40.0, 80.0, 160.0)  # in ms: where the best pair rule is searched for

# Relative change of the synapse and its standard error at each frequency; rows: Δt = +10, -10 ms.
DATA = torch.tensor([[-0.04, 0.14, 0.29, 0.53, 0.56], [-0.29, -0.41, -0.34, 0.56, 0.75]]).double()
ERRORS = torch.tensor([[0.05, 0.10, 0.14, 0.11, 0.26], [0.08, 0.11, 0.10, 0.32, 0.19]]).double()


def triplets(
    mode: str, a2_plus: float, a3_plus: float, a2_minus: float, a3_minus: float, x: float, y: float
) -> Rule:
    """The triplet rule of the paper's amplitudes, and of τ_x and τ_y in ms."""
    times = {"tc_pre_fast": 16.8, "tc_post_fast": 33.7, "tc_pre_slow": x, "tc_post_slow": y}
    rates = (a2_plus, a3_plus, -a2_minus, -a3_minus)
    return TripletSTDP(*rates, **times, trace_mode=mode)


def pairs(mode: str, a_plus: float, a_minus: float, plus: float, minus: float) -> Rule:
    """The pair rule of these amplitudes, and of τ_+ and τ_- in ms."""
    times = {"tc_pre": plus, "tc_post": minus}
    return STDP(a_plus, -a_minus, **times, trace_mode=mode)


# Table 4 of the paper, and the E that it gives for each. Minimal models do not use τ_x.
MODELS = {
    "all-to-all, full": triplets("cumulative", 5e-10, 6.2e-3, 7e-3, 2.3e-4, x=101.0, y=125.0),
    "all-to-all, minimal": triplets("cumulative", 0.0, 6.5e-3, 7.1e-3, 0.0, x=101.0, y=114.0),
    "nearest, full": triplets("nearest", 8.8e-11, 5.3e-2, 6.6e-3, 3.1e-3, x=714.0, y=40.0),
    "nearest, minimal": triplets("nearest", 0.0, 5e-2, 8e-3, 0.0, x=714.0, y=40.0),
}
REPORTED = dict(zip(MODELS, (0.33, 0.34, 0.22, 0.34), strict=True))


@cache
def changes(rule: Rule, period: int, dt: float | None = None) -> Tensor:
    """What the pairs change at Δt = +10 and -10 ms, ``[2]``, side by side: two inputs of a neuron.

    Args:
        rule: the rule.
        period: between pairs, in ms.
        dt: step, in ms; ``None`` for the longest in which every spike has its place. Traces decay
            exactly from spike to spike, so that the step makes no difference.
    """
    if dt is None:
        dt = float(math.gcd(LEAD, period))
    lead, steps = round(LEAD / dt), round(period / dt)
    onsets = torch.arange(PAIRS) * steps
    pre, post = torch.zeros(PAIRS * steps + 2 * lead, 2), torch.zeros(PAIRS * steps + 2 * lead)
    pre[onsets, 0] = post[onsets + lead] = pre[onsets + 2 * lead, 1] = 1.0
    return measure(rule, pre, post, dt=dt)


def curves(rule: Rule, periods: Iterable[int] = PERIODS) -> Tensor:
    """Changes at Δt = +10 and -10 ms, ``[2, frequencies]``."""
    return torch.stack([changes(rule, period) for period in periods], 1)


def deviations(found: Tensor) -> Tensor:
    """How far from the experiment each point is, in standard errors, ``[2, frequencies]``."""
    return (found - DATA) / ERRORS


def error(found: Tensor) -> float:
    """The normalised mean-square error E."""
    return deviations(found).square().mean().item()


@cache
def of_one_side(mode: str, side: str, tc: float) -> Tensor:
    """Curves of A_+ (``side="plus"``) or A_- alone, of one."""
    return curves(pairs(mode, float(side == "plus"), float(side == "minus"), tc, tc))


def best_pair_rule(mode: str, times: Iterable[tuple[float, float]]) -> tuple[float, ...]:
    """E of the pair rule nearest to the experiment, its amplitudes and its time constants.

    Args:
        mode: of the traces.
        times: pairs of τ_+ and τ_- to try. The change is linear in the amplitudes, so that for
            each pair the best of them follow from least squares.
    """
    best: tuple[float, ...] = (math.inf,)
    for plus, minus in times:
        sides = of_one_side(mode, "plus", plus), of_one_side(mode, "minus", minus)
        scaled = torch.stack([(side / ERRORS).flatten() for side in sides], 1)
        found = torch.linalg.lstsq(scaled, (DATA / ERRORS).reshape(-1, 1)).solution
        a_plus, a_minus = found.flatten().tolist()
        left = error(a_plus * sides[0] + a_minus * sides[1])
        best = min(best, (left, a_plus, a_minus, plus, minus))
    return best


def draw(panels: dict[str, dict[str, Rule]], short: bool, path: str) -> None:
    """The experiment's points, and the curves of models, a panel for each group of them."""
    from matplotlib.figure import Figure

    between = () if short else (30, 35, 45, 60, 70, 80, 120, 150, 200, 300, 500, 1000)
    periods = sorted({*PERIODS, *between})
    figure = Figure(figsize=(9.6, 3.4), layout="constrained")
    for axes, (title, models) in zip(
        figure.subplots(1, len(panels), sharey=True), panels.items(), strict=True
    ):
        for (name, rule), style in zip(models.items(), ("-", "--"), strict=False):
            axes.plot([], [], style, color="0.3", lw=1.2, label=name)
            for changed, colour in zip(curves(rule, periods), ("C0", "C3"), strict=True):
                rates = [1000 / period for period in periods]
                axes.plot(rates, changed, style, color=colour, lw=1.2)
        for row, (label, colour) in enumerate((("Δt = +10 ms", "C0"), ("Δt = −10 ms", "C3"))):
            rates = [1000 / period for period in PERIODS]
            points = {"fmt": "o", "ms": 4, "capsize": 2, "color": colour, "label": label}
            axes.errorbar(rates, DATA[row], ERRORS[row], **points)
        axes.axhline(0, color="0.8", lw=0.8, zorder=0)
        axes.set(title=title, xlabel="pairs per second")
        axes.legend(frameon=False, fontsize=7, loc="upper left")
    figure.axes[0].set_ylabel("relative change of the weight")
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", default="triplet_frequency.png", help="where to draw to")
    parser.add_argument("--short", action=Short, help="two models, and one pair rule")
    args = parser.parse_args()
    torch.set_num_threads(1)

    models = {k: v for k, v in MODELS.items() if not args.short or "minimal" in k}
    print("E, and the largest deviation from the experiment in standard errors:")
    for name, rule in models.items():
        found = curves(rule)
        off = deviations(found).abs().max()
        print(f"  triplets, {name:19s}  {error(found):.2f} (paper {REPORTED[name]}), {off:.1f}")
    fitted = {}
    kinds = {"all-to-all": "cumulative", "nearest": "nearest"}
    for kind, mode in list(kinds.items())[: 1 if args.short else 2]:
        left, *numbers = best_pair_rule(mode, [(16.8, 33.7)])
        fitted[f"{kind}, best amplitudes"] = pairs(mode, *numbers)
        print(f"  pairs, {kind}, best amplitudes: {left:.2f}")
        if not args.short:
            left, _, _, plus, minus = best_pair_rule(mode, product(TIMES, TIMES))
            found = f"{left:.2f}, at τ+ = {plus:g} and τ- = {minus:g} ms"
            print(f"  pairs, {kind}, best amplitudes and time constants: {found}")
    minimal = MODELS["all-to-all, minimal"]
    for dt in (1.0,) if args.short else (1.0, 0.1):
        apart = max(
            (changes(minimal, p, dt) - changes(minimal, p)).abs().max() for p in PERIODS[1:]
        )
        print(f"steps of {dt:g} ms instead of 5 or 10 change what 10 to 50 Hz do by {apart:.0e}")

    panels = {
        f"triplets, {kind}": {k.split(", ")[1]: v for k, v in models.items() if kind in k}
        for kind in kinds
    }
    draw(panels | {"pairs": fitted}, args.short, args.picture)
    print(f"drawn to {args.picture}")


if __name__ == "__main__":
    main()
