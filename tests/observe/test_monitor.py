from __future__ import annotations

import copy
import gc
import operator
import pickle
from collections import OrderedDict

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lightning_accum.observe import (
    InputMonitor,
    Latest,
    OutputMonitor,
    StateMonitor,
    WindowRecorder,
    first_tensor,
)

KINDS = [(InputMonitor, ""), (OutputMonitor, ""), (StateMonitor, "seen")]


class Echo(nn.Module):
    """Gives out what it takes, and remembers it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Tensor | None = None

    def forward(self, *args, **kwargs):
        found = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
        self.seen = found[0] if found else torch.zeros(1)
        return args[0] if len(args) == 1 else (*args, *kwargs.values())


def hooks(module: nn.Module) -> int:
    return len(module._forward_hooks) + len(module._forward_pre_hooks)


def positive(x: Tensor) -> bool:
    return bool(x.sum() > 0)


@pytest.mark.parametrize(("kind", "attr"), KINDS)
def test_sees_what_it_watches(kind, attr):
    echo = Echo()
    monitor = kind(echo, attr)
    assert monitor.peek() is None
    x = torch.ones(2, requires_grad=True)
    echo(x * 3)
    assert monitor.peek().tolist() == [3.0, 3.0]
    assert not monitor.peek().requires_grad
    assert torch.equal(monitor.latest, monitor.peek())
    assert torch.equal(monitor.dump(), monitor.peek().unsqueeze(0))
    assert torch.equal(monitor.view(), monitor.peek())
    monitor.clear()
    assert monitor.peek() is None
    assert monitor.dump() is None


@pytest.mark.parametrize(("kind", "attr"), KINDS)
def test_what_was_seen_is_kept_when_the_module_writes_over_it(kind, attr):
    echo, x = Echo(), torch.ones(2)
    monitor = kind(echo, attr)
    echo(x)
    x.zero_()
    assert monitor.peek().tolist() == [1.0, 1.0]


@pytest.mark.parametrize(("kind", "attr"), KINDS)
@pytest.mark.parametrize("train_update", [True, False])
@pytest.mark.parametrize("eval_update", [True, False])
def test_the_mode_of_the_module_and_the_recording_flag_are_gates(
    kind, attr, train_update, eval_update
):
    echo = Echo()
    monitor = kind(echo, attr, train_update=train_update, eval_update=eval_update)
    for training, expected in ((True, train_update), (False, eval_update)):
        echo.train(training)
        monitor.clear()
        monitor.recording = False
        echo(torch.ones(1))
        assert monitor.peek() is None
        monitor.recording = True
        echo(torch.ones(1))
        assert (monitor.peek() is not None) == expected
    assert monitor.registered


@pytest.mark.parametrize(("kind", "attr"), KINDS)
def test_registering_is_idempotent_and_leaves_nothing_behind(kind, attr):
    echo = Echo()
    monitor = kind(echo, attr, register=False)
    assert hooks(echo) == 0
    assert not monitor.registered
    monitor.register(), monitor.register()
    assert hooks(echo) == 1
    assert monitor.registered
    echo(torch.ones(1))
    monitor.deregister(), monitor.deregister()
    assert hooks(echo) == 0
    echo(torch.zeros(1))
    assert monitor.peek().tolist() == [1.0]
    monitor.register()
    del monitor
    gc.collect()
    assert hooks(echo) == 0


@pytest.mark.parametrize(("kind", "attr"), KINDS)
def test_a_module_that_is_gone(kind, attr):
    echo = Echo()
    monitor = kind(echo, attr)
    assert monitor.module is echo
    monitor.deregister()
    del echo
    gc.collect()
    assert monitor.module is None
    with pytest.raises(RuntimeError, match=r"no longer exists.*bind\(module\)"):
        monitor.register()


@pytest.mark.parametrize(("kind", "attr"), KINDS)
@pytest.mark.parametrize("through", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies(kind, attr, through):
    echo = Echo()
    monitor = kind(echo, attr, filter_=positive, map_=torch.neg)
    echo(torch.ones(1))
    twin = through(monitor)
    assert twin.peek().tolist() == [-1.0]
    assert not twin.registered
    other = through(echo)  # the hook in the copy of the module is inert
    other(torch.full((1,), 5.0))
    assert monitor.peek().tolist() == twin.peek().tolist() == [-1.0]
    twin.bind(other)
    twin.register()
    other(torch.full((1,), 7.0))
    assert twin.peek().tolist() == [-7.0]
    assert monitor.peek().tolist() == [-1.0]
    twin.bind(echo)
    assert twin.registered
    echo(torch.full((1,), 2.0))
    assert monitor.peek().tolist() == twin.peek().tolist() == [-2.0]


@pytest.mark.parametrize(("kind", "attr"), KINDS)
def test_shallow_copies_of_the_module_have_its_hooks_and_are_not_watched(kind, attr):
    echo = Echo()
    monitor = kind(echo, attr)
    copy.copy(echo)(torch.ones(1))
    assert monitor.peek() is None


@pytest.mark.parametrize(
    ("args", "kwargs", "picker", "expected"),
    [
        ((torch.tensor(1.0), torch.tensor(2.0)), {}, first_tensor, 1.0),
        ((torch.tensor(1.0), torch.tensor(2.0)), {}, operator.itemgetter(1), 2.0),
        (((None, torch.tensor(3.0)),), {}, first_tensor, 3.0),
        (({"a": "text", "b": [torch.tensor(4.0)]},), {}, first_tensor, 4.0),
        ((), {"x": torch.tensor(5.0), "y": torch.tensor(6.0)}, first_tensor, 5.0),
        ((), {"x": torch.tensor(5.0), "y": torch.tensor(6.0)}, operator.itemgetter("y"), 6.0),
    ],
)
def test_finds_its_tensor_among_the_arguments(args, kwargs, picker, expected):
    echo = Echo()
    monitor = InputMonitor(echo, picker=picker)
    echo(*args, **kwargs)
    assert monitor.peek().item() == expected


@pytest.mark.parametrize(
    ("result", "picker", "expected"),
    [
        ((torch.tensor(1.0), torch.tensor(2.0)), first_tensor, 1.0),
        ((torch.tensor(1.0), torch.tensor(2.0)), operator.itemgetter(1), 2.0),
        ([None, {"s": torch.tensor(3.0)}], first_tensor, 3.0),
        (OrderedDict(z=torch.tensor(4.0), s=torch.tensor(5.0)), operator.itemgetter("s"), 5.0),
        (torch.tensor(6.0), operator.itemgetter(3), 6.0),
    ],
)
def test_finds_its_tensor_in_the_result(result, picker, expected):
    echo = Echo()
    monitor = OutputMonitor(echo, picker=picker)
    echo(result)
    assert monitor.peek().item() == expected


def test_without_a_tensor_there_is_a_hint():
    echo = Echo()
    monitor = OutputMonitor(echo)
    with pytest.raises(TypeError, match=r"at least one tensor.*`picker`"):
        echo("text")
    assert monitor.peek() is None


def test_filters_and_maps():
    echo = Echo()
    monitor = OutputMonitor(echo, reducer=WindowRecorder(), filter_=positive, map_=torch.sqrt)
    for value in (-1.0, 4.0, 0.0, 9.0):
        echo(torch.tensor([value]))
    assert monitor.dump().tolist() == [[2.0], [3.0]]


def test_states_by_dotted_path():
    model = nn.Sequential(Echo())
    monitor = StateMonitor(model[0], "seen")
    model(torch.ones(1))
    assert monitor.peek().item() == 1.0
    norm = nn.Sequential(nn.BatchNorm1d(1, momentum=1.0))
    deep = StateMonitor(norm, "0.running_mean")
    norm(torch.tensor([[1.0], [3.0]]))
    assert deep.peek().item() == 2.0


@pytest.mark.parametrize(
    ("kind", "attr", "message"),
    [
        (InputMonitor, "nowhere", "`nowhere`, and `Sequential` has no `nowhere`"),
        (OutputMonitor, "0.weigth", "`0.weigth`, and `0` has no `weigth`"),
        (OutputMonitor, "0.weight", "`0.weight`, of type `Parameter`: a StateMonitor"),
        (StateMonitor, "0.nothing", "`0.nothing`, and `Linear` has no `nothing`"),
    ],
)
def test_paths_that_lead_nowhere(kind, attr, message):
    model = nn.Sequential(nn.Linear(1, 1))
    with pytest.raises(AttributeError, match=message):
        kind(model, attr)
    assert hooks(model[0]) == 0


def test_a_partial_constructor_copies_its_reducer():
    echo, reducer = Echo(), Latest()
    make = InputMonitor.partialconstructor(reducer=reducer, eval_update=True)
    one, two = make(echo, ""), pickle.loads(pickle.dumps(make))(echo, "")
    assert len({id(one.reducer), id(two.reducer), id(reducer)}) == 3
    assert one.eval_update
    assert two.eval_update


def test_records_by_hand():
    monitor = OutputMonitor(Echo(), register=False)
    monitor(torch.ones(1))
    assert monitor.peek().item() == 1.0
    assert list(monitor.parameters()) == []


def test_what_is_computed_again_for_a_backward_pass_is_not_seen_again():
    fc, relu = nn.Linear(2, 2), nn.ReLU()
    monitors = [InputMonitor(fc, "", WindowRecorder()), OutputMonitor(relu, "", WindowRecorder())]
    for reentrant in (True, False):
        x = torch.rand(3, 2, requires_grad=True)
        out = checkpoint(lambda x: relu(fc(x)), x, use_reentrant=reentrant)
        out.sum().backward()
    assert [monitor.reducer.length for monitor in monitors] == [2, 2]


def test_what_a_monitor_does_is_no_part_of_the_graph():
    seen = []

    def look(value):
        seen.append((value * value).requires_grad)
        return value

    fc = nn.Linear(2, 2)
    monitor = OutputMonitor(fc, map_=look, filter_=lambda value: not value.requires_grad)
    out = fc(torch.rand(1, 2))
    assert out.requires_grad
    assert seen == [False]
    assert torch.equal(monitor.peek(), out)
