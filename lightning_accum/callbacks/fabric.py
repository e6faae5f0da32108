"""A CellTrainer in a training loop of the user, with or without Lightning Fabric."""

import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lightning.fabric import is_wrapped
from lightning.fabric.utilities.rank_zero import rank_zero_only
from torch import nn
from typing_extensions import Unpack

from lightning_accum._checks import check_factor, knows_arguments
from lightning_accum._training_events import End, Observer
from lightning_accum.callbacks._cell_host import CellHost
from lightning_accum.callbacks._logging import logger
from lightning_accum.callbacks._processes import check_processes_agree
from lightning_accum.cells.cell import CellSpec
from lightning_accum.cells.state import RunOptions
from lightning_accum.cells.trainer import CellTrainer, recorded_steps
from lightning_accum.engine.rule import OPTIONS, Rule
from lightning_accum.optim import updates_as_gradients
from lightning_accum.updates.atomic_changes import NonFinite


class FabricCellTrainer:
    """Runs a :class:`~lightning_accum.CellTrainer` in a Fabric loop, or in any plain loop.

    It does step by step what the callback does in a Trainer: activity is recorded inside
    :meth:`batch`, :meth:`accumulate` evaluates the rule, and :meth:`step` sums the pending updates
    of all processes and applies them. These raise a ``RuntimeError`` before :meth:`setup` and after
    :meth:`release`. It has a state for ``fabric.save`` and ``fabric.load``.

    Under a strategy that wraps modules, such as DDP, a module without parameters that require grad
    should be moved by ``fabric.to_device`` instead of ``fabric.setup``.

    Args:
        cell_trainer, cells, carry, nonfinite, health: as for
            :class:`~lightning_accum.callbacks.CellTrainerCallback`.
        **options: likewise.

    Raises:
        TypeError: if ``cell_trainer`` is neither a rule nor a CellTrainer, or ``cells`` does not
            hold CellSpecs.
        ValueError: if ``nonfinite`` is not one of its values.

    Example:
        >>> import torch
        >>> from lightning.fabric import Fabric
        >>> from lightning_accum import Hebb, RuleTrainer
        >>> fabric = Fabric(accelerator="cpu", devices=1)
        >>> model = fabric.to_device(nn.Sequential(nn.Linear(2, 1, bias=False), nn.Sigmoid()))
        >>> learner = FabricCellTrainer(RuleTrainer(Hebb(0.1)), {"enc": CellSpec("0", "1")})
        >>> learner.setup(model)
        >>> for x in torch.rand(3, 8, 2):
        ...     with learner.batch():
        ...         _ = model(x)
        ...     learner.step()
        >>> learner.release()
    """

    @knows_arguments(*OPTIONS)
    def __init__(
        self,
        cell_trainer: Rule | CellTrainer,
        cells: dict[str, CellSpec] | None = None,
        carry: bool = False,
        nonfinite: NonFinite = "skip",
        health: bool | Mapping[str, bool] = True,
        **options: Unpack[RunOptions],
    ) -> None:
        self.host = CellHost(cell_trainer, cells, carry, nonfinite, health, **options)
        self._recorded = self._compared = False  # a batch; the cells of all processes
        self._end: weakref.finalize[Any, Any] | None = None

    @property
    def cell_trainer(self) -> CellTrainer:
        """The trainer that runs."""
        return self.host.trainer

    def setup(self, module: nn.Module) -> None:
        """Binds the cells in a module that is on its device, and loads a state that waits for them.

        Args:
            module: the module, or what ``fabric.setup`` returned for it.

        Raises:
            AttributeError: if the module lacks a submodule or a parameter.
        """
        inner = module.get_submodule("module") if is_wrapped(module) else module
        self.host.bind(inner)
        self.cell_trainer.train()
        self._compared = self._recorded = False
        if self._end is not None:
            self._end.detach()
        self._end = weakref.finalize(self, _tell, self.host.watch(inner, "loop"))

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Records the activity of cells in training mode; drops it if the batch raises an error."""
        self._check_bound()
        self._recorded = True  # so that `step()` may come inside the batch
        self.cell_trainer.recording = True
        try:
            yield
        except BaseException:
            self._recorded = False
            self.host.abandon_batch()
            raise
        finally:
            self.cell_trainer.recording = False
        if not self._recorded:  # evaluated inside, and more may have been recorded since
            names, trainer = self.host.names, self.cell_trainer
            self._recorded = any(recorded_steps(trainer, name) for name in names)

    def accumulate(self, **inputs: Any) -> None:
        """Evaluates the rule on what was recorded, without applying updates.

        Args:
            **inputs: the inputs of the rule, such as a ``reward``.
        """
        self._check_bound()
        self._recorded = False
        self.host.finish_batch(**inputs)

    def step(self, scale: float = 1.0, **inputs: Any) -> None:
        """Applies the pending updates of all processes; every process has to call this.

        Args:
            scale: factor of every update, and so of the rule's rates.
            **inputs: the inputs of the rule, if recorded activity is not evaluated yet.

        Raises:
            RuntimeError: if processes differ.
            TypeError: if there is an ``lr``, or an input without a batch to evaluate.
            ValueError: if ``scale`` is negative.
            NonFiniteUpdateError: if an update holds NaN or Inf and ``nonfinite`` is ``"raise"``.
        """
        check_factor(scale=scale)
        self._check_exchange("step", inputs)
        if self._recorded:
            self.host.combine(at_once=True)
            try:
                self.accumulate(**inputs)
            finally:
                self.host.combine(at_once=False)
        self.host.exchange()
        self.cell_trainer.update(scale=scale)

    def updates_as_gradients(self, **inputs: Any) -> None:
        """Moves the pending updates to the gradients, for an optimizer to step; replaces `step`.

        Updates are summed over processes first; arguments and errors are those of :meth:`step`.
        """
        self._check_exchange("updates_as_gradients", inputs)
        if self._recorded:
            self.accumulate(**inputs)
        self.host.exchange()
        updates_as_gradients(*self.host.updaters.values())

    def _check_exchange(self, call: str, inputs: Mapping[str, Any]) -> None:
        self._check_bound()
        if "lr" in inputs or (inputs and not self._recorded):
            why = (
                "which nothing takes: pass inputs to `accumulate` if you call it, and `scale` to"
                " `step` for a factor of the rates"
                if "lr" in inputs or self.host.batches
                else "and no batch yet: run the module inside `with learner.batch():`"
            )
            raise TypeError(
                f"Keywords of `{call}` should be inputs of the rule, for a batch that was recorded"
                f" and is not evaluated yet. Found {sorted(inputs)}, {why}."
            )
        if not self._compared:  # the first exchange with other processes
            check_processes_agree(self.cell_trainer)
            self._compared = True

    def _check_bound(self) -> None:
        if not self.host.bound:
            raise RuntimeError(
                "A FabricCellTrainer should be set up before a batch runs. Found no module, or one"
                " that was released: call `setup(module)`."
            )

    def release(self) -> None:
        """Removes every hook; what is learned, recorded and pending stays.

        It warns if a cell or another part of the network has learned nothing. Without this call,
        that comes when this object is deleted or the program ends.
        """
        end, self._end = self._end, None
        try:
            if end is not None and (found := end.detach()):
                _tell(found[2][0], "fit")
        finally:
            self.host.release()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_end": None}

    def state_dict(self) -> dict[str, Any]:
        """Returns a state of tensors and builtins, for ``fabric.save``."""
        return self.host.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a state now, or in :meth:`setup`; a window that was recorded is dropped."""
        self._recorded = False
        self.host.load_state_dict(state_dict)


def _tell(events: Observer, how: End = "deleted") -> None:
    """Ends what observes a loop, and logs its report."""
    events.ended(how)
    if lines := events.lines():
        rank_zero_only(logger.info)("\n".join(lines))
