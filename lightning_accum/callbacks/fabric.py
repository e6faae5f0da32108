"""A CellTrainer in a loop of one's own, with Lightning Fabric."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lightning.fabric import is_wrapped
from torch import nn

from lightning_accum.callbacks._health import Health
from lightning_accum.callbacks._host import CellHost
from lightning_accum.cells.cell import CellSpec
from lightning_accum.cells.trainer import CellTrainer
from lightning_accum.optim.update import check_lr
from lightning_accum.updates import NonFinite

_PATIENCE = 100  # batches, for a loop has no epochs that are known of


class FabricCellTrainer:
    """Runs a :class:`~lightning_accum.CellTrainer` in a Fabric loop, or in any plain loop.

    What the callback does in a Trainer, said step by step: activity is recorded inside
    :meth:`batch`, :meth:`accumulate` evaluates the rule, and :meth:`step` sums what all processes
    have pending and applies it. It has a state for ``fabric.save`` and ``fabric.load``.

    Under a strategy that wraps modules, such as DDP, a module without any parameter that asks for a
    gradient is not set up by ``fabric.setup`` but moved by ``fabric.to_device``.

    Args:
        cell_trainer: the trainer, usually a rule such as :class:`~lightning_accum.STDP`.
        cells: by name, where the cells are in the module; ``None`` where they were registered with
            ``cell_trainer`` by hand.
        carry: whether batches are pieces of one stream, so that traces pass from one to the next.
        nonfinite: what happens to an update with NaN or Inf: ``"skip"``, ``"raise"``, ``"ignore"``.

    Raises:
        TypeError: if ``cell_trainer`` is no CellTrainer or ``cells`` holds no CellSpecs.
        ValueError: if ``nonfinite`` is none of the three.

    Example:
        >>> import torch
        >>> from lightning.fabric import Fabric
        >>> from lightning_accum import Hebb
        >>> fabric = Fabric(accelerator="cpu", devices=1)
        >>> model = fabric.to_device(nn.Sequential(nn.Linear(2, 1, bias=False), nn.ReLU()))
        >>> learner = FabricCellTrainer(Hebb(0.1), {"enc": CellSpec("0", "1")})
        >>> learner.setup(model)
        >>> for x in torch.rand(3, 8, 2):
        ...     with learner.batch():
        ...         _ = model(x)
        ...     learner.step()
        >>> learner.release()
    """

    def __init__(
        self,
        cell_trainer: CellTrainer,
        cells: dict[str, CellSpec] | None = None,
        carry: bool = False,
        nonfinite: NonFinite = "skip",
    ) -> None:
        self.host = CellHost(cell_trainer, cells, carry, nonfinite)
        self._recorded = False
        self._health: Health | None = None

    @property
    def cell_trainer(self) -> CellTrainer:
        """The trainer that is hosted."""
        return self.host.trainer

    def setup(self, module: nn.Module) -> None:
        """Binds the cells, in a module that is on its device; a state loaded before is taken up.

        Args:
            module: as ``fabric.setup`` gave it, or not set up at all.

        Raises:
            AttributeError: if a path or a parameter is not there.
        """
        inner = module.get_submodule("module") if is_wrapped(module) else module
        self.host.bind(inner)
        self.cell_trainer.train()
        self._health = Health(self.host, _PATIENCE)

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Records the activity of cells in training mode; where the batch fails, none of it.

        Raises:
            RuntimeError: before :meth:`setup`, or after :meth:`release`.
        """
        health = self._checked()
        health.look_if_due((), "loop")
        self.cell_trainer.recording = True
        try:
            yield
        except BaseException:
            self.host.abandon_batch()
            raise
        finally:
            self.cell_trainer.recording = False
        self._recorded = True
        health.batch_ended()

    def accumulate(self, **inputs: Any) -> None:
        """Evaluates the rule on what was recorded, and applies nothing yet.

        Args:
            **inputs: what the rule asks for, such as a ``reward``.

        Raises:
            RuntimeError: before :meth:`setup`, or after :meth:`release`.
        """
        self._checked()
        self._recorded = False
        self.host.finish_batch(**inputs)

    def step(self, lr: float = 1.0, **inputs: Any) -> None:
        """Applies what is pending in all processes together; every process has to call it.

        Args:
            lr: factor of every change.
            **inputs: what the rule asks for, where activity was recorded and not yet evaluated.

        Raises:
            RuntimeError: before :meth:`setup`, or after :meth:`release`.
            ValueError: if ``lr`` is negative.
            NonFiniteUpdateError: if an update holds NaN or Inf, where the policy is to raise.
        """
        check_lr(lr)
        self._checked()
        if self._recorded:
            self.accumulate(**inputs)
        self.host.exchange()
        self.cell_trainer.update(scale=lr)

    def updates_as_gradients(self, **inputs: Any) -> None:
        """In the place of :meth:`step`: hands what is pending to an optimizer, for it to step.

        What all processes have pending is summed first; every process has to call it.

        Args:
            **inputs: what the rule asks for, where activity was recorded and not yet evaluated.

        Raises:
            RuntimeError: before :meth:`setup`, or after :meth:`release`.
        """
        self._checked()
        if self._recorded:
            self.accumulate(**inputs)
        self.host.export_as_gradients()

    def _checked(self) -> Health:
        if not self.host.bound or self._health is None:
            raise RuntimeError(
                "A FabricCellTrainer should know the module before a batch runs. Found no module"
                " set up, or one that was released: call `setup(module)`."
            )
        return self._health

    def release(self) -> None:
        """Takes every hook away; what is learned, recorded and pending stays.

        Warns if a cell has learned nothing.
        """
        health, self._health = self._health, None
        try:
            if health is not None:
                health.fit_ended((), "loop")
        finally:
            self.host.release()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_health": None}

    def state_dict(self) -> dict[str, Any]:
        """Tensors and builtins alone, for ``fabric.save``."""
        return self.host.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes up a state, now or, before :meth:`setup`, then; a window in it is dropped."""
        self._recorded = False
        self.host.load_state_dict(state_dict)
