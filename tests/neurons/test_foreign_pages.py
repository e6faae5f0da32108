"""The pages and the example about other libraries, each skipped where the library is missing."""

import importlib.util
import re
import sys
import types

import pytest
import torch
from _forked import Forked
from matplotlib.image import imread
from pages import ROOT, blocks

EXAMPLES = ROOT / "examples"


LIBRARIES = ["snntorch", "norse", "spikingjelly"]
DIGITS, *PROGRAMS = blocks("docs/foreign-neurons.md")
TUTORIAL = "docs/tutorials/from-other-libraries.md"
CELLS, BLOCKS = (blocks(TUTORIAL, language) for language in (r"\{code-cell\} ipython3", "python"))
# What each block imports; all of it has to be there, and what that imports in turn.
IMPORTED = [
    "spikingjelly.activation_based.learning", "snntorch.functional.stdp_learner",
    "norse.torch.functional.stdp", "bindsnet.network", "inferno.learn",
]  # fmt: skip


@pytest.fixture
def _without_its_environments(monkeypatch):
    """An empty package over bindsnet's folder, whose `__init__.py` imports OpenCV and games."""
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
    exec("\n".join(CELLS), names)
    names["plt"].close("all")
    return names


@pytest.mark.usefixtures("_without_its_environments")
@pytest.mark.parametrize(("library", "block"), list(zip(IMPORTED, BLOCKS, strict=True)))
def test_the_change_is_equal_to_theirs(library, block, scope):
    assert f"from {library.partition('.')[0]}" in block
    assert "torch.testing.assert_close(" in block
    assert "theirs, ours(" in block
    pytest.importorskip(library, reason=f"{library} cannot be imported")
    names = dict(scope)
    torch.manual_seed(1)
    exec(block, names)
    assert names["theirs"].abs().max() > 0.1
    exec(CELLS[-1].replace("lr_pre=-0.005", "lr_pre=-0.006"), names)  # another rate is noticed
    with pytest.raises(AssertionError, match="not close"):
        exec(block, names)


# ---------------------------------------------------------------------------- foreign-neurons.md
@pytest.fixture
def _gradients():
    """The page turns them off."""
    with torch.enable_grad():
        yield


@pytest.mark.usefixtures("_gradients")
@pytest.mark.parametrize(("library", "block"), list(zip(LIBRARIES, PROGRAMS, strict=True)))
def test_program_on_the_page_learns(library, block, capsys, tmp_path, monkeypatch):
    pytest.importorskip(library, reason=f"{library} is not installed")
    assert f"import {library}" in block or f"from {library}" in block
    torch.manual_seed(0)
    (tmp_path / "digits.py").write_text(DIGITS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "digits", raising=False)
    exec(block, {})
    del sys.modules["digits"]
    (accuracy,) = re.findall(r"(\d+)% of the digits", capsys.readouterr().out)
    assert int(accuracy) > 75  # 10 by chance


# ---------------------------------------------------------------------------- the example
def run(folder, *args, script=EXAMPLES / "foreign_neurons.py"):
    done = Forked(script, ["--short", *args], folder).wait()
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("library", LIBRARIES)
def test_learns_in_its_short_form(library, tmp_path):
    pytest.importorskip(library, reason=f"{library} is not installed")
    shown = run(tmp_path, "--library", library)
    assert "90 updates by STDP, none by gradient" in shown
    spiking, learned, untrained, chance = map(float, re.findall(r"([\d.]+) ?%", shown))
    assert 0.1 < spiking < 1 / 0.9  # one of a hundred neurons is driven at a time
    assert chance == 10
    assert learned > 65
    assert learned - untrained > 15
    assert imread(tmp_path / "foreign_neurons.png").std() > 0.01


def test_skips_without_the_library(tmp_path):
    without = tmp_path / "without.py"
    without.write_text(
        "import runpy, sys\n"
        "for name in ('snntorch', 'norse', 'spikingjelly'): sys.modules[name] = None\n"
        f"sys.path.insert(0, {str(EXAMPLES)!r})\n"
        f"runpy.run_path({str(EXAMPLES / 'foreign_neurons.py')!r}, run_name='__main__')\n"
    )
    everything = run(tmp_path, script=without)
    assert everything.endswith("\nskipped: none of snntorch, norse, spikingjelly is installed\n")
    one = run(tmp_path, "--library", "norse", script=without)
    assert one.endswith("\nskipped: norse is not installed\n")
