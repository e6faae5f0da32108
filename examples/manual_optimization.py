"""Two ways to learn in one training step: a readout by gradient, the features under it by STDP.

The module optimizes by hand, with two optimizers of its own: Adam for the readout, UpdateOptimizer
for the plastic connection, whose change gets smaller by a scheduler. The callback accumulates what
STDP asks for; the step decides when it is applied. Beside it stands the same readout on the same
features as they were before learning; the picture compares the losses.

    python examples/manual_optimization.py [--neurons 60] [--picture FILE] [--short]
"""

from __future__ import annotations

import argparse

import lightning.pytorch as pl
import torch
from _data import load_digits_split
from _experiment import Short
from _quiet import quiet
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from lightning_accum import STDP, CellSpec, Clamp, Normalize, attach_updater
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.nn import AdaptiveLIF, PoissonEncoder, WinnerTakeAll
from lightning_accum.optim import UpdateOptimizer


class TwoWays(pl.LightningModule):
    """Poisson input → connection by STDP → competing neurons → readout by gradient."""

    def __init__(self, neurons: int, decay: float) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.decay = decay
        self.encoder = PoissonEncoder(steps=60, max_rate=1000.0)
        self.fc = nn.Linear(64, neurons, bias=False)
        options = {"v_threshold": 10.0, "theta_plus": 0.002 * neurons, "tc_theta": 2e5}
        self.lif = AdaptiveLIF(neurons, 100.0, inhibition=WinnerTakeAll(0), time_dim=0, **options)
        self.readout = nn.Linear(neurons, 10)
        self.losses: list[float] = []
        nn.init.uniform_(self.fc.weight)
        for constraint in (Clamp(min=0.0), Normalize(norm=1.0, order=2)):
            constraint(self.fc.weight)
            attach_updater(self.fc, "weight").register_constraint(constraint)

    def forward(self, images: Tensor) -> Tensor:
        """Scores of each digit, ``[B, 10]``."""
        self.lif.reset()
        spikes = self.lif(self.fc(self.encoder(images.flatten(1)).float()))
        return self.readout(spikes.sum(0))

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        gradient, local = self.optimizers()
        gradient.zero_grad()
        loss = nn.functional.cross_entropy(self(batch[0]), batch[1])
        self.losses.append(loss.item())
        self.manual_backward(loss)
        gradient.step()
        local.step()
        self.lr_schedulers().step()

    def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self.log("accuracy", (self(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self):
        gradient = torch.optim.Adam(self.readout.parameters(), lr=0.01)
        local = UpdateOptimizer(self.fc.parameters())
        return [gradient, local], [torch.optim.lr_scheduler.ExponentialLR(local, self.decay)]


def run(args: argparse.Namespace, lr: float) -> tuple[float, TwoWays]:
    """Test accuracy and the network, after learning with STDP at a rate ``lr``."""
    pl.seed_everything(args.seed, verbose=False)
    data = load_digits_split()
    loader = DataLoader(TensorDataset(data.train_images, data.train_labels), 16, shuffle=True)
    model = TwoWays(args.neurons, decay=0.01 ** (1 / (args.epochs * len(loader))))
    rule, cells = STDP(lr_post=lr, lr_pre=-0.3 * lr), {"input": CellSpec("fc", "lif")}
    trainer = pl.Trainer(
        max_epochs=args.epochs,
        accelerator="cpu",
        callbacks=[CellTrainerCallback(rule, cells, time_dim=0)],
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    trainer.fit(model, loader)
    test = DataLoader(TensorDataset(data.test_images, data.test_labels), batch_size=450)
    return trainer.test(model, test, verbose=False)[0]["accuracy"], model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--neurons", type=int, default=60)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", default="manual_optimization.png", help="where to draw to")
    parser.add_argument("--short", action=Short, help="three epochs")
    args = parser.parse_args()
    args.epochs = 3 if args.short else args.epochs
    quiet()
    torch.set_num_threads(1)

    (learned, model), (fixed, control) = run(args, 0.1), run(args, 0.0)
    print(f"{model.global_step} steps of two optimizers")
    shares = f"{100 * learned:.1f} %, on untrained ones {100 * fixed:.1f} %, by chance 10 %"
    print(f"test accuracy on features by STDP {shares}")
    figure = Figure(figsize=(5, 3), layout="constrained")
    axes = figure.subplots()
    for net, name in ((model, "features by STDP"), (control, "untrained features")):
        axes.plot(torch.tensor(net.losses).unfold(0, 20, 1).mean(1), label=name)
    axes.set(xlabel="first of 20 batches", ylabel="mean training loss", yscale="log")
    axes.legend(frameon=False)
    figure.savefig(args.picture, dpi=100)
    print(f"drawn to {args.picture}")


if __name__ == "__main__":
    main()
