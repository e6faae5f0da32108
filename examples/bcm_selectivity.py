"""Neurons become selective under the rule of Bienenstock, Cooper and Munro, and not under Hebb's.

Ten patterns, overlapping bumps of activity around a ring of inputs, come in random order, each as
often as the others. At first every neuron answers all of them much alike. Under BCM (1982,
doi:10.1523/JNEUROSCI.02-01-00032.1982), with the average of the squared response for a threshold
(Intrator & Cooper 1992, doi:10.1016/S0893-6080(05)80003-6), each comes to answer a single one,
with ten, one over that pattern's share, and none of the others, even the neighbours on the ring.
The measure is the paper's selectivity index, 1 − mean response / largest response. The control is
Hebb's rule with weights of constant length, from the same start and with the same patterns.

    python examples/bcm_selectivity.py [--picture bcm_selectivity.png] [--short]
"""

from __future__ import annotations

import argparse
import time
from typing import NamedTuple

import torch
from _result import report, spread
from torch import Tensor, nn

from lightning_accum import BCM, Cell, Hebb, Normalize, Rule, attach_updater

PATTERNS = 10
INPUTS = 50
WIDTH = 5.0  # standard deviation of a bump, in inputs: as far as the next pattern is away
NEURONS = 20
BATCH = 50  # patterns to one change of the weights


def bumps() -> Tensor:
    """The patterns, of length 1, ``[PATTERNS, INPUTS]``."""
    centres = torch.arange(PATTERNS) * INPUTS / PATTERNS
    away = (torch.arange(INPUTS) - centres[:, None] + INPUTS / 2) % INPUTS - INPUTS / 2
    return nn.functional.normalize(torch.exp(-(away**2) / (2 * WIDTH**2)))


def selectivity(responses: Tensor) -> Tensor:
    """The selectivity index of each neuron: 0 if it answers all patterns alike, 1 − 1/K if one.

    Args:
        responses: ``[K, neurons]``, not negative, and some positive for each neuron.
    """
    return 1 - responses.mean(0) / responses.amax(0)


class History(NamedTuple):
    """Responses ``[K, neurons]`` before learning and after it, and the index on the way."""

    before: Tensor
    after: Tensor
    updates: list[int]
    selectivity: Tensor  # [points, neurons]


def learn(rule: Rule, updates: int, seed: int = 0, constant_length: bool = False) -> History:
    """Shows patterns in random order, and has the rule change the weights after each batch.

    Args:
        rule: on rates.
        updates: how many such changes.
        seed: of the weights and the order.
        constant_length: whether each neuron's weights are kept at length 1.
    """
    generator = torch.Generator().manual_seed(seed)
    patterns = bumps()
    connection, neurons = nn.Linear(INPUTS, NEURONS, bias=False), nn.ReLU()
    nn.init.uniform_(connection.weight, 0.0, 0.5, generator=generator)
    if constant_length:
        updater = attach_updater(connection, "weight")
        updater.register_constraint(Normalize(norm=1.0, order=2))
    rule.register_cell("cortex", Cell(connection, neurons))

    def responses() -> Tensor:  # apart from the modules, that the rule does not see it
        return (patterns @ connection.weight.detach().T).clamp(min=0)

    before = responses()
    points, found = [0], [selectivity(before)]
    for done in range(1, updates + 1):
        neurons(connection(patterns[torch.randint(PATTERNS, (BATCH,), generator=generator)]))
        rule()
        rule.update()
        if done % max(1, updates // 100) == 0:
            points.append(done)
            found.append(selectivity(responses()))
    return History(before, responses(), points, torch.stack(found))


def experiment(updates: int, seed: int = 0) -> dict[str, History]:
    """Both rules, from the same weights and with the same patterns."""
    return {
        "BCM": learn(BCM(lr=0.05, tc_threshold=10.0), updates, seed),
        "Hebb, constant length": learn(Hebb(lr=0.05), updates, seed, constant_length=True),
    }


def draw(found: dict[str, History], path: str) -> None:
    """Draws the neurons' responses before and after learning, and the selectivity during it."""
    from matplotlib.figure import Figure

    bcm, hebb = found.values()
    figure = Figure(figsize=(9.6, 3.2), layout="constrained")
    *maps, axes = figure.subplots(1, 4, width_ratios=(1, 1, 1, 1.6))
    panels = {"before": bcm.before, "BCM": bcm.after, "Hebb": hebb.after}
    for panel, (title, responses) in zip(maps, panels.items(), strict=True):
        order = responses.argmax(0).argsort()
        image = panel.imshow(responses.T[order].numpy(), aspect="auto", cmap="Greys", vmin=0)
        panel.set(title=title, xlabel="pattern", xticks=[0, 9], xticklabels=["1", "10"], yticks=[])
        figure.colorbar(image, ax=panel, location="bottom", shrink=0.9)
    maps[0].set_ylabel("neuron")
    for (name, history), colour in zip(found.items(), ("C0", "C3"), strict=True):
        axes.plot(history.updates, history.selectivity, color=colour, lw=0.4, alpha=0.4)
        mean = history.selectivity.mean(1)
        axes.plot(history.updates, mean, color=colour, lw=1.8, label=name)
    axes.axhline(1 - 1 / PATTERNS, color="0.6", lw=0.8, ls=":", zorder=0)
    axes.set(xlabel="updates", ylabel="selectivity", ylim=(0, 1))
    axes.legend(frameon=False, fontsize=8, loc=(0.3, 0.3))
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=5000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--picture", default="bcm_selectivity.png", help="where to draw to")
    parser.add_argument("--short", action="store_true", help="one seed, 1500 updates")
    args = parser.parse_args()
    if args.short:
        args.seeds, args.updates = 1, 1500
    torch.set_num_threads(1)

    start = time.process_time()
    runs = [experiment(args.updates, seed) for seed in range(args.seeds)]
    samples = 2 * args.seeds * args.updates * BATCH  # for both rules
    speed = samples / (time.process_time() - start)
    print(f"{args.seeds * NEURONS} neurons, {PATTERNS} patterns, {args.updates} updates")
    for name in runs[0]:
        before, after = (
            torch.cat([getattr(run[name], when) for run in runs], 1) for when in ("before", "after")
        )
        was, now = selectivity(before), selectivity(after)
        print(f"{name}:")
        print(
            f"  selectivity {was.mean():.2f} before, {now.mean():.2f} after, least {now.min():.2f}"
        )
        best, *others = after.sort(dim=0, descending=True).values.mean(1).tolist()
        print(f"  mean response {best:.2f} to the best pattern, {others[0]:.2f} to the second")
    preferred = [len(run["BCM"].after.argmax(0).unique()) for run in runs]
    print(f"of {PATTERNS} patterns, {', '.join(map(str, preferred))} are preferred by some neuron")
    means = [float(selectivity(run["BCM"].after).mean()) for run in runs]
    report(f"selectivity {spread(means, '', 2)}", speed)
    draw(runs[0], args.picture)
    print(f"drawn to {args.picture}")


if __name__ == "__main__":
    main()
