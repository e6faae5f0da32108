"""Features by STDP under a readout by backpropagation, with Lightning's automatic optimization.

Nothing in the module is about STDP but one line: the weight that learns locally asks for no
gradient. The step returns a loss, Lightning optimizes the readout with it, and the callback changes
the connection below at the end of each batch. What the last update did is in the metrics that the
callback logs. Beside it stands the same readout, fitted as long, on features that did not learn:
the same as they were at first, and centres of k-means, which know the images as STDP does.

    python examples/hybrid_backprop.py [--neurons 80] [--picture hybrid_backprop.png] [--short]
"""

from __future__ import annotations

import argparse
import time

import lightning.pytorch as pl
import torch
from _controls import k_means, share, simple_methods
from _data import Split, load_digits_split
from _experiment import arguments, report, save, spread
from _quiet import SILENT, quiet
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from lightning_accum import STDP, CellSpec, Clamp, Normalize, attach_updater, plot
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.nn import AdaptiveLIF, PoissonEncoder, WinnerTakeAll


class Hybrid(pl.LightningModule):
    """Poisson input → connection by STDP → competing neurons → readout by backpropagation."""

    def __init__(self, neurons: int) -> None:
        super().__init__()
        self.encoder = PoissonEncoder(steps=60, max_rate=1000.0)
        self.fc = nn.Linear(64, neurons, bias=False).requires_grad_(False)
        options = {"v_threshold": 10.0, "theta_plus": 0.002 * neurons, "tc_theta": 2e5}
        self.lif = AdaptiveLIF(neurons, 100.0, inhibition=WinnerTakeAll(0), time_dim=0, **options)
        self.readout = nn.Sequential(nn.Linear(neurons, 64), nn.ReLU(), nn.Linear(64, 10))
        nn.init.uniform_(self.fc.weight)
        for constraint in (Clamp(min=0.0), Normalize(norm=1.0, order=2)):
            constraint(self.fc.weight)
            attach_updater(self.fc, "weight").register_constraint(constraint)

    def forward(self, images: Tensor) -> Tensor:
        """Scores of each digit, ``[B, 10]``."""
        self.lif.reset()
        spikes = self.lif(self.fc(self.encoder(images.flatten(1)).float()))
        return self.readout(spikes.sum(0))

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        images, labels = batch
        hits = (self(images).argmax(1) == labels).float().mean()
        self.log("accuracy", hits, batch_size=len(labels))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.readout.parameters(), lr=0.003)


def run(
    args: argparse.Namespace, data: Split, lr: float, seed: int, weight: Tensor | None = None
) -> tuple[float, dict[str, Tensor], Hybrid]:
    """Test accuracy, metrics of the last update and the network, with STDP at a rate ``lr``."""
    pl.seed_everything(seed, verbose=False)
    model = Hybrid(args.neurons)
    if weight is not None:
        model.fc.weight.copy_(weight)
        Normalize(norm=1.0, order=2)(model.fc.weight)
    rule, cells = STDP(lr_post=lr, lr_pre=-0.3 * lr), {"input": CellSpec("fc", "lif")}
    trainer = pl.Trainer(
        max_epochs=args.epochs,
        accelerator="cpu",
        callbacks=[CellTrainerCallback(rule, cells, time_dim=0)],
        gradient_clip_val=1.0,
        **SILENT,
    )
    train = TensorDataset(data.train_images, data.train_labels)
    trainer.fit(model, DataLoader(train, batch_size=16, shuffle=True))
    metrics = dict(trainer.callback_metrics)
    test = DataLoader(TensorDataset(data.test_images, data.test_labels), batch_size=450)
    accuracy = trainer.test(model, test, verbose=False)[0]["accuracy"]
    return accuracy, metrics, model


def backprop(args: argparse.Namespace, data: Split, seed: int) -> float:
    """What the same sizes reach when every layer learns by backpropagation, without spikes."""
    torch.manual_seed(seed)
    first = (nn.Flatten(), nn.Linear(64, args.neurons), nn.ReLU())
    net = nn.Sequential(*first, *Hybrid(args.neurons).readout)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.003)
    train = TensorDataset(data.train_images, data.train_labels)
    for _ in range(args.epochs):
        for images, labels in DataLoader(train, batch_size=16, shuffle=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(images), labels).backward()
            optimizer.step()
    return share(net(data.test_images).argmax(1), data.test_labels)


def main() -> None:
    options = {"neurons": 80, "epochs": 6, "fold": 0}
    args = arguments(__doc__, __file__, short="one seed, three epochs", **options)
    if args.short:
        args.epochs = 3
    quiet()
    torch.set_num_threads(1)

    data, seeds = load_digits_split(args.fold), range(args.seeds)
    start = time.process_time()
    runs = [run(args, data, 0.02, seed) for seed in seeds]
    seconds = time.process_time() - start
    controls = {
        "untrained features": spread([100 * run(args, data, 0.0, seed)[0] for seed in seeds])
    }
    for kind in ("k-means", "spherical k-means"):
        found = []
        for seed in seeds:
            centres = k_means(data.train_images, args.neurons, seed, kind != "k-means")
            found.append(100 * run(args, data, 0.0, seed, centres)[0])
        controls[f"centres of {kind}"] = spread(found)
    simple = simple_methods(data, args.seeds)
    simple["all by backpropagation"] = spread([backprop(args, data, seed) for seed in seeds])
    _, metrics, model = runs[-1]
    steps = model.global_step
    for name in ("updates/input/weight/ratio", "activity/input/firing_rate"):
        print(f"{name} at the end: {metrics[name]:.4f}")
    print(f"{steps} steps of the readout's optimizer, an update by STDP in each")
    result = spread([100 * learned for learned, _, _ in runs])
    report(result, 16 * steps * args.seeds / seconds, controls, simple)
    save(plot.weights(model.fc.weight, columns=16)[0], args.picture, dpi=100)


if __name__ == "__main__":
    main()
