"""What stands in the README and on the pages runs as a reader pastes it, and leads somewhere."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import check_figures
import pytest
import torch
import zoo
from _data import load_mnist5k
from callback_helpers import Net, loader
from pages import ROOT, blocks
from sklearn.datasets import load_digits
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

from lightning_accum import Cell, get_updater
from lightning_accum.callbacks import CellTrainerCLI

PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for folder in (".", "docs", "docs/rules", "docs/tutorials")
    for path in sorted((ROOT / folder).glob("*.md"))
    if path.name.lower() != "changelog.md"
}
README = PAGES["README.md"]
# Blocks that `make docs`, which runs each by itself, does not run. The list should only shrink.
NOT_RUN = {
    "docs/distributed.md": 4,  # run by tests/distributed/test_ddp_page.py, in several processes
    "docs/foreign-neurons.md": 4,  # run by tests/neurons, where the libraries are installed
    "docs/tutorials/from-other-libraries.md": 5,  # likewise
    "docs/nir.md": 1,  # likewise
    "docs/rules/three-factor.md": 3,  # one trains for a minute, two need other libraries
}
HIDDEN = {
    "testsetup": r"^ *[`:]{3,}\{testsetup\}", "testcleanup": r"^ *[`:]{3,}\{testcleanup\}",
    "a hidden block": r"^ *:hide:", "code that only tests see": r"^ *>>> .*# *doctest: *\+SKIP",
    "a namespace of its own": r"^ *[`:]{3,}\{(?:testcode|doctest)\} +\S",
    "a cell without its code": r"remove[-_](?:cell|input)|hide[-_](?:cell|input)",
    "a cell that may fail": r"raises-exception|skip-execution",
}  # fmt: skip


def run(code):
    """The names that a program has made."""
    scope = {"__name__": "__main__"}
    exec(compile(code, "a page", "exec"), scope)
    return scope


def readme_block(word):
    """The program of the README that has this word."""
    (code,) = [code for code in blocks("README.md") if word in code]
    return code


def logged(name):
    events = EventAccumulator("lightning_logs/version_0")
    events.Reload()
    return events.Scalars(name)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """What runs leave behind should not lie in the repository."""
    monkeypatch.chdir(tmp_path)


# ---------------------------------------------------------------------------- all pages
def test_pages_hide_no_code_and_all_python_on_them_runs():
    docs = {name: text for name, text in PAGES.items() if name.startswith("docs/")}
    assert len(docs) > 20
    for name, text in docs.items():
        hidden = [what for what, pattern in HIDDEN.items() if re.search(pattern, text, re.M)]
        assert hidden == [], name
    python = re.compile(r"^ *```(?:python|py|pycon)\b", re.M)
    counts = {name: len(python.findall(text)) for name, text in docs.items()}
    assert {name: count for name, count in counts.items() if count} == NOT_RUN


def test_measured_times_and_memory_stand_only_on_the_page_that_a_script_writes():
    """Elsewhere nothing would keep them up to date."""
    unit = re.compile(r"^.*(?:µs|microsecond|\b[MG]B\b).*$", re.M | re.I)
    found = {name: unit.findall(text) for name, text in PAGES.items()}
    assert [name for name, lines in found.items() if lines] == ["docs/measurements.md"]


def test_bars_of_the_benchmarks_are_those_that_were_measured():
    module = runpy.run_path(str(ROOT / "scripts/bench_picture.py"))
    picture = (ROOT / "docs/pictures/speed.svg").read_text(encoding="utf-8")
    drawn = [int(ms.replace(",", "")) for ms in re.findall(r">([\d,]+) ms<", picture)]
    page = PAGES["docs/measurements.md"]
    measured = [batch.whole for batch in module["batches"](page).values()]
    measured += module["sample"](page).values()
    assert sorted(drawn) == sorted(map(round, measured))


def test_figures_stand_in_what_was_kept():
    assert check_figures.science(PAGES["docs/science.md"]) == []
    assert check_figures.table(PAGES["docs/zoo.md"]) == []


def test_a_figure_with_another_digit_is_found():
    page, caught = PAGES["docs/science.md"], []
    for figure in re.finditer(r"(?<![\d.,])\d+(?:\.\d+|(?= %))(?![\d)])", page):
        *_, before = page[: figure.start()].split("\n\n")
        if "](http" in before + page[figure.end() :].partition("\n\n")[0]:
            continue  # published, by others
        last = figure.end() - 1
        for other in set("0123456789") - {page[last]}:
            changed = f"{page[:last]}{other}{page[last + 1 :]}"
            caught.append(check_figures.science(changed) != [])
    assert len(caught) > 100
    assert sum(caught) > 0.85 * len(caught)  # the others are other figures of a section


def test_a_row_of_the_zoo_with_another_digit_is_found(monkeypatch):
    control = {"noise": ["90.0, 91.0"] * 3}
    kept = {"result": ["98.0, 97.0"] * 2 + ["98.0, 98.0"], "unit": " %", "control": control}
    monkeypatch.setattr(zoo, "recall", lambda: {"conv_wta": {**kept, "simple": {}}})
    check_figures.printed.cache_clear()
    page = zoo.page(zoo.recall())
    assert check_figures.table(page) == []
    row = page.index("| [MNIST-5k](../examples/conv_wta.py)")
    for figure in (f"97.7{zoo.NBSP}%", f"90.5{zoo.NBSP}%", f"+7.2{zoo.NBSP}±"):
        at = page.index(figure, row)
        changed = page[:at] + re.sub(r"\d(?=\D*$)", "3", figure) + page[at + len(figure) :]
        assert len(check_figures.table(changed)) == 1
    check_figures.printed.cache_clear()


PAGE = """# A page

