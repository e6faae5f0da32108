"""Events that are found in a raster while it is used, for one who recorded it just before."""

from __future__ import annotations

from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from lightning_accum.sparse.events import Events


class Finding:
    """Takes the events of a raster, if they are found before it changes.

    Args:
        version: of the raster.
    """

    def __init__(self, version: int) -> None:
        self.version = version
        self.events: Events | None = None


# Only between a hook and the call it belongs to, for memory that others write to has no version.
_waiting: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def expect_events(raster: Tensor) -> Finding | None:
    """Asks who looks for the events of this raster next to leave them here.

    Args:
        raster: which is about to be used.

    Returns:
        Where they will be; ``None`` for a tensor of inference mode, which does not count changes.
    """
    if raster.is_inference():
        return None
    finding = Finding(raster._version)
    _waiting[raster] = finding
    return finding


def publish_events(raster: Tensor, events: Events) -> None:
    """Leaves the events of a raster with who asked for them.

    Args:
        raster: in which they were found.
        events: what was found.
    """
    if raster in _waiting:
        finding = _waiting.pop(raster)
        if finding.version == raster._version:
            finding.events = events
