"""One configuration says all: rule, cells and callback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from callback_helpers import Net, close, fit_by_hand, loader
from lightning.pytorch.cli import LightningCLI

from lightning_accum import STDP, CellSpec
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.functional.reductions import reduction

CONFIG: dict[str, Any] = {
    "seed_everything": False,
    "trainer": {
        "accelerator": "cpu",
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "max_epochs": 2,
        "callbacks": [
            {
                "class_path": "lightning_accum.callbacks.CellTrainerCallback",
                "init_args": {
                    "cell_trainer": {
                        "class_path": "lightning_accum.STDP",
                        "init_args": {
                            "lr_post": 0.02,
                            "lr_pre": -0.015,
                            "tc_post": 8.0,
                            "tc_pre": 99.0,
                            "time_dim": 0,
                            "batch_reduction": "mean",
                        },
                    },
                    "cells": {
                        "enc": {
                            "connection": "fc",
                            "neuron": "lif",
                            "params": ["weight"],
                            "overrides": {"tc_pre": 12.0},
                        }
                    },
                    "apply_every_n_batches": 3,
                    "nonfinite": "raise",
                },
            }
        ],
    },
}


def cli(config: dict[str, Any]) -> LightningCLI:
    return LightningCLI(Net, args=config, run=False, save_config_callback=None)


def test_everything_from_one_configuration(tmp_path: Path) -> None:
    config = {**CONFIG, "trainer": {**CONFIG["trainer"], "default_root_dir": str(tmp_path)}}
    made = cli(config)
    (use,) = [c for c in made.trainer.callbacks if isinstance(c, CellTrainerCallback)]
    assert isinstance(use.cell_trainer, STDP)
    assert use.host.cells == {"enc": CellSpec("fc", "lif", ("weight",), {"tc_pre": 12.0})}
    expected = fit_by_hand(made.model, list(loader(4)), every=3, epochs=2)[-1]
    made.trainer.fit(made.model, loader(4))
    assert close(made.model.fc.weight, expected)
    assert made.trainer.global_step == 4


def test_the_whole_can_be_printed_and_read_back(tmp_path: Path) -> None:
    made = cli(CONFIG)
    text = made.parser.dump(made.config, skip_none=False)
    again = made.parser.parse_string(text)
    (use,) = again["trainer"]["callbacks"]
    assert use["init_args"]["cells"]["enc"]["connection"] == "fc"
    assert use["init_args"]["cell_trainer"]["init_args"]["tc_pre"] == 99.0


@pytest.mark.parametrize("wrong", ["lr_pots", "nonfinite"])
def test_what_is_misspelt_is_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    rule = {"class_path": "lightning_accum.STDP", "init_args": {"lr_post": 1.0, "lr_pre": -1.0}}
    args: dict[str, Any] = {"cell_trainer": rule}
    if wrong == "lr_pots":
        rule["init_args"] = {"lr_pots": 1.0, "lr_pre": -1.0}
    else:
        args["nonfinite"] = "drop"
    path = "lightning_accum.callbacks.CellTrainerCallback"
    callbacks = [{"class_path": path, "init_args": args}]
    with pytest.raises(SystemExit):
        cli({"trainer": {"callbacks": callbacks}})
    assert wrong in capsys.readouterr().err


def test_an_update_optimizer_from_the_command_line(tmp_path: Path) -> None:
    """``--optimizer`` gives it to a module that configures none."""
    code = (
        "from lightning.pytorch.cli import LightningCLI\n"
        "import lightning.pytorch as pl, torch\n"
        "class Plain(pl.LightningModule):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.fc = torch.nn.Linear(2, 1)\n"
        "        self.automatic_optimization = False\n"
        "cli = LightningCLI(Plain, run=False, save_config_callback=None)\n"
        "print(cli.model.configure_optimizers())\n"
    )
    options = [
        "--optimizer=lightning_accum.optim.UpdateOptimizer",
        "--optimizer.lr=0.5",
        "--trainer.accelerator=cpu",
        "--trainer.logger=false",
        f"--trainer.default_root_dir={tmp_path}",
    ]
    root = Path(__file__).parents[2]
    found = subprocess.run(
        [sys.executable, "-c", code, *options], capture_output=True, text=True, cwd=root, check=True
    )
    assert "UpdateOptimizer" in found.stdout
    assert "lr: 0.5" in found.stdout


@pytest.mark.parametrize("name", ["mean", "sum"])
def test_a_reduction_by_name(name: str) -> None:
    assert reduction(name).fn(torch.ones(2, 1), 0).item() == (2 if name == "sum" else 1)
