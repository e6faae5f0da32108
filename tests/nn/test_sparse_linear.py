"""A connection through a fixed set of synapses equals a dense one whose other weights are zero."""

import copy

import pytest
import torch
from kernel_helpers import spikes
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn, get_ema_multi_avg_fn

from lightning_accum.nn import SparseLinear
from lightning_accum.sparse.synapse_products import sum_pairs

DENSITIES = (0.1, 0.7, 1.0)


def layer(density=0.3, dtype=torch.float64):
    torch.manual_seed(3)
    return SparseLinear(17, 11, density).to(dtype)


@pytest.mark.parametrize("density", DENSITIES)
def test_synapses_are_in_the_documented_layout(density):
    connection = layer(density)
    weight, dense = connection.weight.detach(), connection.dense().detach()
    mask = torch.zeros(11, 17, dtype=torch.bool)
    mask[connection.indices.long().unbind()] = True
    assert mask.sum() == len(weight) == 11 * max(1, round(density * 17))
    assert (mask.sum(1) == max(1, round(density * 17))).all()
    assert torch.equal(dense.T[mask.T], weight)  # by input, then by output
    assert torch.equal(dense[mask], weight[connection.order.long()])  # by output, then by input
    assert torch.equal(mask.nonzero()[:, 1].int(), connection.inputs)
    assert torch.equal(mask.T.nonzero()[:, 1].int(), connection.outputs)
    for starts, counts in (
        (connection.starts, mask.sum(0)),
        (connection.starts_of_outputs, mask.sum(1)),
    ):
        assert starts.dtype == torch.int64
        assert torch.equal(starts, F.pad(counts.cumsum(0), (1, 0)))


@pytest.mark.usefixtures("either_form")
@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_output_and_gradients_are_those_of_a_dense_layer(density, dtype):
    connection = layer(density, dtype)
    rtol, atol = (1e-5, 1e-6) if dtype == torch.float32 else (1e-12, 1e-12)
    near = {"rtol": rtol, "atol": atol}
    for x in (spikes(7, 3, 17), spikes(17).to(dtype) * 2.5, spikes(0, 17), spikes(2, 17).byte()):
        expected = F.linear(x.to(dtype), connection.dense(), connection.bias)
        with torch.no_grad():
            torch.testing.assert_close(connection(x), expected, **near)
        x = x.to(dtype).requires_grad_()
        found, expected = connection(x), F.linear(x, connection.dense(), connection.bias)
        sides = x, connection.weight, connection.bias
        wanted = torch.autograd.grad(expected.square().sum(), sides)
        torch.testing.assert_close(torch.autograd.grad(found.square().sum(), sides), wanted, **near)


@pytest.mark.parametrize("change", ["outputs", "starts"])
def test_a_state_with_other_indices_is_rejected_and_changes_nothing(change):
    connection, state = layer(), layer().state_dict()
    state[change] = state[change].flip(0)
    before = connection.dense()
    with pytest.raises(RuntimeError, match="first synapse of each input"):
        connection.load_state_dict(state)
    with pytest.raises(RuntimeError, match="first synapse of each input"):
        torch.nn.Sequential(connection).load_state_dict({f"0.{k}": v for k, v in state.items()})
    assert torch.equal(connection.dense(), before)


WRITES = {
    "a number": lambda index: index.__setitem__(3, 10**9),
    "a negative number": lambda index: index.__setitem__(3, -(10**9)),
    "other data": lambda index: setattr(index, "data", torch.full_like(index, 10**9)),
    "NumPy": lambda index: index.numpy().__setitem__(3, 10**9),
    "another order": lambda index: index.copy_(index.flip(0)),
}


def raises(call):
    try:
        call()
    except (IndexError, RuntimeError):
        return True
    return False


