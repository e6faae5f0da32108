"""Programs leave much to collect."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def small_heap() -> Iterator[None]:
    """Lets the collections after each program look at its own objects only."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
