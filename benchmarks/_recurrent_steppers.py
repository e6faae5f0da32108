"""A recurrent layer of spiking neurons, step by step without a gradient, in each library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from _error_learners import TC, Task
from torch import Tensor, nn

from lightning_accum.functional import decay_factor
from lightning_accum.nn import SurrogateLIF

Run = Callable[[Tensor], object]


def ours(task: Task, time_dim: Any = None) -> Run:
    fc = nn.Linear(task.inputs, task.neurons, bias=False)
    lif = SurrogateLIF(task.neurons, TC, recurrent=True, time_dim=time_dim)

    def run(x: Tensor) -> None:
        lif.reset()
        for step in [x] if time_dim == 0 else x:
            lif(fc(step))

    return run


def ours_whole(task: Task) -> Run:
    return ours(task, 0)


def norse(task: Task) -> Run:
    import norse.torch as library

    rate = torch.tensor(1000 / TC)  # in 1/s
    cell = library.LIFRecurrentCell(
        task.inputs, task.neurons, p=library.LIFParameters(tau_mem_inv=rate), dt=1e-3
    )

    def run(x: Tensor) -> None:
        state = None
        for step in x:
            _, state = cell(step, state)

    return run


def snntorch(task: Task) -> Run:
    import snntorch as library

    fc = nn.Linear(task.inputs, task.neurons, bias=False)
    lif = library.RLeaky(decay_factor(TC), linear_features=task.neurons)

    def run(x: Tensor) -> None:
        spikes, membrane = lif.reset_mem()
        for step in x:
            spikes, membrane = lif(fc(step), spikes, membrane)

    return run


def spikingjelly(task: Task) -> Run:
    from spikingjelly.activation_based import functional, layer, neuron

    # Its recurrent container multiplies input and spikes by one matrix [N + N, N].
    fc = layer.Linear(task.inputs, task.neurons, bias=False)
    lif = neuron.LIFNode(1 / (1 - decay_factor(TC)), decay_input=False, v_reset=None)
    net = layer.LinearRecurrentContainer(lif, task.neurons, task.neurons, bias=False)

    def run(x: Tensor) -> None:
        functional.reset_net(net)
        for step in x:
            net(fc(step))

    return run


STEPPERS: dict[str, Callable[[Task], Run]] = {
    "SurrogateLIF, a step a call": ours,
    "SurrogateLIF, a sequence a call": ours_whole,
    "Norse, LIFRecurrentCell": norse,
    "snnTorch, RLeaky": snntorch,
    "SpikingJelly, LinearRecurrentContainer": spikingjelly,
}
