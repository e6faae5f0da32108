"""What DDP needs for modules that learn locally: a strategy, and averages of buffers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor

from lightning_accum._checks import names_in, nearest
from lightning_accum._compat.torch_internals import ignore_in_ddp
from lightning_accum.callbacks._processes import compare
from lightning_accum.callbacks._update_optimizers import optimizes_nothing
from lightning_accum.callbacks.cell_trainer import CellTrainerCallback
from lightning_accum.cells.network_checkpoints import read_share, save_share, splits
from lightning_accum.distributed.world import processes
from lightning_accum.optim import UpdateOptimizer


class AverageBuffers(Callback):
    r"""Averages buffers over processes after every training batch, in one all-reduce.

    .. math:: \theta \leftarrow \frac{1}{R} \sum_r \theta_r

    It is meant for buffers that adapt to activity in a forward pass, such as the thresholds
    ``theta`` of :class:`~lightning_accum.nn.AdaptiveLIF`. Without it, each process adapts its own
    copy, or, if DDP wraps the module, the first process's buffers replace the others at the next
    batch. Each process has the same weight, however many samples it had. With one process nothing
    happens.

    Args:
        names: dotted paths of the buffers in the module.

    Example:
        >>> callback = AverageBuffers(["lif.theta"])
        >>> trainer = pl.Trainer(callbacks=[callback], logger=False)
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names_in("names", names)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Raises an ``AttributeError`` if the module lacks a buffer."""
        known = [name for name, _ in pl_module.named_buffers()]
        unknown = [name for name in self.names if name not in known]
        if unknown:
            raise AttributeError(
                f"Argument `names` should be paths of buffers of the module, which are {known}."
                f" Found {unknown}{nearest(unknown[0], known)}"
            )

    @torch.no_grad()
    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: Any
    ) -> None:
        """Averages the buffers."""
        if (count := processes()) == 1 or not self.names:
            return
        buffers = [pl_module.get_buffer(name) for name in self.names]
        flat = torch.cat([buffer.flatten() for buffer in buffers])
        dist.all_reduce(flat)
        means = flat.div_(count).split([buffer.numel() for buffer in buffers])
        for buffer, mean in zip(buffers, means, strict=True):
            buffer.copy_(mean.view_as(buffer))


class LocalDDPStrategy(DDPStrategy):
    """Runs DDP also for a module that no gradient trains.

    If no parameter requires grad, there is no gradient to reduce, and torch does not wrap the
    module. This strategy copies the parameters and buffers of the first process to the others, as
    DDP does when it starts, and runs the module unwrapped; the callback sums the accumulated
    updates. If the module has no optimizer, or only UpdateOptimizers, ``training_step`` may return
    ``None`` in automatic optimization too, which Lightning rejects under several processes: the
    step then has a loss of zero and no backward pass.

    Of ``Populations(..., split=True)``, which the module makes in ``configure_model``, each process
    keeps its own share, and a checkpoint is a folder with a file of each process; any number of
    processes resumes. Otherwise this is Lightning's ``DDPStrategy``.

    Args:
        **kwargs: passed to ``lightning.pytorch.strategies.DDPStrategy``.

    Example:
        >>> import lightning.pytorch as pl
        >>> trainer = pl.Trainer(
        ...     strategy=LocalDDPStrategy(), accelerator="cpu", devices=1, logger=False
        ... )
    """

    def setup(self, trainer: pl.Trainer) -> None:
        """Sets the module up, and compares the callbacks that wait for those of other processes.

        Raises:
            RuntimeError: in all processes, if one of them lacks such a callback.
        """
        assert self.model is not None
        self._split = splits(self.model)
        ignore_in_ddp(self.model, self._split)
        super().setup(trainer)
        if processes() > 1:
            callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
            waiting = [c for c in callbacks if isinstance(c, (CellTrainerCallback, AverageBuffers))]
            named = {f"callback {i}": each.state_key for i, each in enumerate(waiting, 1)}
            compare({"callbacks": named})

    def configure_ddp(self) -> None:
        """Wraps the module if there is a gradient to reduce."""
        module = self.model
        assert module is not None
        if any(param.requires_grad for param in module.parameters()):
            super().configure_ddp()
            return
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            if name not in self._split:
                dist.broadcast(tensor.detach(), src=0)

    def save_checkpoint(self, checkpoint: Any, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """Writes a checkpoint; every process writes its own if it has a share of a network."""
        module = self.lightning_module
        assert module is not None
        if splits(module):
            save_share(module, filepath, checkpoint)
        else:
            super().save_checkpoint(checkpoint, filepath, *args, **kwargs)

    def load_checkpoint(self, checkpoint_path: Any, *args: Any, **kwargs: Any) -> Any:
        """Reads a checkpoint, or this process's share from those of any number of processes."""
        module = self.lightning_module
        if module is None or not Path(checkpoint_path).is_dir():
            return super().load_checkpoint(checkpoint_path, *args, **kwargs)
        weights_only = bool(kwargs.get("weights_only", args[0] if args else None))
        return read_share(module, checkpoint_path, weights_only)

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the module's training step; a missing loss is zero if nothing is minimized."""
        output = super().training_step(*args, **kwargs)
        module = self.lightning_module
        assert module is not None
        if output is None and module.automatic_optimization and not self._minimizes:
            return torch.zeros((), device=self.root_device)
        return output

    def backward(self, closure_loss: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Runs the backward pass, unless there is nothing to minimize."""
        if not closure_loss.requires_grad and not self._minimizes:
            return closure_loss
        return super().backward(closure_loss, *args, **kwargs)

    @property
    def _minimizes(self) -> bool:
        """Whether an optimizer of the module uses gradients."""
        return not all(
            isinstance(optimizer, UpdateOptimizer) or optimizes_nothing(optimizer)
            for optimizer in self.optimizers
        )
