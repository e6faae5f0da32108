"""Samples per second and accuracy together: the demo's network on digits, in other libraries too.

The network of `examples/digits_stdp.py`, in a Lightning Trainer here, and in loops with the neurons
and STDP of other libraries; encoder, constants, schedule, order of presentations and readout are
the same, but BindsNET changes the weights in every step. One thread.

    python benchmarks/end_to_end.py [--smoke] [--neurons 400] [--epochs 6]
"""

from __future__ import annotations

import argparse
import itertools
import logging
import sys
import time
import warnings
from collections.abc import Callable

import lightning.pytorch as pl
import torch
from _measure import ROOT, setting, table
from _rival_networks import TC, BindsNet, Norse, Rival, SpikingJelly
from torch.utils.data import DataLoader, TensorDataset

from lightning_accum import CellSpec
from lightning_accum.callbacks import CellTrainerCallback

sys.path.insert(0, str(ROOT / "examples"))
from _data import Split, load_digits_split
from _digits_stdp import fit_and_read
from digits_stdp import LR, OPTIONS, STEPS, STEPS_READOUT, DiehlCook, learning_rule

BATCH, SEED = 64, 0
Result = tuple[float, float]  # test accuracy, samples a second in training


def ours(data: Split, neurons: int, epochs: int) -> Result:
    """The demo itself, but for its pictures and logs."""
    model = DiehlCook(data.train_images, neurons, BATCH)
    rule = learning_rule(LR, model)
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[CellTrainerCallback(rule, {"input": CellSpec("fc", "lif")}, **OPTIONS)],
    )
    return fit_and_read(trainer, model, data, BATCH, time.perf_counter)


def loop(make: type[Rival]) -> Callable[[Split, int, int], Result]:
    @torch.no_grad()
    def run(data: Split, neurons: int, epochs: int) -> Result:
        train = TensorDataset(data.train_images, data.train_labels)
        loader = DataLoader(train, BATCH, shuffle=True, drop_last=True)
        demo = DiehlCook(data.train_images, neurons, BATCH)
        net = make(demo.fc.in_features, neurons, demo.lif.v_threshold, demo.lif.theta_plus)
        net.weight.copy_(demo.fc.weight)
        lr, decay = LR / (TC * demo.norm), 0.01 ** (1 / (epochs * len(loader)))
        start = time.perf_counter()
        for _ in range(epochs):
            for images, _ in loader:
                net.show(demo.encode(images).float(), lr)
                net.weight.clamp_(min=0.0)
                net.weight.div_(net.weight.norm(dim=1, keepdim=True).clamp_(min=1e-12))
                net.compete.theta -= net.compete.theta.mean()
                lr *= decay
        speed = epochs * len(loader) * BATCH / (time.perf_counter() - start)
        net.compete.theta.zero_()
        net.compete.learning = False
        demo.encoder.steps = STEPS_READOUT
        for images, labels in DataLoader(train, 256):
            demo.readout.update(net.show(demo.encode(images).float(), 0.0), labels)
        test = net.show(demo.encode(data.test_images).float(), 0.0)
        right = demo.readout.predict(test) == data.test_labels
        return right.float().mean().item(), speed

    return run


NETWORKS: dict[str, Callable[[Split, int, int], Result]] = {
    "ours, in a Lightning Trainer": ours,
    "Norse, in a loop": loop(Norse),
    "BindsNET, in a loop": loop(BindsNet),
    "SpikingJelly, in a loop": loop(SpikingJelly),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="64 digits, just to see it run")
    parser.add_argument("--neurons", type=int, action="append", help="100, 400 and 1400 by default")
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in ("lightning.pytorch", "lightning_accum.callbacks"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", "The '.*dataloader' does not have many workers")
    warnings.filterwarnings("ignore", ".*treespec", FutureWarning)
    warnings.filterwarnings("ignore", "You defined a `validation_step`")  # it labels the neurons
    data, epochs = load_digits_split(), args.epochs
    if args.smoke:
        data, epochs = Split(*(part[:BATCH] for part in data)), 1
    print(setting("lightning", "norse", "bindsnet", "spikingjelly"))
    shown = epochs * (len(data.train_labels) // BATCH) * BATCH
    print(f"\nSamples a second in training (accuracy); {shown:,} presentations, {STEPS} steps:\n")
    sizes = [16] if args.smoke else args.neurons or [100, 400, 1400]
    rows = [[name] for name in NETWORKS]
    for neurons, (row, run) in itertools.product(sizes, zip(rows, NETWORKS.values(), strict=True)):
        pl.seed_everything(SEED, verbose=False)
        try:
            accuracy, speed = run(data, neurons, epochs)
            row.append(f"{speed:.0f} ({accuracy:.1%})")
        except ImportError:
            row.append("not run")
    table(["network", *(f"{neurons} neurons" for neurons in sizes)], rows)


if __name__ == "__main__":
    main()
