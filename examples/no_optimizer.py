"""Learns features of handwritten digits by STDP alone: no loss, no gradient, no optimizer.

`configure_optimizers` returns nothing and `training_step` only runs the network. The callback
records the spikes, applies the rule after every batch and has `trainer.global_step` count it. The
neurons, which compete and never saw a label, are then named after the digit that each answers most.

    python examples/no_optimizer.py [--neurons 100] [--picture no_optimizer.png] [--short]
"""

from __future__ import annotations

import argparse

import lightning.pytorch as pl
import torch
from _data import Split, load_digits_split
from _experiment import Short
from _quiet import quiet
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from lightning_accum import STDP, CellSpec, Clamp, Normalize, attach_updater, plot
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.metrics import MaxRateClassifier
from lightning_accum.nn import AdaptiveLIF, PoissonEncoder, WinnerTakeAll


class Competing(pl.LightningModule):
    """Poisson input → plastic connection → neurons of which one at a time wins."""

    def __init__(self, neurons: int) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.encoder = PoissonEncoder(steps=100, max_rate=1000.0)
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
        keep = Normalize(norm=1.0, order=2)
        keep(nn.init.uniform_(self.fc.weight))
        updater = attach_updater(self.fc, "weight")
        updater.register_constraint(Clamp(min=0.0))
        updater.register_constraint(keep)

    def forward(self, images: Tensor) -> Tensor:
        """Spikes of each neuron, ``[B, neurons]``."""
        self.lif.reset()
        return self.lif(self.fc(self.encoder(images.flatten(1)).float())).sum(0)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self(batch[0])

    def configure_optimizers(self) -> None:
        return None


@torch.no_grad()
def accuracy(model: Competing, data: Split) -> float:
    """Share of test images named right, when neurons are named on the training images."""
    model.eval()
    model.lif.theta.fill_(model.lif.theta.mean())  # one threshold for all: rates are comparable
    readout = MaxRateClassifier(model.fc.out_features, 10)
    readout.update(model(data.train_images), data.train_labels)
    hits = readout.predict(model(data.test_images)) == data.test_labels
    return hits.float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--neurons", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", default="no_optimizer.png", help="where to draw weights to")
    parser.add_argument("--short", action=Short, help="one epoch")
    args = parser.parse_args()
    quiet()
    torch.set_num_threads(1)
    pl.seed_everything(args.seed, verbose=False)

    data, model = load_digits_split(), Competing(args.neurons)
    untrained = accuracy(model, data)
    rule, cells = STDP(lr_post=0.02, lr_pre=-0.006), {"input": CellSpec("fc", "lif")}
    local = CellTrainerCallback(rule, cells, time_dim=0)
    trainer = pl.Trainer(
        max_epochs=1 if args.short else args.epochs,
        accelerator="cpu",
        callbacks=[local],
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    train = TensorDataset(data.train_images, data.train_labels)
    trainer.fit(model.train(), DataLoader(train, batch_size=16, shuffle=True))
    print(f"{trainer.global_step} updates by STDP, none by gradient")
    found = 100 * accuracy(model, data)
    print(f"test accuracy {found:.1f} %, untrained {100 * untrained:.1f} %, by chance 10 %")
    plot.weights(model.fc.weight, columns=16)[0].savefig(args.picture, dpi=100)
    print(f"drawn to {args.picture}")


if __name__ == "__main__":
    main()
