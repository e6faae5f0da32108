"""Sees every transition between training and evaluation mode."""

from __future__ import annotations

import weakref
from typing import Any

from torch import nn

from lightning_accum.cells.trainer import CellTrainer


def is_compiled(model: nn.Module) -> bool:
    """Whether the model or any module in it is under ``torch.compile``."""
    if getattr(model, "_compiler_ctx", None) is not None:  # a compiled LightningModule, unwrapped
        return True
    return any(
        hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None
        for module in model.modules()
    )


class ModeSentinel(nn.Module):
    """A submodule without parameters whose ``training`` passes each change on to a trainer.

    Lightning restores the training mode after validation by writing ``module.training``, which no
    ``.train()`` override sees; a data descriptor sees it, and a user's own ``.eval()`` too. A copy
    of the sentinel, in a copy of the model, tells nobody.

    Args:
        trainer: the trainer to tell; held weakly.
        gate_only: whether to open and close the trainer's gate alone and leave its hooks in place,
            for compiled modules, which lose hooks that are registered again.
    """

    def __init__(self, trainer: CellTrainer, gate_only: bool = False) -> None:
        self.__dict__.update(_training=True, _trainer=None, _gate_only=gate_only, _in_batch=False)
        super().__init__()
        self.__dict__["_trainer"] = weakref.ref(trainer)

    @property
    def training(self) -> bool:
        """The mode of the model."""
        return bool(self.__dict__["_training"])

    @training.setter
    def training(self, mode: bool) -> None:
        self.__dict__["_training"] = mode
        self._tell()

    @property
    def in_batch(self) -> bool:
        """Whether a training batch is running: the second gate."""
        return bool(self.__dict__["_in_batch"])

    @in_batch.setter
    def in_batch(self, value: bool) -> None:
        self.__dict__["_in_batch"] = value
        self._tell()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("training", "in_batch"):
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_trainer": None}

    def _tell(self) -> None:
        reference = self.__dict__["_trainer"]
        trainer = None if reference is None else reference()
        if trainer is None:
            return
        if not self.__dict__["_gate_only"] and trainer.training != self.training:
            trainer.train(self.training)
        trainer.recording = self.training and self.in_batch
