"""A long sequence runs in pieces, and nobody can tell but by the memory."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.overrides import TorchFunctionMode
from turns import turns

from lightning_accum import STDP, Layer, Serial
from lightning_accum.cells import layer as pieces
from lightning_accum.nn import LIF, AdaptiveLIF, Linear, SurrogateLIF, WinnerTakeAll
from lightning_accum.observe import InputMonitor, OutputMonitor
from lightning_accum.sparse.event_sums import EventProduct

STEPS, BATCH, INPUTS, OUTPUTS = 23, 3, 8, 5


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    """A piece has four steps, so that the last one is shorter."""
    monkeypatch.setattr(pieces, "_LONG", 4 * BATCH * OUTPUTS)
    monkeypatch.setattr(pieces, "_CURRENTS", 4 * BATCH * OUTPUTS + 1)


def sequence(dtype=torch.float32, seed=0):
    spikes = torch.rand(STEPS, BATCH, INPUTS, generator=torch.Generator().manual_seed(seed)) < 0.4
    return spikes.to(dtype)


def connection(make=Linear):
    """Its weights are multiples of 1/8, so that sums do not depend on their order."""
    made = make(INPUTS, OUTPUTS)
    with torch.no_grad():
        for param in made.parameters():
            numbers = torch.randint(-2, 5, param.shape, generator=torch.Generator().manual_seed(1))
            param.copy_(numbers / 8)
    return made


class Sizes(TorchFunctionMode):
    """Notes how many steps the products have."""

    def __init__(self):
        super().__init__()
        self.steps: list[int] = []

    def __torch_function__(self, fn, types, args=(), kwargs=None):
        if fn is nn.functional.linear:
            self.steps.append(len(args[0]))
        return fn(*args, **(kwargs or {}))


def steps_of_products(call):
    with Sizes() as sizes:
        call()
    return sizes.steps


PIECES = [4, 4, 4, 4, 4, 3]

NEURONS = {
    "LIF": lambda: LIF(OUTPUTS, time_dim=0),
    "refractory": lambda: LIF(OUTPUTS, refractory=3.0, time_dim=0, spike_dtype=torch.bool),
    "rest": lambda: LIF(OUTPUTS, v_rest=0.25, time_dim=0),
    "adaptive": lambda: AdaptiveLIF(OUTPUTS, theta_plus=0.125, time_dim=0),
    "inhibition": lambda: LIF(OUTPUTS, time_dim=0, inhibition=WinnerTakeAll(steps=6)),
}


@turns("name", NEURONS)
@turns("make", [Linear, nn.Linear])
def test_equal_to_the_whole(name, make):
    dtype = torch.float32 if make is nn.Linear else torch.bool
    layer, whole = Serial(connection(make), NEURONS[name]()), NEURONS[name]()
    for seed in range(2):  # the state goes on from one sequence to the next
        x = sequence(dtype, seed)
        expected = whole(layer.connection(x))
        assert 0 < int(expected.sum()) < expected.numel()
        found = layer(x)
        assert found.dtype == expected.dtype
        assert torch.equal(found, expected)
    assert torch.equal(layer.neuron.voltage, whole.voltage)
    assert layer.neuron.steps_since_reset == whole.steps_since_reset


@turns("theta_plus", [0.0, 0.125])
@turns("grad", [False, True])
def test_currents_that_nobody_sees_are_not_written(theta_plus, grad, monkeypatch):
    written = []
    values = EventProduct.values

    def write(product):
        written.append(values(product))
        return written[-1]

    monkeypatch.setattr(EventProduct, "values", write)
    options = {"theta_plus": theta_plus, "tc_theta": 50.0, "refractory": 2.0, "time_dim": 0}
    layer = Serial(Linear(400, 100), AdaptiveLIF(100, **options))
    nn.init.uniform_(layer.connection.weight, 0.0, 0.05)
    plain = copy.deepcopy(layer.connection)
    whole = AdaptiveLIF(100, **options)
    before, after = InputMonitor(layer.connection), OutputMonitor(layer.neuron)
    x = torch.rand(60, 8, 400, generator=torch.Generator().manual_seed(0)) < 0.02
    for seen in (False, True):
        with torch.set_grad_enabled(grad):
            written.clear()
            found = layer(x)
            assert len(written) == seen
            expected = whole(plain(x))
        assert 0.01 < expected.mean() < 0.2
        assert torch.equal(found, expected)
        assert torch.equal(layer.neuron.voltage, whole.voltage)
        assert torch.equal(layer.neuron.theta, whole.theta)
        assert torch.equal(before.peek(), x)
        assert torch.equal(after.peek(), found)
        layer.neuron.register_forward_pre_hook(lambda module, args: None)


def test_layer_of_several_is_equal_to_the_whole():
    layer = Layer(
        {"a": connection(), "b": connection(nn.Linear)},
        {"slow": LIF(OUTPUTS, time_dim=0), "fast": LIF(OUTPUTS, tc_mem=5.0, time_dim=0)},
    )
    x, y = sequence(), sequence(seed=3)
    found = {}
    steps = steps_of_products(lambda: found.update(layer(a=x, b=y)))
    assert steps == [each for each in PIECES for _ in range(2)]
    for name, neuron in layer.neurons.items():
        neuron.reset()
        current = layer.connections["a"](x) + layer.connections["b"](y)
        assert torch.equal(found[name], neuron(current))


@turns("side", ["connection", "neuron"])
@turns("hook", ["register_forward_hook", "register_forward_pre_hook"])
def test_who_watches_sees_the_whole(side, hook):
    layer, seen = Serial(connection(), LIF(OUTPUTS, time_dim=0)), []
    watched = layer.get_submodule(side)
    handle = getattr(watched, hook)(lambda module, args, *out: seen.append(len(args[0])))
    assert steps_of_products(lambda: layer(sequence())) == [STEPS]
    assert seen == [STEPS]
    handle.remove()
    assert steps_of_products(lambda: layer(sequence())) == PIECES


def test_a_rule_sees_the_whole():
    layer = Serial(connection(), LIF(OUTPUTS, time_dim=0))
    rule = STDP(lr_post=0.1, lr_pre=-0.1, time_dim=0)
    rule.register_cell("cell", layer.cell)
    assert steps_of_products(lambda: layer(sequence())) == [STEPS]
    rule()
    rule.update()
    rule.eval()
    assert steps_of_products(lambda: layer(sequence())) == PIECES


class Doubled(Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class Shifted(LIF):
    def forward(self, x):
        return super().forward(x.roll(1, 0))


def assigned():
    made = connection()
    made.forward = lambda x: nn.functional.linear(x, made.weight)
    return made


@turns(
    "make, neuron",
    [
        (lambda: connection(Doubled), NEURONS["LIF"]),
        (assigned, NEURONS["LIF"]),
        (lambda: parametrizations.weight_norm(connection()), NEURONS["LIF"]),
        (connection, lambda: Shifted(OUTPUTS, time_dim=0)),
        (connection, lambda: SurrogateLIF(OUTPUTS, time_dim=0)),
        (connection, nn.ReLU),
    ],
)
def test_others_run_whole(make, neuron):
    layer = Serial(make(), neuron())
    assert steps_of_products(lambda: layer(sequence())) == [STEPS]


def test_short_sequences_run_whole_and_errors_name_the_shape_of_the_whole():
    layer = Serial(connection(), LIF(OUTPUTS, time_dim=0))
    assert not layer(sequence()).requires_grad
    assert steps_of_products(lambda: layer(sequence()[:4])) == [4]
    with pytest.raises(ValueError, match=str(STEPS)):
        Serial(connection(), LIF(OUTPUTS + 1, time_dim=0))(sequence())


@pytest.mark.filterwarnings("ignore:.torch.jit.trace.*deprecated:DeprecationWarning")
def test_traced_code_is_of_the_whole():
    """A comparison of sizes would cause a warning, which is an error here."""
    layer = Serial(connection(nn.Linear), nn.ReLU())
    traced = torch.jit.trace(layer, sequence())
    for x in (sequence(seed=1), sequence()[:3]):
        assert torch.equal(traced(x), layer(x))
