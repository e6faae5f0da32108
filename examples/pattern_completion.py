"""A recurrent network completes patterns that it saw once, by weights that Hebb's rule changes.

In an episode, three new patterns of 100 bits are shown for three steps each, with a silent step
between; then one of them with half of its bits erased, which the network has to complete. Slow
weights cannot store patterns that are new in each episode: backpropagation through the changes of
fast weights trains how they are stored. The task is that of Miconi, Stanley and Clune (2018,
arXiv:1804.02464), with fewer bits.

The controls have no plasticity: the same network without fast weights, and an LSTM of twice as many
parameters. What the task needs: fast weights whose share and rate are not trained; the same with
nothing trained; and a Hopfield network, which is Hebb's rule with the right signs, and completes
all without training.

    python examples/pattern_completion.py [--seeds 5] [--picture pattern_completion.png] [--short]
"""

from __future__ import annotations

import time

import lightning.pytorch as pl
import matplotlib
import torch
from _experiment import arguments, report, spread
from _quiet import SILENT, quiet
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lightning_accum import FastWeights, Hebb

matplotlib.use("Agg")
import matplotlib.pyplot as plt

BITS, PATTERNS, SHOWN, CUED, BATCH = 100, 3, 3, 3, 8
WITHOUT = ("no fast weights", "LSTM of twice as many parameters")  # without plasticity


