import pytest
import torch
from torch import nn

from lightning_accum import NonFiniteUpdateError, attach_updater
from lightning_accum.optim import Adam, updates_as_gradients


def layer(dtype=torch.float32):
    fc = nn.Linear(3, 2).to(dtype)
    nn.init.constant_(fc.weight, 0.25)
    return fc, attach_updater(fc, "weight", "bias")


def test_the_gradient_is_the_change_reversed():
    fc, updater = layer()
    pos, neg = torch.rand(2, 3), torch.rand(2, 3)
    updater.weight.fullbound("multiplicative", 1.0, 0.0)
    updater.weight = pos, neg
    expected = 0.75 * pos - 0.25 * neg
    updates_as_gradients(updater, updater)  # one is exported once
    torch.testing.assert_close(fc.weight.grad, -expected)
    assert fc.bias.grad is None
    assert updater.weight.empty
    torch.optim.SGD(fc.parameters(), lr=1.0).step()
    torch.testing.assert_close(fc.weight.detach(), 0.25 + expected)


def test_gradients_that_are_there_are_added_to():
    fc, updater = layer()
    fc(torch.ones(1, 3)).sum().backward()
    kept = fc.weight.grad.clone()
    updater.weight = torch.ones(2, 3)
    updates_as_gradients(updater)
    torch.testing.assert_close(fc.weight.grad, kept - 1.0)


def test_a_change_is_not_aliased_and_keeps_the_dtype_of_the_parameter():
    fc, updater = layer(torch.bfloat16)
    change = torch.ones(2, 3)
    updater.weight = change
    updates_as_gradients(updater)
    change.zero_()
    updater.weight = torch.full((2, 3), 5.0)
    assert fc.weight.grad.dtype == torch.bfloat16
    assert torch.equal(fc.weight.grad, -torch.ones(2, 3, dtype=torch.bfloat16))


def test_what_is_not_finite_goes_by_the_policy():
    fc, updater = layer()
    updater.weight = torch.full((2, 3), torch.nan)
    updater.bias = torch.ones(2)
    with pytest.raises(NonFiniteUpdateError, match="weight"):
        updates_as_gradients(updater)
    assert fc.weight.grad is None
    assert fc.bias.grad is None
    updater.nonfinite = "skip"
    updates_as_gradients(updater)
    assert updater.skipped["weight"] == 1
    assert not fc.weight.grad.any()
    Adam(fc.parameters(), lr=0.5).step()
    assert torch.isfinite(fc.weight).all()


@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("every", [1, 6])
def test_gradients_that_are_emptied_or_wait_for_a_step_are_not_told(every, to_none):
    fc, updater = layer()
    optimizer = torch.optim.SGD(fc.parameters(), lr=0.01)
    for i in range(12):
        fc(torch.ones(1, 3)).sum().backward()
        updater.weight = torch.ones(2, 3)
        updates_as_gradients(updater)
        if (i + 1) % every == 0:
            optimizer.step()
            optimizer.zero_grad(set_to_none=to_none)
    assert fc.weight.grad is None or not fc.weight.grad.any()


def test_updates_are_exported_in_inference_mode():
    fc, updater = layer()
    with torch.inference_mode():
        for _ in range(2):
            updater.weight = torch.ones(2, 3)
            updates_as_gradients(updater)
    assert torch.equal(fc.weight.grad, torch.full((2, 3), -2.0))
