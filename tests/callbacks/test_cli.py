"""One YAML file says all: rule, cells and callback."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from callback_helpers import Net, fit_as_by_hand, loader
from test_optimization_modes import Stepping

from lightning_accum import STDP, CellSpec
from lightning_accum.callbacks import CellTrainerCallback as Learner
from lightning_accum.callbacks import CellTrainerCLI, UpdateMonitor, UpdatePictures
from lightning_accum.cells.state import Options
from lightning_accum.optim import UpdateOptimizer

CONFIG = """
trainer:
  accelerator: cpu
  logger: false
  enable_checkpointing: false
  enable_progress_bar: false
  enable_model_summary: false
  max_epochs: 2
  callbacks:
    - class_path: lightning_accum.callbacks.CellTrainerCallback
      init_args:
        cell_trainer:
          class_path: lightning_accum.STDP
          init_args:
            lr_post: 0.02
            lr_pre: -0.015
            tc_post: 8.0
            tc_pre: 99.0
        time_dim: 0
        batch_reduction: mean
        cells:
          enc:
            connection: fc
            neuron: lif
            params: [weight]
            overrides: {tc_pre: 12.0}
        apply_every_n_batches: 3
        nonfinite: raise
        prog_bar: true
"""


@pytest.fixture(autouse=True)
def _root(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def cli(monkeypatch, config, *options, model=Net):
    Path("config.yaml").write_text(config)
    monkeypatch.setattr(sys, "argv", ["program", "--config=config.yaml", *options])
    how = {"save_config_callback": None, "seed_everything_default": False}
    return CellTrainerCLI(model, run=False, **how)


def test_everything_from_one_file_and_an_option_beside_it(monkeypatch):
    option = "--trainer.callbacks.init_args.cell_trainer.init_args.lr_post=0.02"
    made = cli(monkeypatch, CONFIG.replace("lr_post: 0.02", "lr_post: 0.5"), option)
    (use,) = [c for c in made.trainer.callbacks if isinstance(c, Learner)]
    assert use.cell_trainer.rule == STDP(0.02, -0.015, tc_post=8.0, tc_pre=99.0)
    assert use.cell_trainer.options == Options(time_dim=0)
    assert use.host.cells == {"enc": CellSpec("fc", "lif", ("weight",), {"tc_pre": 12.0})}
    assert use.prog_bar
    fit_as_by_hand(made.trainer, made.model, loader(4), every=3, epochs=2)
    assert made.trainer.global_step == 4


def test_callbacks_that_look_on(monkeypatch):
    more = """\
    - class_path: lightning_accum.callbacks.UpdateMonitor
      init_args: {by: module, params: ["fc.*"], prog_bar: true}
    - class_path: lightning_accum.callbacks.UpdatePictures
      init_args:
        every_n_logs: 2
        shapes:
          enc: [2, 3]
"""
    made = cli(monkeypatch, CONFIG + more)
    kinds = (UpdateMonitor, UpdatePictures)
    monitor, pictures = (c for c in made.trainer.callbacks if isinstance(c, kinds))
    assert vars(monitor) == vars(UpdateMonitor("module", ["fc.*"], prog_bar=True))
    assert vars(pictures) == vars(UpdatePictures(2, {"enc": (2, 3)}))
    again = cli(monkeypatch, made.parser.dump(made.config))
    assert again.parser.dump(again.config) == made.parser.dump(made.config)
    (use,) = [c for c in again.trainer.callbacks if isinstance(c, Learner)]
    assert use.host.cells == {"enc": CellSpec("fc", "lif", ("weight",), {"tc_pre": 12.0})}


@pytest.mark.parametrize(("right", "wrong", "message"), [
    ("lr_post: 0.02", "lr_pots: 0.02", "no option `lr_pots`: did you mean `lr_post`"),
    ("time_dim: 0", "tme_dim: 0", "no option `tme_dim`: did you mean `time_dim`"),
    ("            tc_pre: 99.0", "            time_dim: 0", "no option `time_dim`"),
    ("nonfinite: raise", "nonfinite: drop", "drop"),
    ("neuron: lif", "nevron: lif", "`CellSpec` has no option `nevron`: did you mean `neuron`"),
    ("tc_post: 8.0", "tc_post: -8.0", "positive, finite number of ms"),
    ("lightning_accum.STDP", "lightning_accum.STPD", "did you mean `STDP`"),
    ("lightning_accum.STDP", "stdp_", "no class `stdp_`: did you mean `lightning_accum.STDP`"),
    ("lightning_accum.STDP", "lightning_accum.rules.STPD", "mean `lightning_accum.rules.STDP`"),
    ("lightning_accum.STDP", "lightning_acum.STDP", "did you mean `lightning_accum.STDP`"),
    ("callbacks.CellTrainerC", "callback.CellTrainerC", "mean `lightning_accum.callbacks.CellTr"),
    ("callbacks.CellTrainerCallback", "callbacks.CellTrainerCalback", "CellTrainerCallback`?"),
    ("lightning_accum.callbacks.CellTrainerCallback", "EarlyStoping", "mean `lightning.pytorch.c"),
    ("lightning_accum.STDP", "os.sytem", "^(?!(.|\n)*did you mean)"),  # nothing that resembles it
    ("prog_bar: true", "progbar: true", "`progbar`: did you mean `prog_bar`"),
    ("max_epochs: 2", "max_epoch: 2", "does not accept option 'max_epoch'"),
    ("lightning_accum.STDP", "subprocess.Popen", "Popen"),  # of somebody else's file
    ("lightning_accum.STDP", "os.system", "system"),
    ("enc:\n", "enc:\n            class_path: subprocess.Popen\n", "class_path"),
    ("connection: fc", "connection: {class_path: subprocess.Popen}", "class_path"),
    ("connection: fc", "connection: !!python/object/apply:os.getcwd []", "python/object"),
])  # fmt: skip
def test_what_is_wrong_is_refused(right, wrong, message, monkeypatch, capsys):
    with pytest.raises((SystemExit, ValueError)) as error:
        cli(monkeypatch, CONFIG.replace(right, wrong))
    shown = capsys.readouterr().err + str(error.value)
    assert re.search(message, shown)
    assert "usage:" not in shown


# Every module here configures something, and LightningCLI says that it puts its own there.
@pytest.mark.filterwarnings("ignore:.*will be overridden by `CellTrainerCLI:UserWarning")
def test_the_optimizer_from_the_command_line(monkeypatch):
    options = ["--optimizer=lightning_accum.optim.UpdateOptimizer", "--optimizer.lr=0.5"]
    config = CONFIG.replace("apply_every_n_batches: 3", "apply_every_n_batches: null")
    made = cli(monkeypatch, config, *options, model=Stepping)
    fit_as_by_hand(made.trainer, made.model, loader(4), epochs=2, lr=0.5)
    assert [type(optimizer) for optimizer in made.trainer.optimizers] == [UpdateOptimizer]
