"""Hands the events that a connection finds in its input to the recorder of that input.

A search takes as long as the rest of the recorder's work, so the recorder uses the events that the
connection finds anyway. The two share only the raster: a hook shows it to the recorder just before
the connection is called, and neither knows the other. An attribute of the user's tensor would be
copied and pickled with it, so the expected events stand in a table, whose entries die with their
raster and are removed by the connection.
"""

from __future__ import annotations

from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from lightning_accum._compat import version
from lightning_accum.sparse.events import Events


class ExpectedEvents:
    """Receives the events of a raster, if they are found before the raster changes.

    Args:
        version: the raster's count of in-place changes.
    """

    def __init__(self, version: float) -> None:
        self.version = version
        self.events: Events | None = None


_expected: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def expect_events(raster: Tensor) -> ExpectedEvents | None:
    """Asks for the events of a raster that is about to be used.

    Args:
        raster: the raster.

    Returns:
        The object that receives the events; ``None`` for a tensor of inference mode, which does not
        count its changes.
    """
    if raster.is_inference():
        return None
    expected = ExpectedEvents(version(raster))
    _expected[raster] = expected
    return expected


def publish_events(raster: Tensor, events: Events) -> None:
    """Hands over the events of a raster, if a recorder expects them.

    Args:
        raster: the raster.
        events: its events.
    """
    if raster in _expected:
        expected = _expected.pop(raster)
        if expected.version == version(raster):
            expected.events = events
