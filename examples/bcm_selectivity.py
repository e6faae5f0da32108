"""Neurons become selective under the rule of Bienenstock, Cooper and Munro, and not under Hebb's.

Ten patterns, overlapping bumps of activity around a ring of inputs, come in random order, each as
often as the others. At first every neuron answers all of them much alike. Under BCM (1982,
doi:10.1523/JNEUROSCI.02-01-00032.1982), with the average of the squared response for a threshold
(Intrator & Cooper 1992, doi:10.1016/S0893-6080(05)80003-6), each comes to answer a single one,
with ten, one over that pattern's share, and none of the others, even the neighbours on the ring.
The measure is the paper's selectivity index, 1 − mean response / largest response. The control is
Hebb's rule with weights of constant length, from the same start and with the same patterns. With
labels, least squares reach the index too.

    python examples/bcm_selectivity.py [--picture bcm_selectivity.png] [--short]
"""

from __future__ import annotations

import time

import torch
from _experiment import arguments, curves, report, save, spread
from matplotlib.figure import Figure
from torch import Tensor, nn

from lightning_accum import BCM, Cell, Hebb, Normalize, Rule, RuleTrainer, attach_updater

PATTERNS, INPUTS, NEURONS = 10, 50, 20
WIDTH = 5.0  # standard deviation of a bump, in inputs: as far as the next pattern is away
BATCH = 50  # patterns to one change of the weights


def bumps() -> Tensor:
    """The patterns, of length 1, ``[PATTERNS, INPUTS]``."""
    centres = torch.arange(PATTERNS) * INPUTS / PATTERNS
    away = (torch.arange(INPUTS) - centres[:, None] + INPUTS / 2) % INPUTS - INPUTS / 2
    return nn.functional.normalize(torch.exp(-(away**2) / (2 * WIDTH**2)))


def selectivity(responses: Tensor) -> Tensor:
    """Of responses ``[..., K, neurons]``: 0 if a neuron answers all alike, 1 − 1/K if only one."""
    return 1 - responses.mean(-2) / responses.amax(-2)


def learn(rule: Rule, updates: int, seed: int = 0, constant_length: bool = False) -> Tensor:
    """Shows patterns in random order; a rule on rates changes the weights after each batch.

    Returns the responses before learning and after each hundredth of it, ``[101, K, neurons]``.
    """
    generator = torch.Generator().manual_seed(seed)
    patterns, connection, neurons = bumps(), nn.Linear(INPUTS, NEURONS, bias=False), nn.ReLU()
    nn.init.uniform_(connection.weight, 0.0, 0.5, generator=generator)
    if constant_length:
        attach_updater(connection, "weight").register_constraint(Normalize(norm=1.0, order=2))
    trainer = RuleTrainer(rule)
    trainer.register_cell("cortex", Cell(connection, neurons))

    def responses() -> Tensor:  # apart from the modules, that the rule does not see it
        return (patterns @ connection.weight.detach().T).clamp(min=0)

    found = [responses()]
    for done in range(1, updates + 1):
        neurons(connection(patterns[torch.randint(PATTERNS, (BATCH,), generator=generator)]))
        trainer()
        trainer.update()
        if done % (updates // 100) == 0:
            found.append(responses())
    return torch.stack(found)


def experiment(updates: int, seed: int = 0) -> dict[str, Tensor]:
    """Both rules, from the same weights and with the same patterns."""
    return {
        "BCM": learn(BCM(lr=0.05, tc_threshold=10.0), updates, seed),
        "Hebb, constant length": learn(Hebb(lr=0.05), updates, seed, constant_length=True),
    }


def draw(found: dict[str, Tensor], updates: int, path: str) -> None:
    """Draws the neurons' responses before and after learning, and the selectivity during it."""
    bcm, hebb = found.values()
    figure = Figure(figsize=(9.6, 3.2), layout="constrained")
    *maps, axes = figure.subplots(1, 4, width_ratios=(1, 1, 1, 1.6))
    panels = {"before": bcm[0], "BCM": bcm[-1], "Hebb": hebb[-1]}
    for panel, (title, responses) in zip(maps, panels.items(), strict=True):
        order = responses.argmax(0).argsort()
        image = panel.imshow(responses.T[order].numpy(), aspect="auto", cmap="Greys", vmin=0)
        panel.set(title=title, xlabel="pattern", xticks=[0, 9], xticklabels=["1", "10"], yticks=[])
        figure.colorbar(image, ax=panel, location="bottom", shrink=0.9)
    maps[0].set_ylabel("neuron")
    points = range(0, updates + 1, updates // 100)
    for (name, responses), colour in zip(found.items(), ("C0", "C3"), strict=True):
        curves(axes, points, selectivity(responses).T, colour, name, alpha=0.4)
    axes.axhline(1 - 1 / PATTERNS, color="0.6", lw=0.8, ls=":", zorder=0)
    axes.set(xlabel="updates", ylabel="selectivity", ylim=(0, 1))
    axes.legend(frameon=False, fontsize=8, loc=(0.3, 0.3))
    save(figure, path, dpi=100)


def main() -> None:
    args = arguments(__doc__, __file__, short="one seed, 1500 updates")
    seeds, updates = args.seeds, 1500 if args.short else 5000
    torch.set_num_threads(1)
    start = time.process_time()
    runs = [experiment(updates, seed) for seed in range(seeds)]
    speed = 2 * seeds * updates * BATCH / (time.process_time() - start)  # of both rules
    print(f"{seeds * NEURONS} neurons, {PATTERNS} patterns, {updates} updates")
    for name in runs[0]:
        responses = torch.cat([run[name] for run in runs], -1)
        was, now = selectivity(responses[0]), selectivity(responses[-1])
        print(f"{name}:\n  selectivity {was.mean():.2f} before, ", end="")
        print(f"{now.mean():.2f} after, least {now.min():.2f}")
        best, second = responses[-1].topk(2, dim=0).values.mean(1)
        print(f"  mean response {best:.2f} to the best pattern, {second:.2f} to the second")
    found = {name: [selectivity(run[name][-1]).mean().item() for run in runs] for name in runs[0]}
    found["untrained"] = [selectivity(run["BCM"][0]).mean().item() for run in runs]
    labelled = (bumps() @ torch.linalg.pinv(bumps())).clamp(min=0)  # a neuron for each pattern
    found["least squares with labels"] = [selectivity(labelled).mean().item()] * seeds
    learned = [run["BCM"][-1] for run in runs]
    preferred = ", ".join(str(len(responses.argmax(0).unique())) for responses in learned)
    print(f"of {PATTERNS} patterns, {preferred} are preferred by some neuron")
    result, *controls, simple = {name: spread(x, "", 2) for name, x in found.items()}.items()
    report(result[1], speed, dict(controls), dict([simple]))
    draw(runs[0], updates, args.picture)


if __name__ == "__main__":
    main()
