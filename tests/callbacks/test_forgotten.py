"""A learner that no Trainer has is told when a Trainer fitted without one."""

from __future__ import annotations

import gc
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from callback_helpers import Net, callback, loader, trainer
from torch import Tensor

from lightning_accum import CellSpec


class Gradients(Net):
    """Learns by an optimizer."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = True

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.fc(batch[0]).square().mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 1e-3)


def forgotten() -> None:
    learner = callback()
    trainer(None).fit(Gradients(), loader())
    del learner


def made_late() -> None:
    fits = trainer(None)
    learner = callback()
    fits.fit(Gradients(), loader())
    del learner


class OwnTrainer(pl.Trainer):
    """A Trainer of the user's own class."""


def of_a_subclass() -> None:
    learner = callback()
    options: dict[str, Any] = {"enable_progress_bar": False, "enable_model_summary": False}
    fits = OwnTrainer(max_epochs=1, logger=False, enable_checkpointing=False, **options)
    fits.fit(Gradients(), loader())
    del learner


def given() -> None:
    trainer(None, callback()).fit(Net(), loader())


def given_to_another() -> None:
    trainer(None, callback()).fit(Net(), loader())
    learner = callback()
    trainer(None, learner).fit(Net(), loader())
    trainer(None).fit(Gradients(), loader())


def replaced_before_the_fit() -> None:
    learner = callback()
    for _ in range(3):
        torch.randn(500, 500).svd()  # takes longer than a fit
        learner = callback()
    trainer(None, learner).fit(Net(), loader())


def for_another_model() -> None:
    learner, fits = callback(cells={"enc": CellSpec("encoder.fc", "lif")}), trainer(None)
    fits.fit(Gradients(), loader())
    del learner, fits


def no_fit() -> None:
    learner = callback()
    fits = trainer(None)
    torch.randn(500, 500).svd()
    del learner, fits


def told(program: Callable[[], None]) -> list[str]:
    gc.collect()  # the Trainers of other tests
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program()
        gc.collect()
    return [str(w.message) for w in caught if "callbacks of the Trainer" in str(w.message)]


@pytest.mark.parametrize("program", [forgotten, made_late, of_a_subclass])
def test_a_learner_that_no_trainer_has_is_told_once(program: Callable[[], None]) -> None:
    (message,) = told(program)
    assert "`STDP,enc`" in message
    assert "`Gradients`" in message


OTHERS = [given, given_to_another, replaced_before_the_fit, for_another_model, no_fit]


@pytest.mark.parametrize("program", OTHERS)
def test_others_are_not_told(program: Callable[[], None]) -> None:
    assert told(program) == []


def test_a_program_tells_it_when_it_ends(tmp_path: Any) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "from test_forgotten import Gradients, callback, loader, trainer\n"
        "learner, fits = callback(), trainer(None)\n"
        "fits.fit(Gradients(), loader())\n"
    )
    run = [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}\n{script.read_text()}"]
    done = subprocess.run(run, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stderr.count("should be among the callbacks of the Trainer") == 1
