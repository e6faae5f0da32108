import asyncio
import copy
import gc
import operator
import threading
from collections import OrderedDict

import pytest
import torch
from monitors import COPIES, hooks
from round_trips import by_pickle
from subtests import turns
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lightning_accum import observe
from lightning_accum.observe import OutputMonitor, WindowRecorder, unobserved
from lightning_accum.observe.monitor import first_tensor
from lightning_accum.observe.reducer import Latest


class Echo(nn.Module):
    """Gives out what it takes, remembers it, and adds it up."""

    def __init__(self):
        super().__init__()
        self.seen = None
        self.total = torch.zeros(1)

    def forward(self, *args, **kwargs):
        found = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
        self.seen = found[0] if found else torch.zeros(1)
        self.total = self.total + self.seen
        return args[0] if len(args) == 1 else (*args, *kwargs.values())


KINDS = {
    "input": observe.InputMonitor,
    "output": observe.OutputMonitor,
    "state": lambda module, **rest: observe.StateMonitor(module, "seen", **rest),
}
each = turns("make", KINDS.values())


def positive(x):
    return bool(x.sum() > 0)


@each
def test_sees_what_it_watches_and_leaves_nothing_behind(make):
    echo, x = Echo(), torch.ones(1, requires_grad=True)
    monitor = make(echo, register=False)
    assert not monitor.registered
    assert hooks(echo) == 0
    for registered in (True, False, True):
        for _ in range(2):
            (monitor.register if registered else monitor.deregister)()
            assert monitor.registered == registered
            assert hooks(echo) == registered
    assert monitor.peek() is None
    seen = x * 3
    echo(seen)
    seen.data.zero_()  # what was seen is kept when it is written over
    assert monitor.peek().flatten().tolist() == [3.0]
    assert not monitor.peek().requires_grad
    assert torch.equal(monitor.dump()[0], monitor.peek())
    copy.copy(echo)(torch.ones(1))  # a shallow copy has the hooks, and is not watched
    assert monitor.peek().flatten().tolist() == [3.0]
    monitor(x)  # by hand
    assert monitor.peek().tolist() == [1.0]
    assert not monitor.peek().requires_grad
    monitor.clear()
    assert monitor.peek() is monitor.dump() is None
    del monitor
    gc.collect()
    assert hooks(echo) == 0


@each
@turns("train_update", [True, False])
@turns("eval_update", [True, False])
def test_the_mode_of_the_module_and_the_recording_flag_are_gates(make, train_update, eval_update):
    echo = Echo()
    monitor = make(echo, train_update=train_update, eval_update=eval_update)
    for training, expected in ((True, train_update), (False, eval_update)):
        echo.train(training)
        monitor.clear()
        for monitor.switch.on in (False, True):
            echo(torch.ones(1))
            assert (monitor.peek() is not None) == (expected and monitor.switch.on)
    assert monitor.registered


@each
def test_a_module_that_is_gone(make):
    echo = Echo()
    monitor = make(echo)
    assert monitor.module is echo
    monitor.deregister()
    del echo
    gc.collect()
    assert monitor.module is None
    with pytest.raises(RuntimeError, match=r"no longer exists.*bind\(module\)"):
        monitor.register()


@each
@turns("through", COPIES)
def test_copies(make, through):
    echo = Echo()
    monitor = make(echo, filter_=positive, map_=torch.neg)
    echo(torch.ones(1))
    twin = through(monitor)
    assert not twin.registered
    other = through(echo)  # the hook in the copy of the module is inert
    other(torch.full((1,), 5.0))
    assert monitor.peek().item() == twin.peek().item() == -1.0
    twin.bind(other)
    twin.register()
    other(torch.full((1,), 7.0))
    assert (twin.peek().item(), monitor.peek().item()) == (-7.0, -1.0)
    twin.bind(echo)
    assert twin.registered
    echo(torch.full((1,), 2.0))
    assert monitor.peek().item() == twin.peek().item() == -2.0


one, two, three, four = torch.arange(1.0, 5.0).unbind()
second = operator.itemgetter(1)


IN, OUT = observe.InputMonitor, observe.OutputMonitor


