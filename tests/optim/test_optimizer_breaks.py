"""A step that breaks off leaves an optimizer that goes on, and torch's threads as they were."""

import sys

import pytest
import torch
from optimizer_cases import CASES, give_gradients, parameters, run, same

from lightning_accum.optim import Adam


@pytest.mark.parametrize("name", CASES)
def test_a_first_step_without_memory_can_be_taken_again(name, monkeypatch):
    params, others = parameters(), parameters()
    optimizer = CASES[name](params)
    zeros, calls = torch.zeros_like, []

    def scarce(*args, **kwargs):
        calls.append(1)
        if len(calls) == 4:
            raise MemoryError
        return zeros(*args, **kwargs)

    monkeypatch.setattr(torch, "zeros_like", scarce)
    give_gradients(params, 0)
    with pytest.raises(MemoryError):
        optimizer.step()
    monkeypatch.undo()
    assert all("exp_avg" in s or "mean" in s for s in optimizer.state.values())
    same(run(optimizer, params, 3), run(CASES[name](others), others, 3))


def interrupted(call, at):
    """Calls with a Ctrl-C at the given line of the package, as it comes; whether it came."""
    seen = 0

    def trace(frame, event, arg):
        nonlocal seen
        if "lightning_accum/optim" not in frame.f_code.co_filename.replace("\\", "/"):
            return None
        if event == "line":
            seen += 1
            if seen == at:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize("name", ["adam", "radam", "one-at-a-time"])
def test_an_interrupt_leaves_an_optimizer_that_goes_on(name):
    came, at = True, 0
    while came:
        at += 1
        params = parameters(shapes=((5,), (2, 3)))
        optimizer = CASES[name](params)
        give_gradients(params, 0)
        came = interrupted(optimizer.step, at)
        kept = [p.detach().clone() for p in params]
        run(optimizer, params, 1, 1)
        assert not any(map(torch.equal, params, kept))
    assert at > 30


def test_a_parameter_of_another_dtype_takes_moments_of_its_own():
    params = parameters()
    optimizer = Adam(params)
    run(optimizer, params, 2)
    params[1].data = params[1].data.float()
    params[1].grad = None
    params[1].grad = torch.ones(3, 5)
    optimizer.step()
    assert optimizer.state[params[1]]["exp_avg"].dtype == torch.float32
