"""What all tests share: helpers on the path of the processes that they start, and markers."""

import gc
import logging
import os
from contextlib import nullcontext
from pathlib import Path

import hypothesis
import pytest
import torch
import torch.distributed as dist
from kernel_helpers import threads

from lightning_accum.sparse import kernel_library
from lightning_accum.sparse.kernel_library import REBUILD, library, why_not

# How long an example takes depends on what else the machine does.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

SUPPORT = Path(__file__).parent / "_support"
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(SUPPORT), os.environ.get("PYTHONPATH")])
)

# Where tests that take the fixture `device` make their tensors.
DEVICE = os.environ.get("LIGHTNING_ACCUM_TEST_DEVICE", "cpu")

# By folder: what takes long, and what starts several processes.
MARKERS = {"science": "slow", "survival": "slow", "examples": "slow", "distributed": "distributed"}


def pytest_sessionstart():
    # Imported by a conftest before pytest listens, the package would write its lines by itself.
    logger = logging.getLogger("lightning_accum.callbacks")
    logger.handlers.clear()
    logger.propagate = True
    library(torch.float32)
    reason = why_not() or ""
    if REBUILD in reason:
        pytest.exit(f"Expected the compiled kernel of these sources. Found that {reason}.", 4)


def pytest_collection_modifyitems(items):
    for item in items:
        marker = MARKERS.get(Path(item.path).parent.name)
        if marker is not None:
            item.add_marker(marker)


@pytest.fixture(autouse=True, scope="module")
def small_heap():
    """Lets collections look at the objects of one file only."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def one_thread(request):
    """Computes the results of papers in one thread."""
    with threads(1) if request.path.parent.name == "science" else nullcontext():
        yield


@pytest.fixture
def device():
    """The device of the test, on which new tensors and modules are made."""
    with torch.device(DEVICE) as device:
        yield device


@pytest.fixture
def group():
    """One process that is a group by itself."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture(params=["kernel", "torch"])
def either_form(request, monkeypatch):
    """Runs a test with the compiled kernel, and without."""
    if request.param == "torch":
        monkeypatch.setattr(kernel_library, "library", lambda dtype: None)
