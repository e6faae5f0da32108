from copy import deepcopy

import pytest
import torch
from torch import nn

from lightning_accum.nn import DelayedLinear, Linear
from lightning_accum.sparse.events import events_pay
from lightning_accum.sparse.kernel_library import has_kernel
from lightning_accum.updates import Updatable


@pytest.mark.parametrize("bias", [True, False])
def test_is_a_torch_linear(bias):
    connection, reference = Linear(4, 3, bias=bias), nn.Linear(4, 3, bias=bias)
    assert set(connection.state_dict()) == set(reference.state_dict())
    connection.load_state_dict(reference.state_dict())
    x = torch.rand(7, 2, 4)
    assert torch.equal(connection(x), reference(x))
    assert isinstance(connection, nn.Linear)
    assert isinstance(connection, Updatable)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64])
@pytest.mark.parametrize("connection", [Linear(4, 3), DelayedLinear(4, 3, 5.0, time_dim=0)])
def test_takes_spikes(connection, dtype):
    one, other = deepcopy(connection).double(), deepcopy(connection).double()
    spikes = torch.rand(7, 2, 4) < 0.5
    assert torch.equal(one(spikes.to(dtype)), other(spikes.double()))


# From the first to the second size, events are worth a look; the third has too many of them.
@pytest.mark.parametrize(("shape", "p"), [((3, 40), 0.02), ((50, 8, 300), 0.02), ((400, 300), 0.9)])
@pytest.mark.parametrize("bias", [True, False])
def test_spikes_cost_by_the_spike_and_say_the_same(shape, p, bias):
    connection = Linear(shape[-1], 200, bias=bias).double()
    spikes = torch.rand(shape, generator=torch.Generator().manual_seed(0)) < p
    by_events = events_pay(spikes.reshape(-1, shape[-1]), connection.weight)
    assert by_events == (len(shape) == 3 and has_kernel(spikes.device, torch.float64))
    outs, grads = [], []
    for x in (spikes, spikes.double()):
        connection.zero_grad()
        out = connection(x)
        out.square().sum().backward()
        outs.append(out.detach())
        grads.append([param.grad for param in connection.parameters()])
    torch.testing.assert_close(*outs, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(*grads, rtol=1e-12, atol=1e-12)


def test_spikes_under_transformations_of_the_product():
    connection = Linear(300, 200, bias=False)
    spikes = torch.rand(3, 200, 300, generator=torch.Generator().manual_seed(0)) < 0.02
    expected = connection(spikes.float())
    torch.testing.assert_close(torch.func.vmap(connection)(spikes), expected)
    compiled = torch.compile(connection, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(spikes), expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert connection(spikes).dtype == torch.bfloat16