def episodes(count: int, seed: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Batches of what is shown ``[T, B, bits]``, the pattern to complete, and which bits to."""
    generator, found = torch.Generator().manual_seed(seed), []
    for _ in range(count):
        patterns = torch.randint(0, 2, (PATTERNS, BATCH, BITS), generator=generator) * 2.0 - 1.0
        which = torch.randint(PATTERNS, (BATCH,), generator=generator)
        wanted = patterns[which, torch.arange(BATCH)]
        erased = torch.rand(BATCH, BITS, generator=generator).argsort(1) < BITS // 2
        silent = torch.zeros(1, BATCH, BITS)
        shown = [part for each in patterns for part in (each.expand(SHOWN, -1, -1), silent)]
        cue = wanted.masked_fill(erased, 0.0).expand(CUED, -1, -1)
        found.append((torch.cat([*shown, cue]), wanted, erased))
    return found


def plastic(learned: bool = True) -> FastWeights:
    """Recurrent weights that begin as a copy of the input, with fast weights by Hebb's rule."""
    slow = nn.Linear(BITS, BITS)
    nn.init.eye_(slow.weight)
    share = nn.Parameter(0.02 * torch.rand(BITS, BITS), requires_grad=learned)
    lr, decay = (nn.Parameter(torch.tensor(value), requires_grad=learned) for value in (0.1, 0.9))
    return FastWeights(slow, Hebb(lr), nn.Tanh(), alpha=share, decay=decay)


def slow_only() -> nn.Sequential:
    """The same network without fast weights."""
    slow = nn.Linear(BITS, BITS)
    nn.init.eye_(slow.weight)
    return nn.Sequential(slow, nn.Tanh())


class Recall(pl.LightningModule):
    """Completes patterns, and is trained to, by any recurrent network."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network, self.wrong = network, []

    def forward(self, shown: Tensor) -> Tensor:
        """Returns the bits at the end, ``[B, bits]``."""
        if isinstance(self.network, FastWeights):
            self.network.reset()
        y = torch.zeros_like(shown[0])
        for x in shown:
            seen = (x != 0).any(1, keepdim=True)
            y = self.network(torch.where(x != 0, x, y)) * seen
        return y

    def training_step(self, batch: tuple[Tensor, Tensor, Tensor], batch_idx: int) -> Tensor:
        shown, wanted, erased = batch
        found = self(shown)
        self.wrong.append(share_wrong(found, wanted, erased))
        return (found - wanted)[erased].square().mean()

    def configure_optimizers(self) -> dict[str, object]:
        params = [param for param in self.parameters() if param.requires_grad]
        adam = torch.optim.Adam(params, lr=0.003)
        steps = self.trainer.estimated_stepping_batches
        fall = torch.optim.lr_scheduler.CosineAnnealingLR(adam, int(steps))
        return {"optimizer": adam, "lr_scheduler": {"scheduler": fall, "interval": "step"}}


class LSTM(Recall):
    """The same task by an LSTM."""

    def __init__(self) -> None:
        super().__init__(nn.LSTM(BITS, 57))
        self.readout = nn.Linear(57, BITS)

    def forward(self, shown: Tensor) -> Tensor:
        return torch.tanh(self.readout(self.network(shown)[0][-1]))


def share_wrong(found: Tensor, wanted: Tensor, erased: Tensor) -> float:
    """The share of erased bits that are wrong, in percent."""
    return 100.0 * float((found * wanted <= 0)[erased].float().mean())


def hopfield(shown: Tensor) -> Tensor:
    """Completes by Hebb's rule on what was shown, with nothing trained."""
    stored = shown[:-CUED]
    memory = torch.einsum("tbi,tbj->bij", stored, stored)
    memory.diagonal(dim1=1, dim2=2).zero_()
    y = shown[-1]
    for _ in range(CUED):
        y = torch.where(shown[-1] != 0, shown[-1], torch.einsum("bij,bj->bi", memory, y).sign())
    return y


@torch.no_grad()
def tested(complete, seed: int) -> float:
    """The share of bits that are wrong in 50 batches that nothing was trained with."""
    found = [share_wrong(complete(x), *rest) for x, *rest in episodes(50, 10_000 + seed)]
    return sum(found) / len(found)


def train(model: Recall, batches: int, seed: int) -> float:
    """Trains a network, and returns the share of bits that are wrong in new episodes."""
    trainer = pl.Trainer(max_epochs=1, accelerator="cpu", **SILENT)
    trainer.fit(model, DataLoader(episodes(batches, seed), batch_size=None))
    return tested(model, seed)


def main() -> None:
    args = arguments(__doc__, __file__, "one seed, 10 batches", seeds=5, batches=400)
    batches = 10 if args.short else args.batches
    torch.set_num_threads(1)
    quiet()
    kinds = {
        "Hebb's rule in fast weights": lambda: Recall(plastic()),
        "fast weights with a fixed share and rate": lambda: Recall(plastic(learned=False)),
        WITHOUT[0]: lambda: Recall(slow_only()),
        WITHOUT[1]: LSTM,
    }
    found = {name: [] for name in [*kinds, "nothing trained", "Hopfield network"]}
    curves, begun = {}, time.process_time()
    for seed in range(args.seeds):
        for name, make in kinds.items():
            torch.manual_seed(seed)
            model = make()
            found[name].append(train(model, batches, seed))
            curves.setdefault(name, []).append(model.wrong)
        found["nothing trained"].append(tested(Recall(plastic()), seed))
        found["Hopfield network"].append(tested(hopfield, seed))
    took = time.process_time() - begun
    first, *others = found
    results = {name: spread(values, " %", 2) for name, values in found.items()}
    print("erased bits that are wrong:")
    report(
        results[first],
        args.seeds * len(kinds) * batches * BATCH / took,
        {name: results[name] for name in others if name in WITHOUT},
        {name: results[name] for name in others if name not in WITHOUT},
    )
    draw(curves, args.picture)


def draw(curves: dict[str, list[list[float]]], path: str) -> None:
    """Draws the share of wrong bits while networks learn."""
    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    for name, runs in curves.items():
        wrong = torch.tensor(runs).mean(0)
        smooth = wrong.unfold(0, min(10, len(wrong)), 1).mean(1)
        axes.plot(smooth, label=name)
    axes.set(xlabel=f"batches of {BATCH} episodes", ylabel="erased bits wrong (%)", ylim=(0, None))
    axes.legend(frameon=False)
    figure.savefig(path)
    print("drawn to", path)


if __name__ == "__main__":
    main()
