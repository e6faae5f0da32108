"""The tutorial for users of other libraries: each block shows that a change is equal to theirs."""

import importlib.util
import re
import sys
import types
from pathlib import Path

import pytest
import torch

PAGE = Path(__file__).parents[2] / "docs/tutorials/from-other-libraries.md"
TEXT = PAGE.read_text(encoding="utf-8")
CELLS = re.findall(r"^```\{code-cell\} ipython3\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
BLOCKS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
# What each block imports; all of it has to be there, and what that imports in turn.
LIBRARIES = [
    "spikingjelly.activation_based.learning",
    "snntorch.functional.stdp_learner",
    "norse.torch.functional.stdp",
    "bindsnet.network",
    "inferno.learn",
]


def run(source, scope):
    exec(compile(source, PAGE.name, "exec"), scope)


@pytest.fixture(autouse=True)
def _without_its_environments(monkeypatch):
    """Has `import bindsnet.network` not run `bindsnet/__init__.py`, which imports OpenCV and games.

    An empty package over the same folder does: its modules are the real ones.
    """
    spec = importlib.util.find_spec("bindsnet")
    if spec is not None and spec.submodule_search_locations is not None:
        package = types.ModuleType("bindsnet")
        package.__path__ = list(spec.submodule_search_locations)
        monkeypatch.setitem(sys.modules, "bindsnet", package)
    yield
    for name in [name for name in sys.modules if name.startswith("bindsnet.")]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def scope():
    """What the page's own cells define."""
    pytest.importorskip("matplotlib").use("Agg")
    names = {}
    run("\n".join(CELLS), names)
    names["plt"].close("all")
    return names


@pytest.mark.parametrize(("library", "block"), list(zip(LIBRARIES, BLOCKS, strict=True)))
def test_the_change_is_equal_to_theirs(library, block, scope):
    assert f"from {library.partition('.')[0]}" in block
    assert "torch.testing.assert_close(" in block
    assert "theirs, ours(" in block
    pytest.importorskip(library, reason=f"{library} cannot be imported")
    names = dict(scope)
    torch.manual_seed(1)
    run(block, names)
    assert names["theirs"].abs().max() > 0.1
    run(CELLS[-1].replace("lr_pre=-0.005", "lr_pre=-0.006"), names)  # another rate is noticed
    with pytest.raises(AssertionError, match="not close"):
        run(block, names)
