"""What is refused leaves everything as it was."""

from __future__ import annotations

import asyncio
import threading

import pytest
import torch
from torch import nn

from lightning_accum import observe
from lightning_accum.observe import MultiStateMonitor, unobserved

KINDS = {
    "input": lambda module: observe.InputMonitor(module, "norm"),
    "output": lambda module: observe.OutputMonitor(module, "norm"),
    "state": lambda module: observe.StateMonitor(module, "norm.running_mean"),
    "states": lambda module: MultiStateMonitor(module, "norm", names=["running_mean"]),
}
REDUCERS = {
    "latest": observe.Latest,
    "window": observe.WindowRecorder,
    "spikes": lambda: observe.WindowRecorder(spikes=True),
    "average": lambda: observe.EMAReducer(0.5, duration=3.0),
    "trace": lambda: observe.TraceReducer(20.0, duration=3.0),
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrong", [1.0, None, nn.ReLU()])
def test_a_monitor_whose_bind_is_refused_goes_on(kind, wrong):
    net = Net()
    monitor = KINDS[kind](net)
    with pytest.raises(AttributeError, match="Argument `attr`"):
        monitor.bind(wrong)
    assert monitor.registered
    assert monitor.module is net.norm
    net.norm(torch.rand(3, 2))
    assert monitor.peek() is not None
    monitor.deregister()


@pytest.mark.parametrize("time_dim", [None, 0])
@pytest.mark.parametrize(
    "refused", [torch.ones(4, 3, dtype=torch.complex64), torch.ones(4, 3).double(), [1.0], 1.0]
)
def test_a_refused_observation_leaves_the_window(time_dim, refused):
    recorder = observe.WindowRecorder(time_dim=time_dim)
    if time_dim == 0:
        refused = refused[None] if isinstance(refused, torch.Tensor) else refused
    steps = torch.arange(18.0).reshape(3, 3, 2)
    for step in steps:
        recorder(step if time_dim is None else step[None])
    with pytest.raises((ValueError, TypeError), match="Found"):
        recorder(refused)
    assert recorder.window().dtype == torch.float32
    assert torch.equal(recorder.window(), steps)
    recorder(steps[0] if time_dim is None else steps[:1])
    assert torch.equal(recorder.window(), torch.cat([steps, steps[:1]]))


@pytest.mark.parametrize("name", REDUCERS)
@pytest.mark.parametrize("wrong", [[1.0, 2.0], 1.0, None])
def test_an_observation_is_a_tensor(name, wrong):
    reducer = REDUCERS[name]()
    reducer(torch.ones(2, 2))
    before = reducer.dump()
    with pytest.raises(TypeError, match="Argument `observation` should be a tensor"):
        reducer(wrong)
    assert torch.equal(reducer.dump(), before)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_an_amplitude_is_finite(value):
    with pytest.raises(ValueError, match="Argument `amplitude` should be finite"):
        observe.TraceReducer(20.0, amplitude=value)


# ---------------------------------------------------------------------------- unobserved
def test_what_one_task_does_not_observe_another_does():
    relu = nn.ReLU()
    monitor = observe.OutputMonitor(relu, reducer=observe.WindowRecorder())

    async def silent(begun: asyncio.Event, done: asyncio.Event) -> None:
        with unobserved():
            begun.set()
            await done.wait()
            relu(torch.tensor([2.0]))  # the other has begun and ended its own in between
        relu(torch.tensor([3.0]))

    async def both() -> None:
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
    monitor = observe.OutputMonitor(relu, reducer=observe.WindowRecorder())
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
    monitor = observe.OutputMonitor(net[1], reducer=observe.WindowRecorder())
    torch.compile(net, backend="eager", fullgraph=True)(torch.ones(1, 2))
    assert monitor.reducer.length == 1