@turns("kind, args, kwargs, picker, expected", [
    (IN, (one, two), {}, first_tensor, one), (IN, (one, two), {}, second, two),
    (IN, ((None, three),), {}, first_tensor, three),
    (IN, ({"a": "text", "b": [four]},), {}, first_tensor, four),
    (IN, (), {"x": one, "y": two}, first_tensor, one),
    (IN, (), {"x": one, "y": two}, operator.itemgetter("y"), two),
    (OUT, ((one, two),), {}, first_tensor, one), (OUT, ((one, two),), {}, second, two),
    (OUT, ([None, {"s": three}],), {}, first_tensor, three),
    (OUT, (OrderedDict(z=three, s=four),), {}, operator.itemgetter("s"), four),
    (OUT, (one,), {}, second, one),
])  # fmt: skip
def test_finds_its_tensor(kind, args, kwargs, picker, expected):
    echo = Echo()
    monitor = kind(echo, picker=picker)
    echo(*args, **kwargs)
    assert torch.equal(monitor.peek(), expected)


def test_filters_and_maps_see_no_graph():
    fc = nn.Linear(1, 1, bias=False)
    nn.init.ones_(fc.weight)
    monitor = OutputMonitor(
        fc, reducer=WindowRecorder(), filter_=lambda x: positive(x) and not x.requires_grad,
        map_=lambda x: x.sqrt() if not x.requires_grad else None,
    )  # fmt: skip
    for value in (-1.0, 4.0, 0.0, 9.0):
        assert fc(torch.tensor([value])).requires_grad
    assert monitor.dump().tolist() == [[2.0], [3.0]]


def test_a_partial_constructor_copies_its_reducer():
    echo, reducer = Echo(), Latest()
    make = observe.InputMonitor.partialconstructor(reducer=reducer, eval_update=True)
    one, two = make(echo, ""), by_pickle(make)(echo, "")
    assert len({id(one.reducer), id(two.reducer), id(reducer)}) == 3
    assert one.eval_update is two.eval_update is True


def test_what_is_computed_again_for_a_backward_pass_is_not_seen_again():
    fc, relu = nn.Linear(2, 2), nn.ReLU()
    monitors = IN(fc, "", WindowRecorder()), OUT(relu, "", WindowRecorder())
    for reentrant in (True, False):
        x = torch.rand(3, 2, requires_grad=True)
        out = checkpoint(lambda x: relu(fc(x)), x, use_reentrant=reentrant)
        out.sum().backward()
    assert [monitor.reducer.length for monitor in monitors] == [2, 2]


# ---------------------------------------------------------------------------- gradients
def watched():
    torch.manual_seed(0)
    fc, relu = nn.Linear(3, 2), nn.Sigmoid()
    return fc, relu, observe.GradientMonitor(relu, reducer=observe.WindowRecorder())


def steps():
    return torch.arange(12.0).view(4, 1, 3)


@turns("by_step", [False, True])
def test_one_backward_pass_or_one_for_each_step_comes_in_the_order_of_the_calls(by_step):
    fc, relu, monitor = watched()
    losses = ((t + 1) * relu(fc(x)).sum() for t, x in enumerate(steps()))
    for t, loss in enumerate(losses if by_step else [sum(losses)]):
        loss.backward()
        assert monitor.reducer.length == (t + 1 if by_step else 4)
    expected = torch.arange(1.0, 5.0).view(4, 1, 1).expand(4, 1, 2)
    assert torch.equal(monitor.reducer.window(), expected)


def test_clearing_forgets_gradients_that_are_still_to_come():
    fc, relu, monitor = watched()
    late = relu(fc(steps()[0])).sum()
    monitor.clear()
    (2 * relu(fc(steps()[1])).sum()).backward()
    late.backward()
    assert monitor.reducer.window().tolist() == [[[2.0, 2.0]]]


def test_what_has_no_graph_is_not_seen_and_a_graph_is_not_kept_and_a_copy_sees_nothing():
    fc, relu, monitor = watched()
    other = copy.deepcopy(monitor)
    with torch.no_grad():
        relu(fc(steps()[0]))
    assert monitor.peek() is None
    loss = (relu(fc(steps()[0])) ** 2).sum()
    torch.autograd.grad(loss, fc.weight, create_graph=True)
    assert monitor.reducer.length == 1
    assert not monitor.peek().requires_grad
    assert other.peek() is None


def test_it_does_not_outlive_itself():
    fc, relu, monitor = watched()
    loss = relu(fc(steps()[0])).sum()
    del monitor
    loss.backward()
    assert not relu._forward_hooks


