"""Networks as NIR: written to a file, read, and run by others, they give the same spikes."""

import math
import sys

import numpy as np
import pytest
import torch
from pages import blocks
from subtests import turns
from torch import nn
from torch.nn import functional as F

from lightning_accum import Layer, Serial
from lightning_accum import nn as layers
from lightning_accum.nir import to_nir
from lightning_accum.nn import LIF, AdaptiveLIF, Conv1d, Conv2d, LeakyIntegrator, Linear

nir = pytest.importorskip("nir", reason="nir is not installed")
STEPS, BATCH = 120, 3


def written(path, model, *args, **options):
    """A network's graph, from its file."""
    nir.write(path / "net.nir", to_nir(model, *args, **options))
    return nir.read(path / "net.nir")


def run_node(node, x, state, solver, dt):
    """One step of NIR's equations in double precision, with the current constant in it."""
    arrays = {k: v for k, v in vars(node).items() if isinstance(v, np.ndarray)}
    p = {k: torch.as_tensor(v, dtype=torch.float64) for k, v in arrays.items()}
    kind = type(node).__name__
    if kind in ("Linear", "Affine"):
        return F.linear(x, p["weight"], p.get("bias"))
    if kind in ("Conv1d", "Conv2d"):
        conv = F.conv1d if kind == "Conv1d" else F.conv2d
        padding = node.padding.decode() if isinstance(node.padding, bytes) else node.padding
        how = [v if isinstance(v, str) else np.asarray(v).tolist() for v in (node.stride, padding)]
        return conv(x, p["weight"], p["bias"], *how, np.asarray(node.dilation).tolist())
    if kind == "Flatten":
        return x.flatten(node.start_dim + 1)
    if kind in ("Input", "Output"):
        return x
    leak = p.get("v_leak", torch.zeros(()).double())
    v = state.get("v", leak.expand_as(x))
    if "tau" not in p:
        v = v + dt * p["r"] * x
    elif solver == "exact":
        aim = leak + p["r"] * x
        v = aim + (v - aim) * torch.exp(-dt / p["tau"])
    else:
        v = v + dt / p["tau"] * (leak - v + p["r"] * x)
    if "v_threshold" not in p:
        state["v"] = v
        return v
    spikes = v > p["v_threshold"]
    state["v"] = torch.where(spikes, p["v_reset"], v)
    return spikes.double()


def simulate(graph, inputs, solver="exact"):
    """Runs a graph without loops; returns what each of its outputs gives, ``[T, B, ...]``."""
    order = [*graph.inputs]
    while len(order) < len(graph.nodes):
        rest = {name for name in graph.nodes if name not in order}
        order += sorted(rest - {b for a, b in graph.edges if a not in order})
    states = {name: {} for name in order}
    out = {name: [] for name in graph.outputs}
    for t in range(STEPS):
        now = {}
        for name in order:
            before = [now[a] for a, b in graph.edges if b == name]
            x = sum(before[1:], before[0]) if before else inputs[name][t].double()
            dt = float(graph.metadata["dt"])
            now[name] = run_node(graph.nodes[name], x, states[name], solver, dt)
        for name, row in out.items():
            row.append(now[name])
    return {name: torch.stack(row) for name, row in out.items()}


def spikes(*shape, rate=0.2):
    return (torch.rand(STEPS, BATCH, *shape) < rate).float()


def positive(model):
    for parameter in model.parameters():
        parameter.detach().abs_()
    return model


def two_layers(dt=1.0):
    first = Serial(Linear(20, 15), LIF(15, tc_mem=15.0, dt=dt, time_dim=0))
    second = Serial(nn.Linear(15, 5, bias=False), LIF(5, tc_mem=30.0, dt=dt, time_dim=0))
    return positive(nn.Sequential(first, second))


def small_convolution(padding, stride):
    side = math.ceil(8 / stride) if padding == "same" else (8 + 2 * padding - 3) // stride + 1
    return nn.Sequential(
        Conv2d(2, 4, 3, padding=padding, stride=stride, bias=False),
        LIF((4, side, side), tc_mem=12.0, time_dim=0),
        nn.Flatten(2),
        Linear(4 * side * side, 3),
        LIF(3, tc_mem=25.0, v_threshold=0.7 * side * side, time_dim=0),
    )


def dense(*args, **options):
    return lambda: Serial(Linear(20, 9), LIF(9, *args, **options, time_dim=0))


def conv1d():
    conv = Conv1d(2, 4, 5, dilation=2, padding=1)
    return nn.Sequential(conv, LIF((4, 4), tc_mem=9.0, time_dim=0))


