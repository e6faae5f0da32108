"""The demo's network in other libraries: their neurons and rules, in a loop of one's own.

What the demo asks for beyond neurons and STDP, no library here has in that form: thresholds that
rise with activity, one winner a step that resets all others, weights of one norm. Each gets it in
the place that it leaves for such things, and from the same few lines.
"""

from __future__ import annotations

import importlib
import math
import types
from typing import Any

import torch
from _rival_optimizers import bare
from torch import Tensor, nn

DT, TC = 1.0, 20.0
DECAY, LEAK = math.exp(-DT / TC), math.exp(-DT / 100.0)  # of traces and membranes, in a step
PRE = 0.3  # depression beside potentiation


class Competition:
    """Adaptive thresholds, and at most one winner a step; as ``AdaptiveLIF`` of the demo."""

    def __init__(self, neurons: int, threshold: float, plus: float) -> None:
        self.theta = torch.zeros(neurons)
        self.threshold, self.plus = threshold, plus
        self.learning = True

    def __call__(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Spikes ``[B, N]``, and in which samples there is one ``[B, 1]``, from potentials."""
        best, winner = (v - (self.threshold + self.theta)).max(-1, keepdim=True)
        fired = (best >= 0).float()
        spikes = torch.zeros_like(v).scatter_(-1, winner, fired)
        if self.learning:
            self.theta.add_(spikes.mean(0), alpha=self.plus)
        return spikes, fired


class Rival:
    """A layer that is shown a batch, and gives the number of spikes of each neuron."""

    def __init__(self, pixels: int, neurons: int, threshold: float, plus: float) -> None:
        self.fc = nn.Linear(pixels, neurons, bias=False).requires_grad_(False)
        self.compete = Competition(neurons, threshold, plus)

    def show(self, spikes: Tensor, lr: float) -> Tensor:
        """Learns from ``[T, B, pixels]`` at this rate, and not at all at zero."""
        raise NotImplementedError

    @property
    def weight(self) -> Tensor:
        return self.fc.weight


class SpikingJelly(Rival):
    def __init__(self, *sizes: Any) -> None:
        super().__init__(*sizes)
        from spikingjelly.activation_based import learning, neuron

        compete = self.compete

        class Node(neuron.SimpleLIFNode):
            def neuronal_fire(self) -> Tensor:
                spikes, self.fired = compete(self.v)
                return spikes

            def neuronal_reset(self, spike: Tensor) -> None:
                self.v = self.v * (1 - self.fired)

        self.lr = 0.0
        self.lif = Node(1 / (1 - LEAK), decay_input=False, v_reset=0.0)
        self.rule = learning.STDPLearner(
            "s", self.fc, self.lif, 1 / (1 - DECAY), 1 / (1 - DECAY),
            f_pre=lambda _: PRE * self.lr, f_post=lambda _: self.lr,
        )  # fmt: skip

    def show(self, spikes: Tensor, lr: float) -> Tensor:
        self.lr = lr
        self.lif.reset()
        self.rule.reset()
        self.rule.enable() if lr else self.rule.disable()
        change, rates = torch.zeros_like(self.weight), torch.zeros(())
        for step in spikes:
            rates = rates + self.lif(self.fc(step))
            if lr:
                change += self.rule.step(on_grad=False)
        self.weight.add_(change)
        return rates


class Norse(Rival):
    def __init__(self, *sizes: Any) -> None:
        super().__init__(*sizes)
        import norse.torch as norse
        from norse.torch.functional import stdp

        def reset(_: Tensor, v: Tensor, *__: Tensor) -> Tensor:
            self.spikes, fired = self.compete(v)
            return v * (1 - fired)

        neuron = norse.LIFBoxParameters(
            tau_mem_inv=torch.tensor(1000 * (1 - LEAK)), reset_method=reset
        )
        self.lif, self.stdp = norse.LIFBoxCell(neuron, dt=DT / 1000), stdp
        rate, one = torch.tensor(1000 * (1 - DECAY)), 1 / (1 - DECAY)
        self.rule = stdp.STDPParameters(one, one, rate, rate, hardbound=False)

    def show(self, spikes: Tensor, lr: float) -> Tensor:
        batch, (neurons, pixels) = spikes.shape[1], self.weight.shape
        self.rule.eta_plus, self.rule.eta_minus = lr, PRE * lr
        state, rates, change = None, torch.zeros(()), torch.zeros_like(self.weight)
        traces = self.stdp.STDPState(torch.zeros(batch, pixels), torch.zeros(batch, neurons))
        for step in spikes:
            _, state = self.lif(self.fc(step) / (1 - LEAK), state)
            rates = rates + self.spikes
            if lr:
                change, traces = self.stdp.stdp_step_linear(
                    step, self.spikes, change, traces, self.rule, DT / 1000
                )
        self.fc.weight += change
        return rates


class BindsNet(Rival):
    """Learns in every step, which is its only way."""

    def __init__(self, *sizes: Any) -> None:
        super().__init__(*sizes)
        if not bare("bindsnet"):
            raise ModuleNotFoundError("No module named 'bindsnet'")
        from bindsnet.network import Network, nodes, topology

        compete = self.compete

        class Node(nodes.LIFNodes):
            def forward(self, x: Tensor) -> None:
                self.v.mul_(self.decay).add_(x)
                spikes, fired = compete(self.v)
                self.v.mul_(1 - fired)
                self.s = spikes.bool()
                nodes.Nodes.forward(self, x)

        traces = {"traces": True, "traces_additive": True, "tc_trace": TC}
        pixels, neurons, *_ = sizes
        source = nodes.Input(pixels, **traces)
        target = Node(neurons, rest=0.0, reset=0.0, tc_decay=100.0, **traces)
        self.net = Network(dt=DT, batch_size=2)
        self.net.add_layer(source, "in")
        self.net.add_layer(target, "out")
        self.connection = topology.Connection(
            source, target, nu=(PRE, 1.0), w=torch.rand(pixels, neurons), reduction=torch.sum,
            update_rule=importlib.import_module("bindsnet.learning").PostPre,
        )  # fmt: skip
        self.net.add_connection(self.connection, "in", "out")

    def show(self, spikes: Tensor, lr: float) -> Tensor:
        layers, seen = self.net.layers, []
        self.connection.update_rule.nu = torch.tensor([PRE * lr, lr])
        self.net.learning = lr > 0
        # an input layer comes to rest by writing zeros to the last input that it was given
        layers["in"].s = torch.zeros_like(layers["in"].s)
        self.net.reset_state_variables()
        self.net.monitors["out"] = types.SimpleNamespace(
            record=lambda: seen.append(layers["out"].s), reset_state_variables=lambda: None
        )
        self.net.run({"in": spikes}, time=len(spikes), one_step=True)
        return torch.stack(seen).float().sum(0)

    @property
    def weight(self) -> Tensor:
        return self.connection.w.T