Save this block as
`kept.py`:

```{testcode}
here = 1
```

Then:

```{doctest}
>>> from kept import here
>>> here
1
```

```{testcode}
print(here)
```

```{testoutput}
1
```
"""
CONF = """
extensions, root_doc = ["alone", "myst_parser", "sphinx.ext.doctest"], "without"
doctest_global_setup = "import page_environment; page_environment.enter()"
doctest_global_cleanup = "page_environment.leave()"
"""


@pytest.mark.slow
def test_a_block_has_only_what_it_imports(tmp_path):
    pytest.importorskip("myst_parser", reason="Sphinx and MyST come with the extra docs")
    (tmp_path / "conf.py").write_text(CONF)
    (tmp_path / "as_it_is.md").write_text(PAGE)
    (tmp_path / "without.md").write_text(PAGE.replace("print(here)", "print(1)"))
    command = [sys.executable, "-m", "sphinx", "-q", "-E", "-b", "doctest", ".", "out"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "docs/_ext"), str(ROOT)])}
    assert subprocess.run(command, cwd=tmp_path, env=env, capture_output=True).returncode == 1
    _, *parts = (tmp_path / "out/output.txt").read_text().split("Document: ")
    found = {part.split()[0]: ("NameError" in part, "Failed" in part) for part in parts}
    assert found == {"as_it_is": (True, True), "without": (False, False)}


def test_the_gallery_names_what_an_example_uses_by_way_of_its_folder(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs/_ext"))
    gallery = runpy.run_path(str(ROOT / "docs/_ext/gallery.py"))
    pages = {
        name: gallery["_page"](name, title)
        for titles in gallery["SECTIONS"].values()
        for name, title in titles.items()
    }
    assert not [name for name, page in pages.items() if "It uses ." in page]
    assert "`STDP <lightning_accum.STDP>`" in pages["brunel"]  # which only `_brunel.py` imports


# ---------------------------------------------------------------------------- the README
@pytest.mark.parametrize("seed", range(2))
def test_readme_code_learns_and_logs(seed, capfd):
    torch.manual_seed(seed)  # which the page leaves open
    run(readme_block("load_digits"))
    shown = capfd.readouterr().out
    ((accuracy, counted),) = re.findall(r"(\d+)% of the (\d+) digits", shown)
    assert int(accuracy) > 80  # 10 by chance
    assert int(counted) == len(load_digits().data) - 1300
    steps = [each.step for each in logged("updates/input/weight/update_norm")]
    assert steps == [49, 99, 149, 199]


def test_readme_code_learns_larger_images_of_another_contrast_too(monkeypatch, capfd):
    """It needs no other settings for MNIST's 784 pixels, in a short form here."""
    mnist = load_mnist5k()
    images = torch.cat((mnist.train_images[:2000], mnist.test_images)).flatten(1)
    labels = torch.cat((mnist.train_labels[:2000], mnist.test_labels))
    monkeypatch.setattr("sklearn.datasets.load_digits", lambda return_X_y: (255 * images, labels))
    torch.manual_seed(0)
    run(readme_block("load_digits").replace("1300", "2000").replace("max_epochs=3", "max_epochs=1"))
    (accuracy,) = re.findall(r"(\d+)% of the", capfd.readouterr().out)
    assert int(accuracy) > 74  # 10 by chance


def test_readme_code_monitors_any_module():
    run(readme_block("UpdateMonitor"))
    (only,) = logged("change_ratio/layer")
    assert only.value > 0


def test_readme_code_learns_locally(caplog):
    torch.manual_seed(0)
    caplog.set_level("INFO", "lightning_accum.callbacks")
    scope = run(readme_block("; no loss"))
    assert scope["learner"].cell_trainer.rule.lr_post > 0
    (table,) = [m for m in caplog.messages if m.startswith("Local learning")]
    _, _, row, *advice = table.splitlines()
    assert row.split()[:3] == ["input", "weight", "40"]
    assert 1e-3 < float(row.split()[3]) < 0.1
    assert advice == []


