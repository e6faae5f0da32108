"""The README's code runs, and so does what `make docs` cannot run of the other pages."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.cli import LightningCLI
from sklearn.datasets import load_digits
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn
from torch.utils.data import DataLoader

from lightning_accum.nn import LIF

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs leave behind should not lie in the repository."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("seed", range(5))
def test_readme_code_learns_and_logs(seed: int, capfd: pytest.CaptureFixture[str]) -> None:
    code, _ = blocks(README, "python")
    torch.manual_seed(seed)  # which the page leaves open
    exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})
    shown = capfd.readouterr().out
    ((accuracy, counted),) = re.findall(r"(\d+)% of the (\d+) digits", shown)
    assert int(accuracy) > 80  # 10 by chance
    assert int(counted) == len(load_digits().data) - 1300
    events = EventAccumulator("lightning_logs/version_0")
    events.Reload()
    steps = [logged.step for logged in events.Scalars("updates/input/weight/update_norm")]
    assert steps == [49, 99, 149, 199]


def test_readme_code_monitors_any_module(capfd: pytest.CaptureFixture[str]) -> None:
    _, code = blocks(README, "python")
    exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})
    events = EventAccumulator("lightning_logs/version_0")
    events.Reload()
    (logged,) = events.Scalars("updates/layer.weight/ratio")
    assert logged.value > 0


def test_bars_of_the_benchmarks_are_those_that_were_measured() -> None:
    module = runpy.run_path(str(ROOT / "scripts/bench_front.py"))
    text = (ROOT / "docs/measurements.md").read_text(encoding="utf-8")
    picture = (ROOT / "docs/pictures/speed.svg").read_text(encoding="utf-8")
    drawn = [int(ms.replace(",", "")) for ms in re.findall(r">([\d,]+) ms<", picture)]
    measured = [round(ms.whole) for ms in module["batches"](text).values()]
    assert sorted(drawn) == sorted(measured)


def test_measured_times_and_memory_stand_only_on_the_page_that_a_script_writes() -> None:
    """Elsewhere nothing would keep them up to date."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    for folder in ("docs", "docs/rules", "docs/tutorials"):
        pages += (ROOT / folder).glob("*.md")
    pages.remove(ROOT / "docs/measurements.md")
    texts = {page.name: page.read_text(encoding="utf-8") for page in pages}
    unit = re.compile(r"^.*(?:µs|microsecond|\b[MG]B\b).*$", re.M | re.I)
    assert [(name, line) for name, text in texts.items() for line in unit.findall(text)] == []


def test_readme_names_targets_that_there_are() -> None:
    named = set(re.findall(r"\bmake ([a-z-]+)", README.replace("pip and make", "")))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"demo", "test", "docs"} <= named <= targets


def test_readme_links_lead_somewhere() -> None:
    found = re.findall(r"\]\(([^)]+)\)|<img src=\"([^\"]+)\"", README)
    links = [link or source for link, source in found if "://" not in link]
    assert any(link.endswith(".png") for link in links)
    assert [link for link in links if not (ROOT / link).exists()] == []


class Patterns(pl.LightningModule):
    """Has the names that the quickstart's configuration uses."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.lif = nn.Linear(4, 2, bias=False), LIF(2, time_dim=0)
        nn.init.ones_(self.fc.weight)

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        self.lif.reset()
        self.lif(self.fc(batch.transpose(0, 1)))

    def train_dataloader(self) -> DataLoader[torch.Tensor]:
        return DataLoader((torch.rand(6, 5, 4) < 0.5).float(), batch_size=2)

    def configure_optimizers(self) -> None:
        return None


def test_quickstart_yaml_configures_a_fit(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (text,) = blocks((ROOT / "docs/quickstart.md").read_text(encoding="utf-8"), "yaml")
    Path("config.yaml").write_text(text, encoding="utf-8")
    options = ["--config", "config.yaml", "--trainer.accelerator=cpu", "--seed_everything=false"]
    monkeypatch.setattr(sys, "argv", ["program", "fit", *options])
    cli = LightningCLI(Patterns)
    capfd.readouterr()
    assert cli.trainer.global_step == 9
    assert not torch.equal(cli.model.fc.weight, torch.ones(2, 4))
