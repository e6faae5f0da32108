"""Two ways to learn in one training step: a readout by gradient, the features under it by STDP.

The module optimizes by hand, with two optimizers of its own: Adam for the readout, UpdateOptimizer
for the plastic connection, whose change gets smaller by a scheduler. The callback accumulates what
STDP asks for; the step decides when it is applied. Beside it stands the same readout on the same
features as they were before learning.

    python examples/manual_optimization.py [--neurons 60] [--epochs 6] [--short]
"""

from __future__ import annotations

import argparse

import lightning.pytorch as pl
import torch
from _data import load_digits_split
from _quiet import quiet
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
        self.lif = AdaptiveLIF(
            neurons,
            tc_mem=100.0,
            v_threshold=10.0,
            theta_plus=0.002 * neurons,
            tc_theta=2e5,
            time_dim=0,
            inhibition=WinnerTakeAll(steps=0),
        )
        self.readout = nn.Linear(neurons, 10)
        keep = Normalize(norm=1.0, order=2)
        keep(nn.init.uniform_(self.fc.weight))
        updater = attach_updater(self.fc, "weight")
        updater.register_constraint(Clamp(min=0.0))
        updater.register_constraint(keep)

    def forward(self, images: Tensor) -> Tensor:
        """Scores of each digit, ``[B, 10]``."""
        self.lif.reset()
        spikes = self.lif(self.fc(self.encoder(images.flatten(1)).float()))
        return self.readout(spikes.sum(0))

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        gradient, local = self.optimizers()
        gradient.zero_grad()
        self.manual_backward(nn.functional.cross_entropy(self(batch[0]), batch[1]))
        gradient.step()
        local.step()
        self.lr_schedulers().step()

    def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        images, labels = batch
        hits = (self(images).argmax(1) == labels).float().mean()
        self.log("accuracy", hits, batch_size=len(labels))

    def configure_optimizers(self):
        gradient = torch.optim.Adam(self.readout.parameters(), lr=0.01)
        local = UpdateOptimizer(self.fc.parameters())
        return [gradient, local], [torch.optim.lr_scheduler.ExponentialLR(local, self.decay)]


def run(args: argparse.Namespace, lr: float) -> tuple[float, int]:
    """Test accuracy, and Lightning's count of steps, with STDP at a rate ``lr``."""
    pl.seed_everything(args.seed, verbose=False)
    data = load_digits_split()
    train = TensorDataset(data.train_images, data.train_labels)
    loader = DataLoader(train, batch_size=16, shuffle=True)
    model = TwoWays(args.neurons, decay=0.01 ** (1 / (args.epochs * len(loader))))
    rule = STDP(lr_post=lr, lr_pre=-0.3 * lr, time_dim=0)
    trainer = pl.Trainer(
        max_epochs=args.epochs,
        accelerator="cpu",
        callbacks=[CellTrainerCallback(rule, cells={"input": CellSpec("fc", "lif")})],
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    trainer.fit(model, loader)
    test = DataLoader(TensorDataset(data.test_images, data.test_labels), batch_size=450)
    return trainer.test(model, test, verbose=False)[0]["accuracy"], trainer.global_step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--neurons", type=int, default=60)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--short", action="store_true", help="three epochs")
    args = parser.parse_args()
    args.epochs = 3 if args.short else args.epochs
    quiet()
    torch.set_num_threads(1)

    (learned, steps), (fixed, _) = run(args, 0.1), run(args, 0.0)
    print(f"{steps} steps of two optimizers")
    shares = f"{100 * learned:.1f} %, on untrained ones {100 * fixed:.1f} %, by chance 10 %"
    print(f"test accuracy on features by STDP {shares}")


if __name__ == "__main__":
    main()