@pytest.mark.parametrize("calls", [1, 2])
def test_a_second_backward_pass_is_refused(calls):
    fc, relu, monitor = watched()
    outputs = [relu(fc(x)).sum() for x in steps()[:calls]]
    outputs[-1].backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="add the losses, and call `backward"):
        outputs[-1].backward()
    assert monitor.reducer.length == (calls == 1)


# ---------------------------------------------------------------------------- what is refused
NET = nn.Sequential(nn.Linear(2, 3))


@turns("call, error, words", [
    (lambda: OutputMonitor(nn.Identity())("text"), TypeError, "`observation` should be a ten"),
    (lambda: watched_identity("text"), TypeError, r"at least one tensor.*`picker`"),
    (lambda: IN(NET, "nowhere"), AttributeError, "`nowhere`, and `Sequential` has no `nowhere`"),
    (lambda: OUT(NET, "0.weigth"), AttributeError, "and `0` has no `weigth`"),
    (lambda: OUT(NET, "0.weight"), AttributeError, "`0.weight`, of type `Parameter`: a StateM"),
    (lambda: observe.StateMonitor(NET, "0.nothing"), AttributeError,
     "`0.nothing`, and `Linear` has no `nothing`"),
    (lambda: WindowRecorder(time_dim=1), ValueError, "Argument `time_dim`.*`time_dim = 1`"),
    (lambda: WindowRecorder()(torch.tensor(1.0)), ValueError, r"Found shape \(\)"),
    (lambda: WindowRecorder(time_dim=0)(one[None]), ValueError, r"shape \(1,\), `time_dim = 0`"),
    (lambda: WindowRecorder(spikes=True)(torch.ones(1, 2) * 1j), TypeError,
     "should be real. Found torch.complex64 in a recorder"),
])  # fmt: skip
def test_what_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()
    assert hooks(NET) == 0


def watched_identity(value):
    module = nn.Identity()
    monitor = OutputMonitor(module)
    try:
        module(value)
    finally:
        assert monitor.peek() is None


@turns("kind, path", [(IN, "norm"), (OUT, "norm"), (observe.StateMonitor, "norm.running_mean")])
@turns("wrong", [1.0, None, nn.ReLU()])
def test_a_monitor_whose_bind_is_refused_goes_on(kind, path, wrong):
    net = nn.ModuleDict({"norm": nn.BatchNorm1d(2)})
    monitor = kind(net, path)
    with pytest.raises(AttributeError, match="Argument `attr`"):
        monitor.bind(wrong)
    assert monitor.registered
    assert monitor.module is net["norm"]
    net["norm"](torch.rand(3, 2))
    assert monitor.peek() is not None


# ---------------------------------------------------------------------------- unobserved
def test_what_one_task_does_not_observe_another_does():
    relu = nn.ReLU()
    monitor = OutputMonitor(relu, reducer=WindowRecorder())

    async def silent(begun, done):
        with unobserved():
            begun.set()
            await done.wait()
            relu(torch.tensor([2.0]))  # the other has begun and ended its own in between
        relu(torch.tensor([3.0]))

    async def both():
        begun, done = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(silent(begun, done))
        await begun.wait()
        relu(torch.tensor([1.0]))
        with unobserved():
            relu(torch.tensor([2.0]))
        done.set()
        await task

    asyncio.run(both())
    assert monitor.peek() is not None
    assert monitor.dump().flatten().tolist() == [1.0, 3.0]


def test_what_one_thread_does_not_observe_another_does():
    relu = nn.ReLU()
    monitor = OutputMonitor(relu, reducer=WindowRecorder())
    with unobserved():
        thread = threading.Thread(target=relu, args=(torch.tensor([1.0]),))
        thread.start()
        thread.join()
        with unobserved():
            relu(torch.tensor([2.0]))
        relu(torch.tensor([2.0]))  # still within the outer one
    assert monitor.dump().flatten().tolist() == [1.0]


def test_a_hook_breaks_no_graph():
    torch.compiler.reset()  # torch compiles a function for few modules only
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    monitor = OutputMonitor(net[1], reducer=WindowRecorder())
    torch.compile(net, backend="eager", fullgraph=True)(torch.ones(1, 2))
    assert monitor.reducer.length == 1
