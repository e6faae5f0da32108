from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn

from lightning_accum import CellTrainer, Layer
from lightning_accum.observe import DifferenceMonitor, MultiStateMonitor, PassthroughReducer


class Integrator(nn.Module):
    """Adds up what it takes, in place or not; its state begins as ``None``."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace
        self.v: Tensor | None = None
        self.fired: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if x.isnan().any():
            raise RuntimeError("no number")
        if self.v is None:
            self.v, self.fired = torch.zeros_like(x), torch.zeros_like(x, dtype=torch.bool)
        self.v = self.v.add_(x) if self.inplace else self.v + x
        self.fired = self.v > 2
        return self.v


def hooks(module: nn.Module) -> int:
    return len(module._forward_hooks) + len(module._forward_pre_hooks)


@pytest.mark.parametrize("inplace", [True, False])
def test_the_difference_is_what_a_call_changed(inplace):
    model = nn.Sequential(Integrator(inplace))
    monitor = DifferenceMonitor(model, "0.v", PassthroughReducer(9.0))
    for value in (1.0, 2.0, -4.0):
        model(torch.tensor([value], requires_grad=not inplace))
    assert monitor.dump().tolist() == [[2.0], [-4.0]]  # there was nothing before the first call
    assert not monitor.dump().requires_grad


def test_the_difference_of_booleans_has_a_sign():
    unit = Integrator()
    monitor = DifferenceMonitor(unit, "fired", PassthroughReducer(9.0))
    for value in (0.0, 3.0, 0.0, -3.0):
        unit(torch.tensor([value]))
    assert monitor.dump().flatten().tolist() == [1.0, 0.0, -1.0]


def test_a_call_that_fails_leaves_nothing_behind():
    unit = Integrator()
    monitor = DifferenceMonitor(unit, "v", PassthroughReducer(9.0))
    unit(torch.ones(1))
    with pytest.raises(RuntimeError, match="no number"):
        unit(torch.full((1,), torch.nan))
    unit.v = torch.full((1,), 10.0)
    unit(torch.ones(1))
    assert monitor.dump().tolist() == [[1.0]]


def test_recording_and_mode_gate_the_difference():
    unit = Integrator()
    monitor = DifferenceMonitor(unit, "v", PassthroughReducer(9.0))
    unit(torch.ones(1))
    unit.eval()
    unit(torch.ones(1))
    unit.train()
    monitor.recording = False
    unit(torch.ones(1))
    assert monitor.dump() is None
    monitor.recording = True
    unit(torch.full((1,), 5.0))
    assert monitor.dump().tolist() == [[5.0]]


def test_a_shape_that_changes_in_a_call():
    unit = Integrator()
    monitor = DifferenceMonitor(unit, "v")
    unit(torch.ones(1))
    with pytest.raises(ValueError, match=r"`v`.*\(1,\) before and \(3,\) after"):
        unit(torch.ones(3))
    assert monitor.peek() is None


@pytest.mark.parametrize("through", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
@pytest.mark.parametrize("options", [{}, {"names": ("v", "fired")}])
def test_hooks_come_and_go(through, options):
    unit = Integrator()
    unit(torch.ones(2))
    make = MultiStateMonitor if options else DifferenceMonitor
    monitor = make(unit, "" if options else "v", **options)
    count = 1 if options else 2
    assert hooks(unit) == count
    monitor.register()
    assert hooks(unit) == count
    unit(torch.ones(2))
    twin = through(monitor)
    assert torch.equal(twin.peek(), monitor.peek())
    assert not twin.registered
    twin.bind(unit)
    twin.register()
    assert hooks(unit) == 2 * count
    monitor.deregister()
    assert hooks(unit) == count
    del twin
    assert hooks(unit) == 0


def test_several_states_lie_side_by_side():
    model = nn.Sequential(Integrator())
    monitor = MultiStateMonitor(model, "0", PassthroughReducer(9.0), names=["v", "fired"])
    for value in (1.0, 2.0):
        model(torch.full((4, 3), value))
    assert monitor.dump().shape == (2, 4, 3, 2)
    assert monitor.dump()[:, 0, 0].tolist() == [[1.0, 0.0], [3.0, 1.0]]


def test_several_states_by_dotted_path():
    model = nn.Sequential(Integrator(), Integrator())
    monitor = MultiStateMonitor(model, names=("0.v", "1.v"))
    for _ in range(2):
        model(torch.ones(1))
    assert monitor.peek().tolist() == [[2.0, 3.0]]


def test_several_states_that_do_not_fit():
    norm = nn.Linear(2, 3)
    monitor = MultiStateMonitor(norm, names=("weight", "bias"))
    with pytest.raises(ValueError, match=r"\{'weight': \(3, 2\), 'bias': \(3,\)\}"):
        norm(torch.ones(1, 2))
    assert monitor.peek() is None
    for names in ("weight", ()):
        with pytest.raises(ValueError, match="Argument `names`"):
            MultiStateMonitor(norm, names=names)
    with pytest.raises(AttributeError, match="`wait`, and `Linear` has no `wait`"):
        MultiStateMonitor(norm, names=("weight", "wait"))
    with pytest.raises(AttributeError, match="`Linear` has no `deep`"):
        MultiStateMonitor(norm, "deep", names=("weight",))


def test_a_trainer_shares_those_of_the_same_names():
    layer = Layer({"a": nn.Linear(2, 3), "b": nn.Linear(2, 3)}, {"n": nn.BatchNorm1d(3)})
    trainer = CellTrainer()
    for name in ("a", "b"):
        trainer.add_cell(name, layer.cell(name, "n"))
    make = MultiStateMonitor.partialconstructor
    both = make(names=("running_mean", "running_var"))
    first = trainer.add_monitor("a", "state", "neuron", both)
    assert trainer.add_monitor("b", "state", "neuron", both) is first
    other = trainer.add_monitor("b", "state", "neuron", make(names=("running_mean",)))
    assert other is not first
    change = DifferenceMonitor.partialconstructor()
    moved = trainer.add_monitor("a", "change", "neuron.running_mean", change)
    before = layer.neurons["n"].running_mean.clone()
    layer(a=torch.ones(2, 2))
    assert torch.equal(moved.peek(), layer.neurons["n"].running_mean - before)
