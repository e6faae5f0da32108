"""What is refused leaves everything as it was, and what is not observed is not recorded."""

import asyncio
import threading

import pytest
import torch
from torch import nn
from turns import turns
from watching import hooks

from lightning_accum import observe
from lightning_accum.observe import OutputMonitor, WindowRecorder, unobserved

KINDS = {
    "input": lambda module: observe.InputMonitor(module, "norm"),
    "output": lambda module: OutputMonitor(module, "norm"),
    "state": lambda module: observe.StateMonitor(module, "norm.running_mean"),
}
FC = nn.Linear(2, 3)
NET = nn.Sequential(FC)


@turns(
    "call, error, words",
    [
        (lambda: OutputMonitor(nn.Identity())("text"), TypeError, "`observation` should be a ten"),
        (lambda: watched_identity("text"), TypeError, r"at least one tensor.*`picker`"),
        (lambda: observe.InputMonitor(NET, "nowhere"), AttributeError,
         "`nowhere`, and `Sequential` has no `nowhere`"),
        (lambda: OutputMonitor(NET, "0.weigth"), AttributeError, "and `0` has no `weigth`"),
        (lambda: OutputMonitor(NET, "0.weight"), AttributeError,
         "`0.weight`, of type `Parameter`: a StateMonitor"),
        (lambda: observe.StateMonitor(NET, "0.nothing"), AttributeError,
         "`0.nothing`, and `Linear` has no `nothing`"),
        (lambda: WindowRecorder(time_dim=1), ValueError, "Argument `time_dim`.*`time_dim = 1`"),
        (lambda: WindowRecorder()(torch.tensor(1.0)), ValueError, r"Found shape \(\)"),
        (lambda: WindowRecorder(time_dim=0)(torch.ones(2)), ValueError,
         r"Found shape \(2,\), `time_dim = 0`"),
        (lambda: WindowRecorder(spikes=True)(torch.ones(1, 2, dtype=torch.complex64)), TypeError,
         "should be real. Found torch.complex64 in a recorder"),
    ],
)  # fmt: skip
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


@turns("kind", KINDS)
@turns("wrong", [1.0, None, nn.ReLU()])
def test_a_monitor_whose_bind_is_refused_goes_on(kind, wrong):
    net = nn.ModuleDict({"norm": nn.BatchNorm1d(2)})
    monitor = KINDS[kind](net)
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
