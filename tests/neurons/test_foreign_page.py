"""The programs on the page about other libraries' neurons learn, put together as the page says."""

import re
from pathlib import Path

import pytest
import torch

PAGE = (Path(__file__).parents[2] / "docs/foreign-neurons.md").read_text(encoding="utf-8")
HEAD, TAIL, *BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
LIBRARIES = ["snntorch", "norse", "spikingjelly"]


@pytest.fixture(autouse=True)
def _gradients():
    """The page turns them off."""
    with torch.enable_grad():
        yield


@pytest.mark.parametrize(("library", "block"), list(zip(LIBRARIES, BLOCKS, strict=True)))
def test_program_on_the_page_learns(library, block, capsys):
    pytest.importorskip(library, reason=f"{library} is not installed")
    assert f"import {library}" in block or f"from {library}" in block
    torch.manual_seed(0)
    exec(compile("\n".join((HEAD, block, TAIL)), "foreign-neurons.md", "exec"), {})
    (accuracy,) = re.findall(r"(\d+)% of the digits", capsys.readouterr().out)
    assert int(accuracy) > 75  # 10 by chance
