"""What several processes have saved, for the tests of a file that is also their script."""

import pytest
from run_ranks import run_ranks


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def found(request, folder):
    """By the number of processes, what each has saved; of one and two, or of those in ``RANKS``."""
    if reason := getattr(request.module, "SKIPPED", ""):
        pytest.skip(reason)
    numbers = getattr(request.module, "RANKS", (1, 2))
    return {ranks: run_ranks(request.path, ranks, folder) for ranks in numbers}
