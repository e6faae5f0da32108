"""What several processes have saved, for the tests of a file that names their script."""

from pathlib import Path

import pytest
from run_ranks import run_ranks

collect_ignore_glob = ["*_run.py"]  # torch may be too old for an example in one of these


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def found(request, folder):
    """By the number of processes, what each has saved."""
    script, numbers = Path(__file__).with_name(request.module.SCRIPT), request.module.RANKS
    return {ranks: run_ranks(script, ranks, folder) for ranks in numbers}
