"""A cell whose neuron is another than the one that its connection drives is told."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from callback_helpers import RULE, Net, callback, loader, trainer
from lightning.fabric import Fabric
from torch import Tensor, nn

from lightning_accum import STDP, CellSpec
from lightning_accum.callbacks import FabricCellTrainer
from lightning_accum.nn import LIF

WRONG = {"enc": CellSpec("fc1", "lif2")}
BOTH = {"a": CellSpec("fc1", "lif1"), "b": CellSpec("fc1", "lif2")}
RIGHT = {"a": CellSpec("fc1", "lif1"), "b": CellSpec("fc2", "lif2")}


class Deep(Net):
    """Two layers of one size, whose modules are called once per sequence."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc1, self.fc2, self.rec = nn.Linear(6, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.norm, self.pool = nn.LayerNorm(4), nn.Dropout(0.1)
        self.lif1, self.lif2 = LIF(4, time_dim=0), LIF(4, time_dim=0)
        self.step1, self.step2 = LIF(4), LIF(4)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x = batch[0] if isinstance(batch, (list, tuple)) else batch
        with torch.no_grad():
            self.run(x.float().transpose(0, 1))

    def run(self, x: Tensor) -> None:
        self.lif2(self.fc2(self.lif1(self.fc1(x))))

    def on_train_batch_start(self, *args: Any) -> None:
        for each in self.modules():
            if isinstance(each, LIF):
                each.reset()


class Normed(Deep):
    def run(self, x: Tensor) -> None:
        s = self.lif1(self.pool(self.norm(self.fc1(x))) + 1)
        self.lif2(self.norm(self.fc2(s)).flatten(1).unflatten(1, s.shape[1:]) + self.rec(s))


class Shared(Deep):
    """The same neurons after both connections, and the named neuron gets a view."""

    def run(self, x: Tensor) -> None:
        self.lif1.reset()
        out = self.fc1(x)
        self.lif2(out.flatten(1).view(out.shape))
        self.lif1(out)


class Scaled(Deep):
    """The same neurons after one connection, whose output is scaled for the second ones."""

    def run(self, x: Tensor) -> None:
        out = self.fc1(x)
        self.lif1(out)
        self.lif2(out * 0.5)


class Stepwise(Deep):
    def run(self, x: Tensor) -> None:
        s = torch.zeros(x.shape[1], 4)
        for step in x:
            drive = self.fc1(step)
            s = self.step1(drive + self.rec(s))
            self.step2(self.fc2(s))


def fit(net: Deep, path: Path, cells: dict[str, CellSpec], time_dim: int | None = 0) -> list[str]:
    use = callback(STDP(**RULE, time_dim=time_dim), cells=cells)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        trainer(path, use, max_epochs=2).fit(net, loader(3))
    return [str(each.message) for each in found if "should take in" in str(each.message)]


def hooks(net: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in net.modules())


def test_a_neuron_of_a_later_layer_is_told_once_with_both_names(tmp_path: Path) -> None:
    net = Deep()
    (said,) = fit(net, tmp_path, WRONG)
    assert "The neuron of cell `enc` should take in the output of its connection" in said
    assert "the output of `fc1` goes into `lif1`, and not into `lif2`" in said
    assert "name `lif1` as the neuron" in said
    assert hooks(net) == 0


def test_a_neuron_of_a_later_layer_is_told_step_by_step(tmp_path: Path) -> None:
    cells = {"b": CellSpec("fc2", "step1")}
    assert "goes into `step2`, and not into `step1`" in fit(Stepwise(), tmp_path, cells, None)[0]


def test_cells_that_share_a_connection_and_name_none_of_its_neurons_are_told(
    tmp_path: Path,
) -> None:
    class Three(Scaled):
        def __init__(self) -> None:
            super().__init__()
            self.lif3 = LIF(4, time_dim=0)

        def run(self, x: Tensor) -> None:
            super().run(x)
            self.lif3(x[..., :4])

    cells = {"a": CellSpec("fc1", "lif2"), "b": CellSpec("fc1", "lif3")}
    said = fit(Three(), tmp_path, cells)
    assert ["and not into `lif2`" in each for each in said] == [True, False]
    assert all("name `lif1` as the neuron" in each for each in said)
    assert len(said) == 2


@pytest.mark.parametrize(
    ("net", "cells", "time_dim"),
    [
        (Deep, RIGHT, 0),
        (Normed, {**RIGHT, "rec": CellSpec("rec", "lif2")}, 0),
        (Shared, BOTH, 0),
        (Scaled, BOTH, 0),
        (
            Stepwise,
            {f"{c}-{n}": CellSpec(c, n) for c, n in (("fc1", "step1"), ("rec", "step1"))},
            None,
        ),
        (Stepwise, {"b": CellSpec("fc2", "step2")}, None),
    ],
)
def test_neurons_that_their_connections_drive_are_fine(
    tmp_path: Path, net: type[Deep], cells: dict[str, CellSpec], time_dim: int | None
) -> None:
    assert fit(net(), tmp_path, cells, time_dim) == []


def test_only_the_first_batch_is_watched(tmp_path: Path) -> None:
    counts: list[int] = []

    class Counting(Deep):
        def run(self, x: Tensor) -> None:
            super().run(x)
            counts.append(hooks(self))

    fit(Counting(), tmp_path, RIGHT)
    assert len(counts) == 6
    assert counts[0] - counts[1] == 9  # on two connections, twice, and five neurons
    # The check of their state watches the three neurons without a cell for four batches.
    assert [counts[1] - count for count in counts[2:]] == [0, 0, 3, 3]


def test_a_first_batch_that_fails_leaves_no_hooks(tmp_path: Path) -> None:
    class Failing(Deep):
        def run(self, x: Tensor) -> None:
            super().run(x)
            raise OSError("on purpose")

    net = Failing()
    with pytest.raises(OSError, match="on purpose"):
        trainer(tmp_path, callback(STDP(**RULE, time_dim=0), cells=RIGHT)).fit(net, loader(1))
    assert hooks(net) == 0


def test_a_loop_with_fabric_tells_too() -> None:
    fabric, net = Fabric(accelerator="cpu", devices=1), Deep()
    learner = FabricCellTrainer(STDP(**RULE, time_dim=0), WRONG)
    learner.setup(fabric.to_device(net))
    x = (torch.rand(7, 3, 6) < 0.4).float()
    with (
        pytest.warns(UserWarning, match="goes into `lif1`, and not into `lif2`"),
        learner.batch(),
    ):
        net.run(x)
    learner.step()
    net.on_train_batch_start()
    with learner.batch():
        net.run(x)
    learner.step()
    learner.release()
    assert hooks(net) == 0
