"""What is borrowed from torch does what it is borrowed for."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lightning_accum._compat import (
    compiled_from,
    foreach,
    foreach_add_call,
    foreach_subtract,
    forget_compiled,
    forward_methods,
    fused_adam,
    in_backward,
    is_compiler_failure,
    is_traced,
    own_tensor,
)


class Twice(nn.Module):
    """Calls a layer behind two graph breaks, and in a comprehension."""

    def __init__(self) -> None:
        super().__init__()
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        torch._dynamo.graph_break()
        x = self.relu(x)
        torch._dynamo.graph_break()
        return torch.stack([self.relu(row) for row in x])


def test_what_is_compiled_of_a_model_is_forgotten_and_the_rest_is_not() -> None:
    torch.compiler.reset()
    compiled: list[Any] = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        compiled.append(graph)
        return graph.forward

    model, hits = Twice(), []
    fast = torch.compile(model, backend="eager")
    double = torch.compile(lambda x: 2 * x, backend=backend)
    x = torch.ones(2, 3)
    fast(x), double(x)
    model.relu.register_forward_hook(lambda *_: hits.append(1))
    fast(x)
    assert not hits  # as torch has it
    forget_compiled(model)
    fast(x), double(x)
    assert len(hits) == 3
    assert len(compiled) == 1
    torch.compiler.reset()


def test_where_nothing_is_compiled_there_is_nothing_to_forget(monkeypatch: Any) -> None:
    monkeypatch.delitem(sys.modules, "torch._dynamo.convert_frame", raising=False)
    forget_compiled(nn.Linear(1, 1))


@pytest.mark.parametrize("reentrant", [True, False])
def test_in_backward(reentrant):
    seen = []

    def square(x):
        seen.append(in_backward())
        return x * x

    x = torch.ones(1, requires_grad=True)
    checkpoint(square, x, use_reentrant=reentrant).backward()
    assert seen == [False, True]
    assert not in_backward()


def test_is_traced():
    seen = []

    def double(x):
        seen.append(is_traced())
        return 2 * x

    double(torch.ones(1))
    torch.func.vmap(double)(torch.ones(2))
    torch.func.grad(lambda x: double(x).sum())(torch.ones(1))
    torch.compile(double, backend="eager", fullgraph=True)(torch.ones(1))
    assert seen == [False, True, True, True]
    assert not is_traced()


def test_forward_methods():
    class Doubled(nn.Conv1d):
        def _conv_forward(self, *args: Any) -> Tensor:
            return 2 * super()._conv_forward(*args)

    own = nn.Linear(1, 1)
    own.forward = lambda x: x
    assert forward_methods(Doubled(1, 1, 1)) == ["torch.nn.modules.conv", __name__]
    assert forward_methods(own) == ["<object>"]
    assert Doubled(1, 1, 1)(torch.ones(1, 1, 1)).shape == (1, 1, 1)  # torch does call it


def test_compiled_from():
    model = nn.Sequential(nn.Linear(2, 1))
    assert compiled_from(torch.compile(model)) is model
    assert compiled_from(model) is model


def test_own_tensor():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.BatchNorm1d(2)

        @property
        def weight(self) -> Tensor:
            return self.inner.weight

    tied = Tied()
    assert own_tensor(tied.inner, "weight") is tied.weight
    assert own_tensor(tied.inner, "running_mean") is tied.inner.running_mean
    assert own_tensor(tied, "weight") is own_tensor(tied, "inner") is None


def test_foreach_subtract_and_foreach_add_call():
    targets = [torch.zeros(1), torch.ones(2)]
    values = foreach_subtract([torch.ones(1), torch.full((2,), 3.0)], [torch.zeros(1), targets[1]])
    call = foreach_add_call(targets, values, 0.5)
    assert [target.tolist() for target in targets] == [[0.0], [1.0, 1.0]]
    call()
    assert [target.tolist() for target in targets] == [[0.5], [2.0, 2.0]]


@pytest.mark.parametrize("name", ["add", "sub", "mul", "maximum"])
def test_foreach(name):
    left, right = [torch.ones(2), torch.full((3,), 2.0)], [torch.full((2,), 3.0), torch.ones(3)]
    expected = [getattr(torch, name)(a, b) for a, b in zip(left, right, strict=True)]
    assert all(map(torch.equal, foreach(name)(left, right), expected))
    foreach(f"{name}_")(left, right)
    assert all(map(torch.equal, left, expected))


@pytest.mark.parametrize("decoupled", [False, True])
def test_fused_adam(decoupled):
    options = {"lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.5}
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    weight, reference = torch.ones(3), nn.Parameter(torch.ones(3))
    reference.grad = torch.tensor([1.0, -2.0, 0.0])
    kind([reference], foreach=False, **options).step()
    fused_adam(decoupled)(
        [weight], [reference.grad], [torch.zeros(3)], [torch.zeros(3)], [], [torch.ones(())],
        lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.5, eps=1e-8, amsgrad=False, maximize=False,
    )  # fmt: skip
    torch.testing.assert_close(weight, reference.detach())


def test_is_compiler_failure():
    def broken(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        raise ValueError("no compiler")

    with pytest.raises(RuntimeError) as failure:
        torch.compile(lambda x: 2 * x, backend=broken)(torch.ones(1))
    assert is_compiler_failure(failure.value)
    with pytest.raises(RuntimeError) as other:
        torch.compile(lambda x: x @ x, backend="eager")(torch.ones(2, 3))
    assert not is_compiler_failure(other.value)
