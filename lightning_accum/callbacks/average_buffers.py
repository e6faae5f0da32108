"""The callback that averages buffers over processes."""

from collections.abc import Sequence
from typing import Any

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import Callback

from lightning_accum._checks import names_in, nearest
from lightning_accum.distributed.world import processes


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
