"""What a rule does to one stimulus in continuous time, sampled in shorter and shorter steps."""

import itertools
import re
from functools import partial
from pathlib import Path

import pytest
import torch
from references import RULES
from rule_trainers import trainer_of
from test_error_rules import MAKERS, POTENTIAL
from torch import nn

import lightning_accum as la
from lightning_accum import Cell, get_updater
from lightning_accum.functional import GaussianKernel

MS = 64
STEPS = (1.0, 0.5, 0.25, 0.125)  # ms
PAGE = Path(__file__).parents[2] / "docs/rules.md"
EXTRA = {
    "STDP, nearest": partial(RULES["STDP"].make, trace_mode="nearest"),
    "DelayAdjustedSTDP": partial(trainer_of, la.DelayAdjustedSTDP, 0.3, -0.2),
    "DelayAdjustedSTDP, delay": partial(
        trainer_of, la.DelayAdjustedSTDP, -1.0, 1.0, params="delay"
    ),
    "DelayAdjustedKernelSTDP": partial(trainer_of, la.DelayAdjustedKernelSTDP, GaussianKernel(0.3)),
    "Sanger": partial(trainer_of, la.Sanger, 0.3),
    "STLLR": partial(trainer_of, la.STLLR, 0.3, 0.2, 8.0, 12.0, **POTENTIAL),
    **{name: make for name, make in MAKERS.items() if not name.startswith("EProp,")},
}
MAKE = {**{name: case.make for name, case in RULES.items()}, **EXTRA}
OF_VALUES = {"Hebb", "AntiHebb", "Covariance", "BCM", "Oja", "Sanger", "WTAHebb", "SoftHebb"}
OF_GRADIENTS = {"OTTT", "STLLR"}
PER_STEP = {*OF_VALUES, *OF_GRADIENTS, "EProp", "DeltaRule"}
CROSSING = 8 / torch.pi  # both outputs are equal at whole ms, between samples, and win in turns


class Plays(nn.Module):
    """A neuron whose output and potential are given."""

    def __init__(self, output, u):
        super().__init__()
        self.output, self.u, self.given = output, u[:0], u

    def forward(self, x):
        self.u = self.given
        return self.output


def train(times, dt):
    """Returns the spikes of each neuron at these times in ms, ``[T, 1, N]``."""
    spikes = torch.zeros(round(MS / dt), 1, len(times), dtype=torch.float64)
    for neuron, each in enumerate(times):
        spikes[[round(at / dt) for at in each], 0, neuron] = 1.0
    return spikes


def waves(dt, *periods):
    """Returns values in continuous time between 0 and 1, sampled mid-step, ``[T, 1, N]``."""
    ms = (torch.arange(round(MS / dt), dtype=torch.float64) + 0.5) * dt
    return 0.5 + 0.5 * torch.sin(ms[:, None, None] / torch.tensor(periods, dtype=torch.float64))


def change(name, dt):
    """Returns what a rule changes three weights of two neurons by."""
    pre = train([[3, 17, 30, 44], [9, 12, 50], [20, 21, 40, 59]], dt)
    post = train([[5, 19, 29, 47, 60], [9, 33, 52]], dt)
    if name in OF_VALUES:
        pre, post = waves(dt, 5.0, 7.0, 11.0), waves(dt, CROSSING, -CROSSING)
    fc = nn.Linear(3, 2, bias=False, dtype=torch.float64)
    fc.weight.data = torch.tensor([[0.1, 0.5, 0.3], [0.6, 0.2, 0.4]], dtype=torch.float64)
    fc.register_buffer("delay", torch.tensor([[0.0, 3.0, 9.0], [5.0, 1.0, 2.0]]).double())
    neuron = Plays(post.requires_grad_(name in OF_GRADIENTS), waves(dt, 8.0, 3.0))
    rule = MAKE[name](dt=dt, time_dim=0)
    rule.register_cell("cell", Cell(fc, neuron))
    output = neuron(fc(pre))
    given = {}
    if name in OF_GRADIENTS:
        (output * waves(dt, 4.0, 9.0)).sum().backward()
    elif name in ("EProp", "DeltaRule"):
        given["error"] = waves(dt, 4.0, 9.0) - 0.3
    elif name.startswith("MSTDP"):
        given["reward"] = waves(dt, 10.0)[..., 0] - 0.2
    rule(**given)
    updater = get_updater(fc)
    param = updater.names[0]
    return getattr(updater, param).update(getattr(fc, param)).detach()


def shrinks(changes):
    """Returns whether each halving of the step makes less of a difference than the one before."""
    apart = [float((one - other).abs().max()) for one, other in itertools.pairwise(changes)]
    return all(later <= 0.7 * before + 1e-12 for before, later in itertools.pairwise(apart))


@pytest.mark.filterwarnings("ignore:`Clopath` should pair spikes")
@pytest.mark.parametrize("name", MAKE)
def test_the_change_is_that_of_the_time_or_of_a_step(name):
    """Twice as many steps make the same change, or twice the change, and nothing else."""
    changes = [change(name, dt) for dt in STEPS]
    if name in PER_STEP:
        changes = [dt * each for dt, each in zip(STEPS, changes, strict=True)]
    assert shrinks(changes)
    atol = 0.02 * STEPS[-1] if name in PER_STEP else 0.0
    torch.testing.assert_close(changes[-2], changes[-1], rtol=0.1, atol=atol)


def test_the_page_says_which():
    table = PAGE.read_text().partition("**Activity.**")[0]
    rows = re.findall(r"^\| `(\w+)` .*\| (.+) \|$", table, re.M)
    said = {rule: column for rule, column in rows if rule != "Rule"}
    every = [name for name in MAKE if ", " not in name]
    assert said == {name: "per step" if name in PER_STEP else "kept" for name in every}
