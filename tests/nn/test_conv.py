import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter

from lightning_accum.nn import Conv1d, Conv2d, Conv3d
from lightning_accum.nn import conv as module

KINDS = [(Conv1d, nn.Conv1d, 1), (Conv2d, nn.Conv2d, 2), (Conv3d, nn.Conv3d, 3)]


@pytest.mark.parametrize(("ours", "plain", "dims"), KINDS)
def test_as_torch_step_by_step_and_with_its_state_dict(ours, plain, dims):
    torch.manual_seed(0)
    options = {"kernel_size": 2, "stride": 2, "padding": 1, "groups": 2}
    one, other = ours(2, 4, **options), plain(2, 4, **options)
    other.load_state_dict(one.state_dict())
    spikes = torch.rand(3, 2, 2, *[4] * dims) < 0.5
    out = one(spikes)
    assert out.shape == (3, 2, 4, *[3] * dims)
    for step, found in zip(spikes, out, strict=True):
        torch.testing.assert_close(found, other(step.float()))
    torch.testing.assert_close(one(spikes[0, 0]), other(spikes[0, 0].float()))


@pytest.mark.parametrize("channels", [(1, 6), (6, 1)])
@pytest.mark.parametrize("rows", [1, 7, 21])
def test_as_torch_however_many_go_through_at_a_time(channels, rows, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", 6 * 25 * rows)
    one, other = Conv2d(*channels, 3), nn.Conv2d(*channels, 3)
    other.load_state_dict(one.state_dict())
    spikes = torch.rand(10, 2, channels[0], 5, 5) < 0.5
    expected = other(spikes.flatten(0, 1).float()).view(10, 2, channels[1], 3, 3)
    followed = one(spikes)  # in one go
    assert "Convolution" in followed.grad_fn.next_functions[0][0].name()
    with torch.no_grad():
        torch.testing.assert_close(one(spikes), expected)
        torch.testing.assert_close(one(spikes.double().float()), expected)
        assert one(spikes[:0]).shape == (0, 2, channels[1], 3, 3)
    one.requires_grad_(False)
    assert not one(spikes).requires_grad
    values = spikes.float().requires_grad_()
    one(values).square().sum().backward()
    gradient, values.grad = values.grad, None
    other(values.flatten(0, 1)).square().sum().backward()
    torch.testing.assert_close(gradient, values.grad)


def test_compiled_for_sequences_of_any_length(monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", 2 * 25)
    conv = Conv2d(2, 2, 3).requires_grad_(False)
    torch.compiler.reset()
    made = CompileCounter()
    compiled = torch.compile(conv, backend=made, dynamic=True, fullgraph=True)
    for steps in (8, 11, 14):
        x = torch.rand(steps, 3, 2, 5, 5)
        torch.testing.assert_close(compiled(x), conv(x))
    assert made.frame_count < 3  # not one for each
    torch.compiler.reset()
