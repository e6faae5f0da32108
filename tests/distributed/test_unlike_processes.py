"""Processes that train other cells, by other settings, from more batches or none, are told."""

import sys
import warnings

import lightning.pytorch as pl
import pytest
import torch
from callback_helpers import Local
from run_ranks import run_ranks, share, trainer
from torch import nn
from torch.utils.data import DataLoader

from lightning_accum import STDP, CellSpec, Hebb
from lightning_accum.callbacks import CellTrainerCallback, FabricCellTrainer
from lightning_accum.nn import LIF

RANKS, UNEVEN = [2], ("with", "without")


class Model(Local):
    """Calls its layers, unless it rests."""

    def __init__(self, rests=False):
        super().__init__()
        self.rests = rests
        self.one, self.two, self.relu = nn.Linear(3, 2), nn.Linear(3, 4), nn.ReLU()
        self.other = nn.ReLU()

    def training_step(self, x):
        if not self.rests:
            self.relu(self.one(x))
            self.other(self.two(x))


def learners(name, rank):
    """The callbacks of a process."""
    cells = {"a": CellSpec("one", "relu")}
    if name == "cells" and rank:
        cells = {"a": CellSpec("two", "other")}
    options = {"apply_every_n_batches": 2} if name == "every" and rank else {}
    rule = Hebb(0.02 if name == "rate" and rank else 0.01)
    learner = CellTrainerCallback(rule, cells, name="learner", **options)
    return [] if name == "one learner" and rank else [learner]


def fit(name, rank, ranks):
    """What a fit raises, and what it warns of."""
    torch.manual_seed(0)
    model, said = Model(name == "all rest" or (name == "second rests" and rank == 1)), ""
    data = DataLoader([torch.rand(4, 3)] * 2, batch_size=None)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        try:
            trainer(ranks, *learners(name, rank), epochs=1).fit(model, data)
        except RuntimeError as error:
            said = str(error)
    texts, told = [str(each.message) for each in found], ("All processes", "record activity")
    return {"raised": said, "warned": [t for t in texts if any(words in t for words in told)]}


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


class Head(pl.LightningModule):
    """A layer that learns by a rule, and a readout."""

    def __init__(self):
        super().__init__()
        self.fc, self.lif = nn.Linear(6, 4, bias=False).requires_grad_(False), LIF(4, time_dim=0)
        self.head, self.batches = nn.Linear(4, 2), 0

    def training_step(self, batch, batch_idx):
        self.batches += 1
        self.lif.reset()
        return self.head(self.lif(self.fc(batch.transpose(0, 1))).mean(0)).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.head.parameters(), 0.1)


def uneven(rank, ranks, learns):
    """How a fit ends in which the first process has a batch more."""
    rule, cells = STDP(0.01, -0.01), {"enc": CellSpec("fc", "lif")}
    learner = CellTrainerCallback(rule, cells, log=False, summary=False, time_dim=0)
    net, raised = Head(), ""
    data = DataLoader(torch.ones(4 - rank, 5, 7, 6), batch_size=None)
    try:
        trainer(ranks, *[learner][: int(learns)], epochs=1).fit(net, data)
    except BaseException as error:
        raised = type(error).__name__
    return {"raised": raised, "batches": net.batches}


def main(rank, ranks, folder):
    if folder.name in UNEVEN:
        return uneven(rank, ranks, folder.name == "with")
    names = ("alike", "cells", "rate", "every", "one learner", "second rests", "all rest")
    found = {name: fit(name, rank, ranks) for name in names}
    found["loops"] = {name: loop(name, rank) for name in ("same", "loaded", "seeds", "layers")}
    return found


def test_processes_that_are_alike_are_told_nothing(found):
    assert [each["alike"] for each in found[2]] == [{"raised": "", "warned": []}] * 2


@pytest.mark.parametrize(("case", "what", "first", "second"), [
    ("cells", "cells", "'weight': [2, 3]", "'weight': [4, 3]"),
    ("rate", "cells", "'lr': 0.01", "'lr': 0.02"),
    ("one learner", "callbacks", "'CellTrainerCallback[learner]'", "{}"),
    ("every", "settings of updates", "'apply_every_n_batches': 1", "_n_batches': 2"),
])  # fmt: skip
def test_other_cells_or_settings_raise_in_every_process(found, case, what, first, second):
    for each in found[2]:
        said = each[case]["raised"]
        assert f"All processes of a fit should have the same {what}." in said
        before, after = said.split("in process 0")
        assert first in before
        assert second in after
        assert "in process 1" in after


@pytest.mark.parametrize("case", ["same", "loaded"])
def test_processes_of_a_loop_that_are_alike_learn(found, case):
    assert [each["loops"][case] for each in found[2]] == [{"raised": "", "moved": True}] * 2


@pytest.mark.parametrize(
    ("case", "what", "of_one"), [("seeds", "weights", "checksum"), ("layers", "cells", "[2, 3]")]
)
def test_other_weights_or_cells_raise_in_every_process_of_a_loop(found, case, what, of_one):
    for each in found[2]:
        said = each["loops"][case]["raised"]
        assert f"should have the same {what}." in said
        assert of_one in said
        assert not each["loops"][case]["moved"]


def test_a_process_that_records_nothing_is_told(found):
    first, second = (each["second rests"]["warned"] for each in found[2])
    (said,) = second
    assert "Cell `a` should record activity in each process of a fit." in said
    assert "`weight` changed" in said
    assert first == []


def test_processes_that_all_record_nothing_are_told_once(found):
    first, second = (each["all rest"]["warned"] for each in found[2])
    (said,) = first
    assert "Cell `a` should record activity for `Hebb` to learn from." in said
    assert second == []


@pytest.mark.parametrize("learner", UNEVEN)
def test_a_fit_of_uneven_processes_ends_as_without_a_learner(learner, tmp_path):
    """The process that has more waits for gradients, or updates, until the other has ended."""
    folder = tmp_path / learner
    folder.mkdir()
    first, second = run_ranks(__file__, 2, folder)
    assert second == {"raised": "", "batches": 3}
    assert first == {"raised": "RuntimeError", "batches": 4}


if __name__ == "__main__":
    share(main, wait=not sys.argv[4].endswith(UNEVEN))
