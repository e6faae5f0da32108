"""A Fabric loop learns what the Trainer's loop does, and resumes."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path

import lightning.pytorch as pl
import pytest
import torch
from lightning.fabric import Fabric
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lightning_accum import (
    MSTDP,
    STDP,
    CellSpec,
    TripletSTDP,
)
from lightning_accum.callbacks import CellTrainerCallback, FabricCellTrainer
from lightning_accum.nn import LIF, SurrogateLIF
from lightning_accum.rules import Rule

CELLS = {"enc": CellSpec("fc", "lif")}


class Net(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.automatic_optimization = False
        self.fc = nn.Linear(6, 4, bias=False)
        nn.init.uniform_(self.fc.weight, 0.0, 1.0)
        self.lif = LIF(4, tc_mem=5.0, v_threshold=0.5, time_dim=0)

    def forward(self, spikes: Tensor) -> Tensor:
        self.lif.reset()
        return self.lif(self.fc(spikes))

    def training_step(self, batch: Tensor, batch_idx: int) -> None:
        self(batch)

    def configure_optimizers(self) -> None:
        return None


class Streaming(Net):
    """Takes batches as pieces of one stream."""

    def forward(self, spikes: Tensor) -> Tensor:
        return self.lif(self.fc(spikes))


def data() -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [(torch.rand(7, 3, 6, generator=generator) < 0.4).float() for _ in range(5)]


def rule() -> STDP:
    return STDP(0.1, -0.05, time_dim=0)


def loop(learner: FabricCellTrainer, model: nn.Module, batches: list[Tensor]) -> None:
    for batch in batches:
        with learner.batch():
            model(batch)
        learner.step(scale=0.5)


def hooks(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


@pytest.mark.parametrize("wrapped", [True, False])
def test_as_the_trainer_does(wrapped: bool):
    by_trainer, by_fabric = Net(), Net()
    trainer = pl.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        callbacks=[CellTrainerCallback(rule(), CELLS, lr=0.5)],
    )
    trainer.fit(by_trainer, DataLoader(data(), batch_size=None))
    fabric = Fabric(accelerator="cpu", devices=1)
    model = fabric.setup(by_fabric) if wrapped else fabric.to_device(by_fabric)
    learner = FabricCellTrainer(rule(), CELLS)
    learner.setup(model)
    loop(learner, model, data())
    assert not torch.equal(by_fabric.fc.weight, Net().fc.weight)
    assert torch.equal(by_fabric.fc.weight, by_trainer.fc.weight)
    learner.release()
    assert hooks(by_fabric) == 0


def test_saved_between_accumulating_and_applying_it_resumes(tmp_path: Path):
    fabric = Fabric(accelerator="cpu", devices=1)
    whole, begun, resumed = Streaming(), Streaming(), Streaming()

    def learn(model: Net, stop: bool) -> None:
        learner = FabricCellTrainer(rule(), CELLS, carry=True)
        learner.setup(model)
        loop(learner, model, data()[:2])
        with learner.batch():
            model(data()[2])
        learner.accumulate()
        if stop:
            fabric.save(tmp_path / "state.ckpt", {"model": model, "learner": learner})
            model, learner = resumed, FabricCellTrainer(rule(), CELLS, carry=True)
            fabric.load(tmp_path / "state.ckpt", {"model": model, "learner": learner})
            learner.setup(model)
        learner.step(scale=0.5)
        loop(learner, model, data()[3:])

    learn(whole, False)
    learn(begun, True)
    assert torch.equal(resumed.fc.weight, whole.fc.weight)


def test_a_batch_that_fails_leaves_nothing_behind():
    model, learner = Net(), FabricCellTrainer(rule(), CELLS)
    learner.setup(model)

    def fail() -> None:
        with learner.batch():
            model(data()[0])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    learner.step()
    assert torch.equal(model.fc.weight, Net().fc.weight)
    model(data()[0])  # outside of a batch nothing is recorded
    learner.accumulate()
    learner.step()
    assert torch.equal(model.fc.weight, Net().fc.weight)


def test_a_batch_that_fails_takes_nothing_from_a_stream():
    def fail(model: Net, learner: FabricCellTrainer) -> None:
        with learner.batch():
            model.fc(data()[4].transpose(0, 1))
            raise OSError("on purpose")

    streams = []
    for fails in (False, True):
        model, learner = Streaming(), FabricCellTrainer(rule(), CELLS, carry=True)
        learner.setup(model)
        for i, x in enumerate(data()[:3]):
            if fails and i == 1:
                with pytest.raises(OSError, match="on purpose"):
                    fail(model, learner)
            with learner.batch():
                model(x)
            learner.step()
        streams.append(model.fc.weight)
    assert torch.equal(*streams)


def test_what_was_not_evaluated_is_not_taken_up():
    model, learner = Net(), FabricCellTrainer(rule(), CELLS)
    learner.setup(model)
    with learner.batch():
        model(data()[0])
    learner.load_state_dict(learner.state_dict())
    learner.step()
    assert torch.equal(model.fc.weight, Net().fc.weight)


def test_a_reward_comes_with_the_step():
    model, learner = Net(), FabricCellTrainer(MSTDP(0.1, -0.05, time_dim=0), CELLS)
    learner.setup(model)
    with learner.batch():
        model(data()[0])
    learner.step(reward=0.0)
    assert torch.equal(model.fc.weight, Net().fc.weight)
    with learner.batch():
        model(data()[0])
    with pytest.raises(ValueError, match="`scale` should"):
        learner.step(scale=-1.0, reward=1.0)
    with pytest.raises(TypeError, match=r"Found .'lr', 'reward'., which nothing takes: .*`scale`"):
        learner.step(lr=1e-3, reward=1.0)
    assert torch.equal(model.fc.weight, Net().fc.weight)
    learner.step(reward=1.0)
    assert not torch.equal(model.fc.weight, Net().fc.weight)


@pytest.mark.parametrize("call", ["step", "updates_as_gradients"])
def test_an_input_without_a_batch_is_rejected(call: str) -> None:
    model, learner = Net(), FabricCellTrainer(MSTDP(0.1, -0.05, time_dim=0), CELLS)
    learner.setup(model)
    with pytest.raises(TypeError, match=r"Found .'reward'., and no batch yet: .*learner.batch"):
        getattr(learner, call)(reward=1.0)
    with learner.batch():
        model(data()[0])
    learner.accumulate(reward=1.0)
    with pytest.raises(TypeError, match=f"`{call}` .* Found .'reward'., which nothing takes"):
        getattr(learner, call)(reward=-1.0)
    assert model.fc.weight.grad is None
    learner.step()
    assert not torch.equal(model.fc.weight, Net().fc.weight)


@pytest.mark.parametrize("released", [False, True])
def test_a_loop_before_setup_or_after_release(released: bool) -> None:
    learner = FabricCellTrainer(rule(), CELLS)
    model = Net()
    if released:
        learner.setup(model)
        learner.release()
    for use in (learner.batch().__enter__, learner.accumulate, learner.step):
        with pytest.raises(RuntimeError, match=r"Found no module, or one.*call `setup\(module\)`"):
            use()
    with pytest.raises(RuntimeError, match="call `setup"):
        learner.updates_as_gradients()


@pytest.mark.parametrize("kind", [Net, Streaming])
def test_a_step_inside_the_batch_is_one_after_it(kind: type[Net]) -> None:
    ends = []
    for inside in (False, True):
        learner, model = FabricCellTrainer(rule(), CELLS, carry=kind is Streaming), kind()
        learner.setup(model)
        for batch in data() * 2:
            with learner.batch():
                model(batch)
                if inside:
                    learner.step(scale=0.5)
            if not inside:
                learner.step(scale=0.5)
        learner.release()
        ends.append(model.fc.weight.detach())
    assert torch.equal(*ends)
    assert not torch.equal(ends[0], kind().fc.weight)


def test_activity_after_a_step_inside_the_batch_awaits_the_next_step() -> None:
    learner, model = FabricCellTrainer(rule(), CELLS), Net()
    learner.setup(model)
    with learner.batch():
        model(data()[0])
        learner.step()
        model(data()[1])
    before = model.fc.weight.clone()
    learner.step()
    assert not torch.equal(model.fc.weight, before)
    learner.release()


class Readout(nn.Module):
    """Two layers, of which one is read out."""

    def __init__(self, gradient: str = "none") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(5, 6, bias=False)
        self.fc = nn.Linear(6, 4, bias=False)
        nn.init.uniform_(self.fc.weight, 0.0, 0.3)
        self.lif = SurrogateLIF(4, time_dim=0, gradient=gradient)
        self.out = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        self.lif.reset()
        x = (self.first(x) > 0).float() if self.lif.gradient == "none" else self.first(x).sigmoid()
        return self.out(self.lif(self.fc(x)).mean(0))


def said_of(
    model: Readout, use: Rule, params: Iterable[Tensor], sign: float = 1.0, batches: int = 300
) -> list[str]:
    """What is said in a loop in which an optimizer trains some parameters."""
    learner = FabricCellTrainer(use, CELLS)
    learner.setup(model)
    optimizer = torch.optim.SGD(list(params), lr=0.01)
    generator = torch.Generator().manual_seed(0)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(batches):
            with learner.batch():
                out = model(torch.rand(6, 8, 5, generator=generator) - 0.2)
            optimizer.zero_grad()
            loss = (out - 1).square().mean()
            loss.backward()
            optimizer.step()
            error = (sign * (out - 1).detach().sum(1, keepdim=True)).expand(8, 4)
            learner.step(**({"error": error} if use.follows_error else {}))
        learner.release()
    return [str(w.message) for w in found if "should" in str(w.message)]


def test_a_state_of_another_rule_is_told():
    saved, model = FabricCellTrainer(STDP(0.1, -0.05, time_dim=0), CELLS), Net()
    saved.setup(model)
    state = saved.state_dict()
    saved.release()
    other = FabricCellTrainer(TripletSTDP(0.1, 0.1, -0.1, -0.1, time_dim=0), CELLS)
    other.setup(model)
    with pytest.warns(UserWarning, match="state of a `STDP`, of which a `TripletSTDP` takes only"):
        other.load_state_dict(state)
    other.release()
