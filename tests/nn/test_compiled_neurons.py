"""What is compiled where there is no kernel, which the tests take away, and how often."""

import pytest
import torch
from kernel_helpers import currents, threads
from round_trips import unpacked

from lightning_accum.nn import LIF, AdaptiveLIF, _fast, neuron
from lightning_accum.nn._fast import BLOCK, SERIAL
from lightning_accum.sparse.kernel_library import library


@pytest.fixture(autouse=True)
def _without_kernel(monkeypatch):
    monkeypatch.setattr(neuron, "integrate_neurons", lambda *_: False)
    monkeypatch.setattr(_fast, "has_kernel", lambda *_: False)


@pytest.fixture
def _traced_only(monkeypatch):
    """Has torch trace what it compiles, and generate no code for it, which takes seconds."""
    whole = torch.compile
    monkeypatch.setattr(torch, "compile", lambda fn, options: whole(fn, backend="eager"))


def _pair(kind, size, **options):
    """The same neurons, compiled and not."""
    options = {"time_dim": 0} | options
    return kind(size, compile=True, **options), kind(size, **options)


def _agree(compiled, eager, current):
    spikes, expected = compiled(current), eager(current)
    assert spikes.dtype == expected.dtype
    assert torch.equal(spikes, expected)
    torch.testing.assert_close(unpacked(compiled), unpacked(eager))


def _graphs():
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


@pytest.mark.skipif(library(torch.float64) is None, reason="there is no kernel")
@pytest.mark.parametrize("kind", [LIF, AdaptiveLIF])
def test_where_there_is_a_kernel_nothing_is_compiled(kind, monkeypatch):
    monkeypatch.undo()
    compiled, eager = _pair(kind, 11, refractory=2.0)
    before, current = _graphs(), currents(4 * BLOCK + 1, 3, 11)
    assert torch.equal(compiled(current), eager(current))
    assert torch.equal(compiled.voltage, eager.voltage)
    assert _graphs() == before


@pytest.mark.usefixtures("_traced_only")
@pytest.mark.parametrize(("kind", "dtype"), [(LIF, torch.float16), (AdaptiveLIF, torch.bool)])
def test_batches_and_lengths_of_all_sizes_share_what_is_compiled(kind, dtype):
    compiled, eager = _pair(kind, 6, refractory=2.0, spike_dtype=dtype)
    before = _graphs()
    for batch in (4, 7, 1, 6, 2, BLOCK):
        _agree(compiled, eager, currents(2 * BLOCK + batch, batch, 6))
    assert 1 <= _graphs() - before <= 3  # for the first batch, for one sample, and for any
    made = _graphs()
    for batch in range(1, 40):
        _agree(compiled, eager, currents(BLOCK + batch % 23, batch, 6, seed=batch))
    _agree(compiled, eager, currents(BLOCK, 0, 6))
    assert _graphs() == made


@pytest.mark.usefixtures("_traced_only")
def test_inputs_in_memory_of_any_kind_share_what_is_compiled():
    compiled, eager = _pair(LIF, 12)
    block = currents(BLOCK, 3, 12)
    kept = block.clone()
    _agree(compiled, eager, block)
    made = _graphs()
    _agree(compiled, eager, currents(2, 5, BLOCK, 3, 12)[1, 2])
    _agree(compiled, eager, currents(12, 3, BLOCK).permute(2, 1, 0))
    _agree(compiled, eager, currents(BLOCK, 1, 12).expand(-1, 3, -1))
    _agree(compiled, eager, currents(BLOCK, 3, 12).requires_grad_())
    shaped, plain = _pair(LIF, (2, 2, 3))
    _agree(shaped, plain, currents(BLOCK, 3, 2, 2, 3))
    assert _graphs() == made
    assert torch.equal(block, kept)


def test_a_large_layer_by_several_threads():
    compiled, eager = _pair(LIF, SERIAL // 2 + 1)
    with threads(2):
        _agree(compiled, eager, currents(BLOCK, 2, SERIAL // 2 + 1))


def test_theta_is_changed_in_place_and_autograd_knows():
    compiled, _ = _pair(AdaptiveLIF, 5, theta_plus=0.3)
    theta = compiled.theta
    factor = torch.ones(5, requires_grad=True)
    product = (factor * theta).sum()
    compiled(currents(BLOCK, 3, 5))
    assert compiled.theta is theta
    assert (theta > 0).any()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_within_a_module_that_is_compiled():
    compiled, eager = _pair(AdaptiveLIF, 9)
    net = torch.nn.Sequential(torch.nn.Identity(), compiled)
    whole = torch.compile(net, backend="eager")
    current = currents(BLOCK, 3, 9)
    assert torch.equal(whole(current), eager(current))
    compiled.compile(backend="eager")  # which Module has from torch
    assert torch.equal(compiled(current), eager(current))


def test_without_a_compiler():
    lif, current = LIF(17, time_dim=0, compile=True), currents(BLOCK, 3, 17)
    with (
        torch._inductor.config.patch({"cpp.cxx": (None, "no-such-compiler")}),
        pytest.raises(RuntimeError, match=r"Found `compile = True`, and that it fails"),
    ):
        lif(current)
    assert lif.voltage is None
    assert torch.equal(lif(current), LIF(17, time_dim=0)(current))
