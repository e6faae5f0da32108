"""Shows two problems on which Adam goes to the worst point there is, and AMSGrad to the best.

They are of Reddi, Kale & Kumar (2018, arXiv:1904.09237, section 3). A number x between -1 and 1 is
to be chosen at every step t, for a loss of c_t x. Its slope c_t is 3 in every third step and -1 in
the others (theorem 1); or 3 by chance, a little more often than once in four, and else -1 (theorem
3). In sum the slopes are positive: x = -1 is best. The rare large slope is the one that counts, but
Adam divides it by what it has itself put into the second moment. AMSGrad divides all by the largest
second moment yet.

Regret is what was lost more than by x = -1 from the first step on. An optimizer converges where the
average regret, of t steps over t, goes to zero.

    python examples/amsgrad_problem.py [--steps 10000] [--picture PATH] [--short]
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import torch
from _experiment import Short
from torch import Tensor, nn

from lightning_accum.optim import Adam, AMSGrad

LARGE = 3.0  # the rare slope; the theorems' C
EXCESS = 0.3  # mean slope of the stochastic problem; theorem 3's δ
BEST = -1.0


def online(steps: int) -> Tensor:
    """Slopes ``[steps, 1]`` of the problem of theorem 1."""
    rare = torch.arange(1, steps + 1) % 3 == 1
    return torch.where(rare, LARGE, -1.0).double().unsqueeze(1)


def stochastic(steps: int, runs: int = 64) -> Tensor:
    """Slopes ``[steps, runs]`` of the problem of theorem 3."""
    generator = torch.Generator().manual_seed(0)
    rare = torch.rand(steps, runs, generator=generator) < (1 + EXCESS) / (1 + LARGE)
    return torch.where(rare, LARGE, -1.0).double()


def play(make: Callable[..., torch.optim.Optimizer], slopes: Tensor) -> tuple[Tensor, Tensor]:
    """The iterates and the average regrets, ``[steps, runs]``, on slopes ``[steps, runs]``.

    All runs are one parameter, for the step of each element is its own.
    """
    x = nn.Parameter(torch.zeros(slopes.shape[1], dtype=torch.float64))
    # the theorems' decays, and their rate α / √t
    optimizer = make([x], lr=0.5, betas=(0.0, 1 / (1 + LARGE**2)), eps=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 1 / math.sqrt(t + 1))
    iterates = torch.empty_like(slopes)
    for t, slope in enumerate(slopes):
        iterates[t] = x.detach()
        x.grad = slope
        optimizer.step()
        schedule.step()
        x.data.clamp_(-1.0, 1.0)
    steps = torch.arange(1, len(slopes) + 1).unsqueeze(1)
    return iterates, (slopes * (iterates - BEST)).cumsum(0) / steps


def draw(found: dict[str, dict[str, tuple[Tensor, Tensor]]], path: str) -> None:
    """Draws iterates and average regrets of each problem and optimizer into a file."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(
        2, 2, figsize=(8, 4.6), sharex=True, sharey="row", layout="constrained"
    )
    for column, (problem, results) in zip(axes.T, found.items(), strict=True):
        for name, curves in results.items():
            for ax, curve in zip(column, curves, strict=True):
                steps = range(1, len(curve) + 1)
                (line,) = ax.plot(steps, curve.mean(1), label=name, lw=1.2)
                low, high = curve.quantile(0.1, dim=1), curve.quantile(0.9, dim=1)
                ax.fill_between(steps, low, high, color=line.get_color(), alpha=0.2, lw=0)
        column[0].set(title=problem, xscale="log")
        column[1].set(xlabel="step t")
        column[1].axhline(0.0, color="0.7", lw=0.6)
    axes[0, 0].set(ylabel="x, best at −1")
    axes[1, 0].set(ylabel="average regret R_t / t")
    axes[0, 0].legend()
    figure.savefig(path, dpi=90)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--picture", help="where to; amsgrad_problem.png, unless --short")
    parser.add_argument("--short", action=Short, help="a tenth of the steps")
    args = parser.parse_args()
    steps = args.steps // 10 if args.short else args.steps
    picture = args.picture or (None if args.short else "amsgrad_problem.png")
    torch.set_num_threads(1)

    found: dict[str, dict[str, tuple[Tensor, Tensor]]] = {}
    for make_slopes in (online, stochastic):
        problem, slopes = make_slopes.__name__, make_slopes(steps)
        found[problem] = {kind.__name__: play(kind, slopes) for kind in (Adam, AMSGrad)}
        for name, (iterates, regrets) in found[problem].items():
            last = f"x = {iterates[-1].mean():+.2f}, average regret {regrets[-1].mean():.3f}"
            print(f"{problem}, {name} after {steps} steps: {last}")
    if picture:
        draw(found, picture)
        print(f"drawn in {picture}")


if __name__ == "__main__":
    main()
