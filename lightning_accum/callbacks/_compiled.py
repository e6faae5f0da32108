"""What of a model is under ``torch.compile``."""

from __future__ import annotations

from torch import nn


def is_compiled(model: nn.Module) -> bool:
    """Whether the model or any module in it is under ``torch.compile``."""
    if getattr(model, "_compiler_ctx", None) is not None:  # a compiled LightningModule, unwrapped
        return True
    return any(
        hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None
        for module in model.modules()
    )