MODELS = {
    "two layers": (two_layers, (20,)),
    "steps of 0.5 ms": (lambda: two_layers(dt=0.5), (20,)),
    "rest and reset": (dense(v_threshold=-0.5, v_reset=-1.2, v_rest=-1.0), (20,)),
    "reset above rest": (dense(v_reset=0.4, v_rest=0.1), (20,)),
    "no leak": (dense(math.inf, v_threshold=2, v_reset=-0.5, v_rest=0.5), (20,)),
    "neurons alone": (lambda: nn.Sequential(nn.Identity(), LIF(7, time_dim=0)), (7,)),
    "a 2d convolution": (lambda: small_convolution(1, 2), (2, 8, 8)),
    "a 2d convolution of the same size": (lambda: small_convolution("same", 1), (2, 8, 8)),
    "a 1d convolution": (conv1d, (2, 10)),
}


@pytest.mark.parametrize("solver", ["exact", "euler"])
@pytest.mark.parametrize("name", MODELS)
def test_equations_of_nir_give_the_same_spikes(name, solver, tmp_path):
    torch.manual_seed(0)
    make, shape = MODELS[name]
    model = positive(make())
    x = 0.37 * spikes(*shape) if name == "neurons alone" else spikes(*shape)
    expected = model(x)
    assert 0.005 < expected.mean() < 0.6
    graph = written(tmp_path, model, shape, solver=solver)
    found = simulate(graph, {"input": x}, solver)["output"]
    assert torch.equal(found, expected.double())


def test_units(tmp_path):
    net = Serial(Linear(2, 3), LIF(3, tc_mem=20.0, dt=0.5, v_threshold=2.0))
    graph = written(tmp_path, net)
    gain = 1 - math.exp(-0.5 / 20)
    node = graph.nodes["neuron"]
    assert node.tau == pytest.approx(0.02)
    assert node.r == pytest.approx(1.0)
    assert node.v_threshold == pytest.approx(2 * gain)
    assert graph.metadata["dt"] == pytest.approx(0.0005)
    weight = graph.nodes["connection"].weight
    assert np.array_equal(weight, net.connection.weight.detach().numpy())
    assert to_nir(net, solver="euler").nodes["neuron"].tau == pytest.approx(0.0005 / gain)


@pytest.mark.parametrize("tc", [20.0, math.inf])
@pytest.mark.parametrize("solver", ["exact", "euler"])
def test_a_readout_gives_the_same_potentials(tc, solver, tmp_path):
    torch.manual_seed(0)
    model, x = Serial(Linear(20, 4), LeakyIntegrator(4, tc, time_dim=0)), spikes(20)
    found = simulate(written(tmp_path, model, solver=solver), {"input": x}, solver)["output"]
    torch.testing.assert_close(found, model(x).detach().double(), rtol=1e-4, atol=1e-4)


def test_thresholds_that_adapted(tmp_path):
    torch.manual_seed(0)
    model, x = Serial(Linear(20, 9), AdaptiveLIF(9, theta_plus=0.1, time_dim=0)), spikes(20)
    positive(model)
    model(x)
    with pytest.raises(ValueError, match=r"`neuron` in training mode: call `model\.eval\(\)`"):
        to_nir(model)
    model.eval()
    model.neuron.reset()
    assert model.neuron.theta.unique().numel() > 3
    expected = model(x)
    assert expected.any()
    found = simulate(written(tmp_path, model), {"input": x})["output"]
    assert torch.equal(found, expected.double())


def test_a_layer_of_several_connections_and_neurons(tmp_path):
    torch.manual_seed(0)
    layer = Layer(
        {"a": Linear(6, 5, bias=False), "b": Linear(9, 5)},
        {"fast": LIF(5, tc_mem=5.0, time_dim=0), "slow": LIF(5, tc_mem=40.0, time_dim=0)},
    )
    positive(layer)
    a, b = spikes(6), spikes(9)
    expected = layer(a=a, b=b)
    found = simulate(written(tmp_path, layer), {"input.a": a, "input.b": b})
    assert found.keys() == {"output.fast", "output.slow"}
    for name, each in expected.items():
        assert torch.equal(found[f"output.{name}"], each.double())
    assert not torch.equal(expected["fast"], expected["slow"])
    one = Layer({"a": Linear(6, 5)}, {"n": LIF(5)})
    assert {*written(tmp_path, one).nodes} == {"input", "connections.a", "neurons.n", "output"}


@turns("of", [lambda module: module, nn.utils.parametrizations.weight_norm])
def test_weights_are_copies_of_those_that_act(of):
    net = nn.Sequential(of(nn.Linear(3, 2)), LIF(2))
    weight, acting = to_nir(net).nodes["0"].weight, net[0].weight.detach().numpy().copy()
    for parameter in net.parameters():
        parameter.detach().zero_()
    assert np.array_equal(weight, acting)


