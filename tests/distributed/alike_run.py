"""Fits that differ between processes: `python alike_run.py RANK RANKS PORT FOLDER`."""

import warnings

import lightning.pytorch as pl
import torch
from run_ranks import share, trainer
from torch import nn
from torch.utils.data import DataLoader

from lightning_accum import CellSpec, Hebb
from lightning_accum.callbacks import CellTrainerCallback, FabricCellTrainer


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.one, self.two, self.relu = nn.Linear(3, 2), nn.Linear(3, 4), nn.ReLU()
        self.other = nn.ReLU()

    def training_step(self, x):
        self.relu(self.one(x))
        self.other(self.two(x))

    def configure_optimizers(self):
        return None


class Stop(pl.Callback):
    """Ends a fit before its batches, some of which would wait in vain."""

    def on_train_start(self, trainer, pl_module):
        raise RuntimeError("enough")


def case(name, rank):
    """The callbacks of a process, and its number of batches."""
    cells, rate, batches = {"a": CellSpec("one", "relu")}, 0.01, 2
    options = {}
    if name == "cells" and rank:
        cells = {"a": CellSpec("two", "other")}
    if name == "rate" and rank:
        rate = 0.02
    if name == "every" and rank:
        options["apply_every_n_batches"] = 2
    learner = CellTrainerCallback(Hebb(rate), cells, name="learner", **options)
    return [] if name == "one learner" and rank else [learner], batches


class Resting(Model):
    """Calls the layer only in some processes."""

    def __init__(self, rests):
        super().__init__()
        self.rests = rests

    def training_step(self, x):
        if not self.rests:
            super().training_step(x)


def whole(name, rank, ranks):
    """What a whole fit warns of, in which some processes record nothing."""
    torch.manual_seed(0)
    model = Resting(name == "all rest" or (name == "second rests" and rank == 1))
    data = DataLoader([torch.rand(4, 3)] * 2, batch_size=None)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        trainer(ranks, case("alike", rank)[0][0], epochs=1).fit(model, data)
    return [str(each.message) for each in found if "record activity" in str(each.message)]


def loop(name, rank):
    """What a loop with Fabric says, and the weights that it leaves."""
    torch.manual_seed(rank if name == "seeds" else 0)
    model = nn.ModuleDict({"one": nn.Linear(3, 2), "two": nn.Linear(2, 3), "relu": nn.ReLU()})
    layer = "two" if name == "layers" and rank else "one"  # of equally many weights
    learner = FabricCellTrainer(Hebb(0.1), {"a": CellSpec(layer, "relu")})
    learner.setup(model)
    if name == "loaded":
        model.load_state_dict({key: value.fill_(0.5) for key, value in model.state_dict().items()})
    said, before = "", [p.detach().clone() for p in model.parameters()]
    for _ in range(2):
        with learner.batch():
            model["relu"](model[layer](torch.rand(4, model[layer].in_features)))
        try:
            learner.step()
        except RuntimeError as error:
            said = str(error)
    moved = any(not torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    return {"raised": said, "moved": moved}


def run(name, rank, ranks):
    torch.manual_seed(0)
    callbacks, batches = case(name, rank)
    said = ""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        try:
            data = DataLoader([torch.rand(4, 3)] * batches, batch_size=None)
            trainer(ranks, *callbacks, Stop(), epochs=1).fit(Model(), data)
        except RuntimeError as error:
            said = str(error)
    warned = [str(each.message) for each in found if "All processes" in str(each.message)]
    return {"raised": said, "warned": warned}


def main(rank, ranks, folder):
    names = ("alike", "cells", "rate", "every", "one learner")
    found = {name: run(name, rank, ranks) for name in names}
    found["loops"] = {name: loop(name, rank) for name in ("same", "loaded", "seeds", "layers")}
    found["fits"] = {n: whole(n, rank, ranks) for n in ("none rests", "second rests", "all rest")}
    return found


if __name__ == "__main__":
    share(main)
