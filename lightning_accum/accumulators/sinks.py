"""The ends of a pipe: the logger of a LightningModule, or a TensorBoard writer."""

from __future__ import annotations

import logging
import weakref
from typing import Any

from torch import Tensor, nn
from torchmetrics.utilities import rank_zero_warn

from lightning_accum._state_module import COUNT, CheckedState, check_state
from lightning_accum.accumulators.pipe_stage import Stage
from lightning_accum.distributed.world import is_first

_logger = logging.getLogger("lightning_accum")


class Log(Stage, nn.Module):
    """Logs each value through the LightningModule that the pipe is bound to, and passes it on.

    If the pipe is not bound, the value is sent to the ``lightning_accum`` logger of Python's
    ``logging``, at level INFO; if that logger does not show it, the first item brings a warning.
    Two stages that log one name of one module in one epoch bring a warning.

    Args:
        name: name of the value.
        **kwargs: passed to ``LightningModule.log``, such as ``prog_bar=True``.

    Example:
        >>> import torch
        >>> from lightning_accum.accumulators import Log, Mean
        >>> class Module:
        ...     def log(self, name, value):
        ...         print(name, value)
        >>> loss = (Mean() ** Log("loss")).bind(Module())
        >>> loss(torch.tensor(1.0))
        >>> _ = loss.end()
        loss tensor(1.)
    """

    def __init__(self, name: str, **kwargs: Any) -> None:
        super().__init__()
        self.name, self.kwargs = name, kwargs
        # A tuple hides the LightningModule, which may be a parent, from the submodules.
        self._owner: tuple[Any, ...] = ()

    def bind(self, module: Any) -> Log:
        """Logs through a LightningModule, or what has its ``log``, from now on; returns itself."""
        self._owner = (module,)
        return self

    def check(self) -> None:
        """Warns if nothing would be logged."""
        if not self._owner and not _logger.isEnabledFor(logging.INFO):
            rank_zero_warn(
                f"`{self}` should be bound to a LightningModule. Found none, so that nothing"
                " is logged: give the module to the source, `Source(self)`, or to the pipe,"
                " `pipe.bind(self)`, or let Python's logger `lightning_accum` show level INFO."
            )

    def forward(self, value: Any) -> Any:
        """Logs a number or a tensor of one element, and returns it."""
        for module in self._owner:
            # Lightning warns of integer tensors.
            whole = isinstance(value, Tensor) and not value.is_floating_point()
            module.log(self.name, value.float() if whole else value, **self.kwargs)
            _note_logged(module, self)
        if not self._owner and _logger.isEnabledFor(logging.INFO):
            shown = value.tolist() if isinstance(value, Tensor) else value
            _logger.info("%s: %s", self.name, shown)
        return value

    def extra_repr(self) -> str:
        """Returns the name."""
        return repr(self.name)


class Scalar(Stage, CheckedState):
    """Writes each value to TensorBoard, as a scalar, and passes it on.

    Values are counted from 0, and the count is their step. Of several processes, only the first
    writes. A copy of the stage, also a pickled one, opens a new writer on the same folder.

    Args:
        writer: a ``SummaryWriter``, or another object with its ``add_scalar``.
        name: name of the value.

    Example:
        >>> from lightning_accum.accumulators import Mean, Scalar
        >>> class Writer:
        ...     def add_scalar(self, name, value, step):
        ...         print(name, float(value), step)
        >>> loss = Mean() ** Scalar(Writer(), "loss")
        >>> _ = loss.run([1.0, 2.0]), loss.run([3.0])
        loss 1.5 0
        loss 3.0 1
    """

    def __init__(self, writer: Any, name: str) -> None:
        super().__init__()
        self.writer, self.name, self.step = writer, name, 0
        self._folder: str | None = None  # of a writer that is not open yet

    def forward(self, value: Any) -> Any:
        """Writes a number or a tensor of one element, and returns it."""
        if is_first():
            if self._folder is not None:
                from torch.utils.tensorboard import SummaryWriter

                self.writer, self._folder = SummaryWriter(self._folder), None
            self.writer.add_scalar(self.name, value, self.step)
        self.step += 1
        return value

    def get_extra_state(self) -> dict[str, int]:
        """Returns the next step, for the state dict."""
        return {"step": self.step}

    def set_extra_state(self, state: dict[str, int]) -> None:
        """Takes the next step from a state dict, if it fits."""
        self.check_extra_state(state)
        self.step = state["step"]

    def check_extra_state(self, state: Any) -> None:
        """Raises a ``RuntimeError`` if this is not what :meth:`get_extra_state` returns."""
        check_state(f"`{self}`", state, {"step": COUNT})

    def extra_repr(self) -> str:
        """Returns the name."""
        return repr(self.name)

    def __getstate__(self) -> dict[str, Any]:
        # A writer has threads and open files, which cannot be copied; its folder can.
        folder = self._folder or getattr(self.writer, "log_dir", None)
        own = {} if folder is None else {"writer": None, "_folder": folder}
        return {**self.__dict__, **own}


# The stage that logged each name of a module last, with the run and epoch; None after a warning.
_LAST: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()


def _note_logged(module: Any, stage: Log) -> None:
    """Warns, once for a name, if another stage has logged it in the same epoch of a fit."""
    try:
        trainer = module.trainer
        now = id(trainer), trainer.state.fn, trainer.current_epoch
    except (AttributeError, RuntimeError):  # Lightning's property raises without a Trainer
        return
    names = _LAST.setdefault(module, {})
    last = names.get(stage.name, (now, weakref.ref(stage)))
    if last is None:
        return
    epoch, before = last[0], last[1]()
    if epoch != now or before in (None, stage):
        names[stage.name] = now, weakref.ref(stage)
        return
    names[stage.name] = None
    rank_zero_warn(
        f"Each name should be logged by one `Log` of a LightningModule. Found `{stage.name}` logged"
        f" in one epoch by {_place(module, before)} and by {_place(module, stage)}, so that one"
        " value overwrites the other, or is averaged with it: rename one of them."
    )


def _place(module: Any, stage: Log) -> str:
    """Returns where a stage stands in a module."""
    paths = [f"`{path}`" for path, each in module.named_modules() if each is stage]
    return paths[0] if paths else "a pipe that is not an attribute of it"