def test_readme_code_accumulates_values():
    found = run(readme_block("accumulators"))["trainer"].callback_metrics
    assert 0 < found["loss"] < found["worst"]
    assert all(each.value > 0 for tag in ("loss", "worst") for each in logged(tag))


def test_readme_names_targets_and_links_that_there_are():
    named = set(re.findall(r"\bmake ([a-z-]+)", README.replace("pip and make", "")))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"demo", "test", "docs"} <= named <= targets
    found = re.findall(r"\]\(([^)]+)\)|<img src=\"([^\"]+)\"", README)
    links = [link or source for link, source in found if "://" not in link]
    assert any(link.endswith(".png") for link in links)
    assert [link for link in links if not (ROOT / link).exists()] == []


# ---------------------------------------------------------------------------- other programs
class Patterns(Net):
    """Has the names that the quickstart's configuration uses, and data."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = True

    def train_dataloader(self):
        return loader(3)


def test_quickstart_yaml_configures_a_fit(monkeypatch):
    (text,) = blocks("docs/quickstart.md", "yaml")
    Path("config.yaml").write_text(text, encoding="utf-8")
    options = ["--config", "config.yaml", "--trainer.accelerator=cpu", "--seed_everything=false"]
    monkeypatch.setattr(sys, "argv", ["program", "fit", *options])
    cli = CellTrainerCLI(Patterns)
    assert cli.trainer.global_step == 9
    assert not torch.equal(cli.model.fc.weight, Patterns().fc.weight)


THREE_FACTOR, SNNTORCH, SPIKINGJELLY = blocks("docs/rules/three-factor.md")


@pytest.mark.slow
def test_three_factor_learning_of_digits(tmp_path, capfd):
    assert len(THREE_FACTOR.splitlines()) <= 50
    torch.manual_seed(0)  # which the page leaves open
    run(THREE_FACTOR)
    shown = re.findall(r"(\S+): ([\d.]+)% of digits", capfd.readouterr().out)
    assert [name for name, _ in shown] == ["e-prop", "BPTT"]
    assert all(float(accuracy) > 90 for _, accuracy in shown)  # 10 by chance
    assert not list(tmp_path.iterdir())


def test_three_factor_learning_with_snntorch():
    pytest.importorskip("snntorch")
    scope = run(SNNTORCH)
    trainer, neuron = scope["trainer"], scope["neuron"]
    torch.manual_seed(0)
    model = nn.ModuleDict({"fc": nn.Linear(6, 4), "readout": nn.Linear(4, 2)})
    fc, readout = model["fc"], model["readout"]
    trainer.rule.feedback.bind_model(model)
    trainer.register_cell("hidden", Cell(fc, neuron))
    x, psi = (torch.rand(20, 3, 6) < 0.6).float(), []
    for now in x:
        _, membrane = neuron(2.0 * fc(now))
        psi.append((0.3 * (1 - (membrane - 1.0).abs())).clamp(min=0).detach())
    error = torch.randn(20, 3, 2)
    trainer(error=error)

    x_bar, filtered, expected = torch.zeros(3, 1, 6), torch.zeros(3, 4, 6), torch.zeros(4, 6)
    for now, p, e in zip(x, psi, error, strict=True):
        x_bar = 0.95 * x_bar + now[:, None]
        filtered = torch.tensor(-1 / 20).exp() * filtered + p[..., None] * x_bar
        expected = expected - 0.01 * ((e @ readout.weight)[..., None] * filtered).mean(0)
    assert expected.abs().max() > 1e-3
    torch.testing.assert_close(get_updater(fc).weight.update(fc.weight), expected.detach())


def test_three_factor_learning_with_spikingjelly():
    pytest.importorskip("spikingjelly")
    scope = run(SPIKINGJELLY)
    trainer, neuron, fc = scope["trainer"], scope["neuron"], nn.Linear(6, 4, bias=False)
    nn.init.constant_(fc.weight, 0.1)
    trainer.register_cell("hidden", Cell(fc, neuron))
    v, potentials = torch.zeros(3, 4), []
    for now in (torch.rand(20, 3, 6) < 0.6).float():
        current = fc(now)
        v = 0.95 * v + current.detach()
        potentials.append((v, neuron(current), neuron.potential))
        v = v - (v >= 1).float()
    expected, spikes, found = map(torch.stack, zip(*potentials, strict=True))
    torch.testing.assert_close(found.detach(), expected)
    assert torch.equal(spikes.detach(), (expected >= 1).float())
    trainer(error=torch.ones(3, 4))  # which warns if the potential is not the one before the reset
    assert not get_updater(fc).weight.empty