@pytest.mark.usefixtures("either_form")
@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("name", ["starts", "outputs", "starts_of_outputs", "inputs"])
def test_indices_that_are_written_over_are_found_before_they_are_read(name, write, inference):
    with torch.inference_mode(inference):
        connection, x = layer(dtype=torch.float32), torch.ones(2, 17)
        connection(x)
        WRITES[write](getattr(connection, name))
    sides = connection.by_output, connection.by_input
    calls = [
        lambda: connection(x),
        lambda: sum_pairs(torch.ones(2, 11), x, *sides, torch.float32),  # visits outputs
        lambda: sum_pairs(torch.ones(2, 11), x * 0, *sides, torch.float32),  # visits inputs
    ]
    if not inference:
        calls.append(lambda: connection(x.requires_grad_()).sum().backward())
    neurons = write == "another order" and name in ("outputs", "inputs")  # which stay inside
    with torch.inference_mode(inference):
        assert neurons or any(map(raises, calls))


@pytest.mark.parametrize("make", [get_ema_avg_fn, get_ema_multi_avg_fn, None])
@pytest.mark.parametrize("sizes", [(30, 5, 0.3), (400, 300, 0.1), (1, 3, 1.0)])
def test_an_average_of_models_has_their_synapses(make, sizes):
    net = SparseLinear(*sizes)
    kind = {} if make is None else {make.__name__.removeprefix("get_ema_"): make(0.99)}
    average = AveragedModel(net, use_buffers=True, **kind)
    for _ in range(30):
        average.update_parameters(net)
    x = torch.rand(4, sizes[0])
    torch.testing.assert_close(average(x), net(x))
    other = SparseLinear(*sizes)
    other.load_state_dict(average.module.state_dict())
    for name in ("starts", "outputs", "order", "inputs", "starts_of_outputs"):
        assert torch.equal(getattr(other, name), getattr(net, name)), name


def test_the_index_moves_with_the_module_and_is_in_its_state():
    connection = layer()
    assert set(connection.state_dict()) == {"weight", "bias", "starts", "outputs"}
    shared = copy.deepcopy(connection).share_memory()
    assert shared.outputs.is_shared()
    assert shared.order.is_shared()
    assert not connection.outputs.is_shared()
    assert connection.half().outputs.dtype == torch.int32
    whole = nn.Sequential(layer())
    state = {k: v for k, v in whole.state_dict().items() if not k.endswith("starts")}
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "0.starts"'):
        whole.load_state_dict(state)
    assert whole.load_state_dict(state, strict=False).missing_keys == ["0.starts"]


def set_weight(connection, size):
    connection.weight = nn.Parameter(torch.rand(size))


def set_data(connection, size):
    connection.weight.data = torch.rand(size)


@pytest.mark.usefixtures("either_form")
@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
def test_a_weight_or_a_size_of_other_synapses_is_rejected(kind):
    x = torch.ones(2, 17, dtype=kind)
    for size in (3, (2, 2), len(layer().weight) + 1, 0):
        for change in (set_weight, set_data):
            connection = layer(dtype=torch.float32)
            change(connection, size)
            with pytest.raises(ValueError, match="an entry for each synapse"):
                connection(x)
        with pytest.raises(ValueError, match="an entry for each synapse"):
            torch.func.functional_call(layer(dtype=torch.float32), {"weight": torch.rand(size)}, x)
    for name in ("in_features", "out_features"):
        connection = layer(dtype=torch.float32)
        setattr(connection, name, 19)
        with pytest.raises(ValueError, match="from 17 inputs to 11 outputs"):
            connection(torch.ones(2, connection.in_features, dtype=kind))
        with pytest.raises(ValueError, match="from 17 inputs to 11 outputs"):
            connection.replace(torch.ones(len(connection.weight), dtype=torch.bool))


def test_what_does_not_fit_in_memory_is_rejected_at_once():
    with pytest.raises(MemoryError, match="GB free"):
        SparseLinear(10**9, 10**9, density=0.5)


def test_rejects_the_state_of_a_linear():
    made, linear = SparseLinear(5, 3, 0.5), nn.Linear(5, 3)
    for holder, state in (made, linear), (nn.Sequential(made), nn.Sequential(linear)):
        with pytest.raises(RuntimeError, match="load it into a `Linear`, and copy its weights"):
            holder.load_state_dict(state.state_dict())
