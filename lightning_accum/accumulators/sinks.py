"""Where a pipe's values go: the LightningModule's logger, or a TensorBoard writer."""

from __future__ import annotations

import logging
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from lightning_accum.accumulators._stage import Stage

_logger = logging.getLogger("lightning_accum")


class Log(Stage, nn.Module):
    """Logs each value through the LightningModule that the pipe is bound to, and passes it on.

    Where the pipe is bound to none, the value goes to the ``lightning_accum`` logger of Python's
    ``logging``, at level INFO; where that does not show it, a warning comes with the first item.

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
        self.name = name
        self.kwargs = kwargs
        # In a tuple, for a module that held its parent as a submodule would have no end.
        self._owner: tuple[Any, ...] = ()

    def bind(self, module: Any) -> Log:
        """Logs through this module from now on.

        Args:
            module: a LightningModule, or anything with its ``log``.

        Returns:
            This stage.
        """
        self._owner = (module,)
        return self

    def is_heard(self) -> bool:
        """Whether a value that is logged goes anywhere."""
        return bool(self._owner) or _logger.isEnabledFor(logging.INFO)

    def forward(self, value: Any) -> Any:
        """Logs a value.

        Args:
            value: a number or a tensor of one element.

        Returns:
            The value.
        """
        for module in self._owner:
            # Lightning warns of integers.
            whole = isinstance(value, Tensor) and not value.is_floating_point()
            module.log(self.name, value.float() if whole else value, **self.kwargs)
        if not self._owner and _logger.isEnabledFor(logging.INFO):
            shown = value.tolist() if isinstance(value, Tensor) else value
            _logger.info("%s: %s", self.name, shown)
        return value

    def extra_repr(self) -> str:
        """The name."""
        return repr(self.name)


class Scalar(Stage, nn.Module):
    """Writes each value to TensorBoard, as a scalar, and passes it on.

    Values are counted from 0, which is their step. Of several processes, the first alone writes. A
    copy of the stage, and one that was pickled, opens a writer of its own on the same folder.

    Args:
        writer: a ``SummaryWriter``, or anything with its ``add_scalar``.
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
        self.writer = writer
        self.name = name
        self.step = 0

    def forward(self, value: Any) -> Any:
        """Writes a value.

        Args:
            value: a number or a tensor of one element.

        Returns:
            The value.
        """
        if not dist.is_available() or not dist.is_initialized() or dist.get_rank() == 0:
            if isinstance(self.writer, _Folder):
                self.writer = self.writer.open()
            self.writer.add_scalar(self.name, value, self.step)
        self.step += 1
        return value

    def get_extra_state(self) -> dict[str, int]:
        """Returns the next step, for the state dict."""
        return {"step": self.step}

    def set_extra_state(self, state: dict[str, int]) -> None:
        """Takes the next step from a state dict."""
        step = state.get("step") if isinstance(state, dict) else None
        if type(step) is not int or step < 0:
            raise ValueError(
                f"State `step` of `{self}` should be a non-negative integer. Found {state!r}."
            )
        self.step = step

    def extra_repr(self) -> str:
        """The name."""
        return repr(self.name)

    def __getstate__(self) -> dict[str, Any]:
        # A writer has threads and open files, which cannot be copied; its folder can.
        folder = getattr(self.writer, "log_dir", None)
        return {**self.__dict__, "writer": self.writer if folder is None else _Folder(folder)}


class _Folder:
    """A TensorBoard writer that is not open yet."""

    def __init__(self, log_dir: str) -> None:
        self.log_dir = log_dir

    def open(self) -> Any:
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(self.log_dir)
