"""DistributedDataParallel for modules that no gradient trains."""

from __future__ import annotations

import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy


class LocalDDPStrategy(DDPStrategy):
    """DDP that also takes a module without any parameter that asks for a gradient.

    Where nothing is trained by backpropagation there is no gradient to reduce, and torch refuses to
    wrap the module. Here it is brought in line between the processes, as DDP does at its start, and
    runs unwrapped; the callback sums the accumulated updates. With a parameter that asks for a
    gradient it is Lightning's ``DDPStrategy``.

    Args:
        **kwargs: those of ``lightning.pytorch.strategies.DDPStrategy``.

    Example:
        >>> import lightning.pytorch as pl
        >>> trainer = pl.Trainer(
        ...     strategy=LocalDDPStrategy(), accelerator="cpu", devices=1, logger=False
        ... )
    """

    def configure_ddp(self) -> None:
        """Wraps the module, if there is a gradient to reduce."""
        module = self.model
        assert module is not None
        if any(param.requires_grad for param in module.parameters()):
            super().configure_ddp()
            return
        for tensor in (*module.parameters(), *module.buffers()):
            dist.broadcast(tensor.detach(), src=0)