# ---------------------------------------------------------------------------- others' simulators
def assert_same_spikes(network, model, x):
    """Runs another simulator's network step by step, and compares it with ours."""
    state, found = None, []
    for now in x:
        out, state = network(now, state)
        found.append(out.detach())
    expected = model(x)
    assert expected.any()
    assert torch.equal(torch.stack(found), expected)


@pytest.mark.filterwarnings("ignore:nirtorch.load is being deprecated:DeprecationWarning")
@pytest.mark.parametrize("dt", [1.0, 0.1])
def test_norse_gives_the_same_spikes(dt, tmp_path):
    norse = pytest.importorskip("norse.torch", reason="Norse, or nirtorch, is not installed")
    torch.manual_seed(0)
    model, x = two_layers(dt), spikes(20)
    network = norse.from_nir(written(tmp_path, model, solver="euler"), dt=dt / 1000)
    assert_same_spikes(network, model, x)


def test_snntorch_gives_the_same_spikes(tmp_path):
    snntorch = pytest.importorskip("snntorch.import_nir", reason="snnTorch is not installed")
    torch.manual_seed(0)
    model, x = two_layers(dt=0.1), spikes(20)  # it has steps of 0.1 ms only
    network = snntorch.import_from_nir(written(tmp_path, model, solver="euler"))
    assert_same_spikes(network, model, x)


@pytest.mark.filterwarnings("ignore:nirtorch.load is being deprecated:DeprecationWarning")
def test_program_on_the_page(tmp_path, monkeypatch, capsys):
    pytest.importorskip("norse.torch", reason="Norse, or nirtorch, is not installed")
    monkeypatch.chdir(tmp_path)
    space = {}
    exec(compile("\n".join(blocks("docs/nir.md")), "nir.md", "exec"), space)
    assert capsys.readouterr().out == "True\n"
    assert 0.02 < space["layer"](space["spikes"]).mean() < 0.5


# ---------------------------------------------------------------------------- what is refused
class Own(nn.Linear):
    def forward(self, input):
        return super().forward(input) ** 2


def not_a_number():
    fc = Linear(2, 2)
    nn.init.constant_(fc.weight, float("nan"))
    return fc


REFUSED = [  # after a connection of two outputs
    (LIF(2, inhibition=layers.LateralInhibition(1.0)), ValueError,
     r"no `inhibition`.*`inhibition = LateralInhibition\(strength=1.0\)` in `1`.*=None"),
    (LIF(2, refractory=2.0), ValueError, r"`refractory = 2.0` in `1`.*=0.0"),
    (layers.SurrogateLIF(2), TypeError, "`SurrogateLIF` as `1`, whose spikes sub"),
    (layers.PoissonEncoder(3, 9.0), TypeError, "at random: export the mod"),
    (nn.ReLU(), TypeError, "AdaptiveLIF, Conv1d, .* Found `ReLU` as `1`: pass"),
    (Own(2, 2), TypeError, "Found `Own` as `1`"),
    (not_a_number(), ValueError, r"should have finite.*NaN or Inf in `1.weight`"),
    (LIF(4), ValueError, r"`1` should have shape \(4,\).*\(2,\) before it"),
    (nn.Sequential(LIF(2, dt=0.5), LIF(2)), ValueError, r"Found \[0.5, 1.0\] ms"),
    (nn.Flatten(0), ValueError, "should have `start_dim=1`"),
    (nn.Conv1d(2, 2, 1, groups=2), ValueError, r"`groups=1`.* as `1`"),
    (nn.Conv2d(2, 2, 1), ValueError, r"`1` should have 3 dim.*\(2,\)"),
]  # fmt: skip


@turns("args, options, error, words", [
    *(((nn.Sequential(Linear(3, 2), module),), {}, *rest) for module, *rest in REFUSED),
    ((nn.Sequential(Conv1d(2, 4, 5), LIF((4, 6))),), {}, ValueError,
     r"`input_shape` should be.*Found None for `0`"),
    ((nn.Flatten(), torch.zeros(1, 2, 2)), {}, TypeError,
     r"`\(1, 28, 28\)`\. Found `Tensor`: pass the shape, not"),
    ((LIF(2),), {"solver": "rk4"}, ValueError, r"\('exact', 'euler'\)\. Found `solver = 'rk4'`"),
    ((nn.Sequential(),), {}, ValueError, "at least one module"),
    (([LIF(2)],), {}, TypeError, r"`model` should be a torch\.nn\.Module"),
    ((Linear(3, 2), (2, 2)), {}, ValueError, r"shape \(3,\).*\(2, 2\) before it"),
])  # fmt: skip
def test_what_is_refused(args, options, error, words):
    with pytest.raises(error, match=words):
        to_nir(*args, **options)


def test_without_nir_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "nir", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "lightning-accum\[nir\]"'):
        to_nir(LIF(2))
