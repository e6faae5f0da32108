"""The programs of the page on learning with an error that `make docs` does not run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lightning_accum import Cell, get_updater

PAGE = Path(__file__).parent.parent / "docs/rules/three-factor.md"
PROGRAM, SNNTORCH, SPIKINGJELLY = re.findall(
    r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_the_first_program_learns_digits(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(seed)  # which the page leaves open
    exec(compile(PROGRAM, "three-factor.md", "exec"), {"__name__": "__main__"})
    shown = re.findall(r"(\S+): ([\d.]+)% of digits", capfd.readouterr().out)
    assert [name for name, _ in shown] == ["e-prop", "BPTT"]
    assert all(float(accuracy) > 90 for _, accuracy in shown)  # 10 by chance
    assert not list(tmp_path.iterdir())


def test_the_first_program_is_short() -> None:
    assert len(PROGRAM.splitlines()) <= 50


def test_the_page_learns_with_snntorch() -> None:
    pytest.importorskip("snntorch")
    scope: dict[str, object] = {}
    exec(compile(SNNTORCH, "three-factor.md", "exec"), scope)
    rule, neuron = scope["rule"], scope["neuron"]
    torch.manual_seed(0)
    model = nn.ModuleDict({"fc": nn.Linear(6, 4), "readout": nn.Linear(4, 2)})
    rule.bind_model(model)  # type: ignore[attr-defined]
    rule.register_cell("hidden", Cell(model["fc"], neuron))  # type: ignore[attr-defined,arg-type]
    x, psi = (torch.rand(20, 3, 6) < 0.6).float(), []
    for now in x:
        _, membrane = neuron(2.0 * model["fc"](now))  # type: ignore[operator]
        psi.append((0.3 * (1 - (membrane - 1.0).abs())).clamp(min=0).detach())
    error = torch.randn(20, 3, 2)
    rule(error=error)  # type: ignore[operator]

    x_bar, filtered, expected = torch.zeros(3, 1, 6), torch.zeros(3, 4, 6), torch.zeros(4, 6)
    for now, p, e in zip(x, psi, error, strict=True):
        x_bar = 0.95 * x_bar + now[:, None]
        filtered = torch.tensor(-1 / 20).exp() * filtered + p[..., None] * x_bar
        signal = (e @ model["readout"].weight)[..., None]
        expected = expected - 0.01 * (signal * filtered).mean(0)
    assert expected.abs().max() > 1e-3
    fc = model["fc"]
    torch.testing.assert_close(get_updater(fc).weight.update(fc.weight), expected.detach())


def test_the_page_learns_with_spikingjelly() -> None:
    pytest.importorskip("spikingjelly")
    scope: dict[str, Any] = {}
    exec(compile(SPIKINGJELLY, "three-factor.md", "exec"), scope)
    rule, neuron, fc = scope["rule"], scope["neuron"], nn.Linear(6, 4, bias=False)
    nn.init.constant_(fc.weight, 0.1)
    rule.register_cell("hidden", Cell(fc, neuron))
    v, potentials = torch.zeros(3, 4), []
    for now in (torch.rand(20, 3, 6) < 0.6).float():
        current = fc(now)
        v = 0.95 * v + current.detach()
        potentials.append((v, neuron(current), neuron.potential))
        v = v - (v >= 1).float()
    expected, spikes, found = map(torch.stack, zip(*potentials, strict=True))
    torch.testing.assert_close(found.detach(), expected)
    assert torch.equal(spikes.detach(), (expected >= 1).float())
    rule(error=torch.ones(3, 4))  # which warns if the potential is not the one before the reset
    assert not get_updater(fc).weight.empty  # type: ignore[union-attr]
