"""The results of papers, each in one thread."""

import pytest
from compiled import threads


@pytest.fixture(autouse=True)
def one_thread():
    with threads(1):
        yield
