"""An interrupted batch counts for nothing; scalers and the strategy are left alone."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from callback_helpers import (
    OUTPUTS,
    Net,
    Noting,
    Probe,
    Resumable,
    callback,
    clean,
    close,
    fit_by_hand,
    loader,
    spikes,
    trainer,
)
from lightning.pytorch.callbacks import OnExceptionCheckpoint
from lightning.pytorch.plugins import MixedPrecision
from test_three_ways import AutomaticHead, AutomaticOwnOptimizer, OwnOptimizer, SteppedMidway
from torch import Tensor
from torch.utils.data import TensorDataset

from lightning_accum import CellSpec


# ---------------------------------------------------------------------------- interrupted
class Interrupted(Net):
    """Fails in one batch: before, between and behind the calls of connection and neuron."""

    def __init__(self, at: str, what: type[BaseException]) -> None:
        super().__init__()
        self.at, self.what = at, what

    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.lif.reset()
        for place in ("before", "between", "behind"):
            if place == "between":
                current = self.fc(batch[0].transpose(0, 1))
            elif place == "behind":
                self.lif(current)
            if batch_idx == 4 and place == self.at:
                raise self.what


class Again(Resumable):
    """Gives the batch that failed once more."""

    def state_dict(self) -> dict[str, Any]:
        return {"done": self.done - 1}


def again() -> Again:
    return Again(TensorDataset(spikes(40)), batch_size=5)


resumes = pytest.mark.filterwarnings(
    "ignore:You're resuming from a checkpoint that ended before",
    "ignore:.*callbacks used to create the checkpoint:UserWarning",
    "ignore:.*was called without a model:UserWarning",
    "ignore:.*there is no last checkpoint available:UserWarning",
)


@resumes
@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("what", [OSError, KeyboardInterrupt])
@pytest.mark.parametrize("at", ["before", "between", "behind"])
def test_an_interrupted_batch_counts_for_nothing(
    at: str, what: type[BaseException], every: int, tmp_path: Path
) -> None:
    whole, rest, use = Net(), Net(), callback(apply_every_n_batches=every)
    trainer(tmp_path, callback(apply_every_n_batches=every)).fit(whole, again())
    failed = Interrupted(at, what)
    saver = OnExceptionCheckpoint(tmp_path)
    with pytest.raises((what, SystemExit)):
        trainer(tmp_path, use, saver, enable_checkpointing=True).fit(failed, again())
    assert clean(failed)
    path = tmp_path / "on_exception.ckpt"
    host = torch.load(path, weights_only=True)["callbacks"][use.state_key]["host"]
    kept = [value for value in host["trainer"].values() if isinstance(value, dict)]
    assert all(value.get("buffer") is None for value in kept)
    use = callback(apply_every_n_batches=every)
    trainer(tmp_path, use).fit(rest, again(), ckpt_path=path)
    assert torch.equal(rest.fc.weight, whole.fc.weight)


@resumes
def test_a_checkpoint_from_within_a_batch_has_nothing_of_it(tmp_path: Path) -> None:
    class Saves(Net):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            super().training_step(batch, batch_idx)
            if batch_idx == 2:
                self.trainer.save_checkpoint(tmp_path / "within.ckpt")

    whole, rest = Saves(), Net()
    trainer(tmp_path, callback()).fit(whole, again())
    trainer(tmp_path, callback()).fit(rest, again(), ckpt_path=tmp_path / "within.ckpt")
    assert torch.equal(rest.fc.weight, whole.fc.weight)


def test_what_was_carried_and_pending_outlives_an_interrupted_batch(tmp_path: Path) -> None:
    """One learner with two cells, whose optimizers step one after the other."""

    class Fails(SteppedMidway):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            if batch_idx == 2:
                self.optimizers()[1].step = self.fail
            super().training_step(batch, batch_idx)

        def fail(self) -> None:
            raise OSError("on purpose")

    net, cells = Fails(), {"a": CellSpec("fc", "lif"), "b": CellSpec("fc2", "lif2")}
    use = callback(cells=cells, carry=True)
    states: list[Any] = []
    look = Probe("on_train_batch_end", lambda *_: states.append(copy.deepcopy(use.state_dict())))
    with pytest.raises(OSError, match="on purpose"):
        trainer(tmp_path, use, look).fit(net, loader(3))
    before, after = (str(state["host"]) for state in (states[-1], use.state_dict()))
    assert len(states) == 2
    assert before == after


# ---------------------------------------------------------------------------- scalers
class HeadAndOwn(AutomaticHead):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def configure_optimizers(self) -> Any:
        return [super().configure_optimizers()[0], OwnOptimizer.configure_optimizers(self)]

    def training_step(self, batch: Any, batch_idx: int) -> None:
        backprop, local = self.optimizers()
        backprop.zero_grad()
        self.manual_backward(self.losses(batch)[0])
        backprop.step()
        local.step()


@pytest.mark.parametrize("model", [AutomaticOwnOptimizer, OwnOptimizer, HeadAndOwn])
def test_a_gradient_scaler_leaves_updates_alone(model: type[Net], tmp_path: Path) -> None:
    def scaled(scaler: Any) -> tuple[pl.Trainer, Tensor]:
        net = model().float()
        data = torch.utils.data.DataLoader(
            TensorDataset(spikes(20).float(), torch.arange(20) % OUTPUTS), batch_size=5
        )
        precision = MixedPrecision("16-mixed" if scaler else "bf16-mixed", "cpu", scaler)
        run = trainer(tmp_path, callback(), plugins=[precision])
        run.fit(net, data)
        return run, net.fc.weight.detach()

    run, weight = scaled(torch.amp.GradScaler("cpu"))
    assert run.global_step == (8 if model is HeadAndOwn else 4)
    assert not torch.equal(weight, Net().float().fc.weight)
    _, expected = scaled(None)
    assert torch.allclose(weight, expected, atol=0.05)


# ---------------------------------------------------------------------------- the strategy
def test_the_strategy_is_as_it_was(tmp_path: Path) -> None:
    run = trainer(tmp_path, callback(), callback(Noting(), name="two"))
    inside = Probe("on_train_batch_end", lambda run, _: sorted(vars(run.strategy)))
    run.callbacks.append(inside)
    before = sorted(vars(run.strategy))
    run.fit(Net(), loader(1))
    assert set(inside.found[0]) - set(before) == {"training_step", "optimizer_step"}
    assert sorted(vars(run.strategy)) == before


def test_optimizers_that_are_set_up_anew(tmp_path: Path) -> None:
    def anew(run: pl.Trainer, _: Any) -> None:
        run.strategy.setup_optimizers(run)

    for model in (OwnOptimizer, AutomaticOwnOptimizer, AutomaticHead, Net):
        net, again = model(), Probe("on_train_epoch_start", anew)
        expected = fit_by_hand(net, list(loader(3)), epochs=2)[-1]
        run = trainer(tmp_path, callback(), again, max_epochs=2)
        run.fit(net, loader(3))
        assert close(net.fc.weight, expected)
        assert run.global_step == 6
