"""What all tests share: helpers on the path of the processes that they start, and markers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parent / "_support"
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(SUPPORT), os.environ.get("PYTHONPATH")])
)

# By folder: what takes long, and what starts several processes.
MARKERS = {"science": "slow", "survival": "slow", "examples": "slow", "distributed": "distributed"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        marker = MARKERS.get(Path(item.path).parent.name)
        if marker is not None:
            item.add_marker(marker)
