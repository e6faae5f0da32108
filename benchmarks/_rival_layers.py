"""One layer with pair STDP in other libraries, each called as its own documentation does.

Where a library offers several ways, the one that is fastest here is taken, or all of them.
"""

from __future__ import annotations

import torch
from _stdp_work import DECAY, DT, LR_POST, LR_PRE, AnyLoad, ConvLoad, See
from torch import Tensor, nn


class Steps:
    """What the libraries share that are called once a step with numbers."""

    def __init__(self, load: AnyLoad, learning: bool) -> None:
        self.load, self.learning = load, learning
        self.fc = load.connection(nn)

    def feed(self, raster: Tensor) -> Tensor:
        return raster.float()

    @property
    def weight(self) -> Tensor:
        return self.fc.weight


class SpikingJelly(Steps):
    """Neuron and rule in every step, the change added up."""

    mode = "s"

    def __init__(self, load: AnyLoad, learning: bool) -> None:
        super().__init__(load, learning)
        from spikingjelly.activation_based import layer, neuron
        from spikingjelly.activation_based import learning as rules

        self.fc = load.connection(layer)
        self.fc.step_mode = self.mode
        tau = 1 / (1 - DECAY)  # decays by 1 - 1/τ
        self.lif = neuron.LIFNode(
            tau, decay_input=False, v_threshold=1.0, v_reset=0.0, step_mode=self.mode
        )
        self.rule = None
        if learning:
            self.rule = rules.STDPLearner(
                self.mode, self.fc, self.lif, tau, tau,
                f_pre=lambda _: -LR_PRE, f_post=lambda _: LR_POST,
            )  # fmt: skip

    @torch.no_grad()
    def run(self, spikes: Tensor, see: See) -> None:
        self.lif.reset()
        if self.rule is None:
            for step in spikes:
                see(self.lif(self.fc(step)))
            return
        self.rule.reset()
        change = torch.zeros_like(self.fc.weight)
        for step in spikes:
            see(self.lif(self.fc(step)))
            change += self.rule.step(on_grad=False)
        self.fc.weight.add_(change, alpha=1 / self.load.batch)


class SpikingJellyMulti(SpikingJelly):
    """Neuron and rule over the whole sequence."""

    mode = "m"

    @torch.no_grad()
    def run(self, spikes: Tensor, see: See) -> None:
        self.lif.reset()
        if self.rule is not None:
            self.rule.reset()
        see(self.lif(self.fc(spikes)))
        if self.rule is not None:
            self.fc.weight += self.rule.step(on_grad=False, scale=1 / self.load.batch)


class Norse(Steps):
    """Neuron and rule in every step; its rule is a function that gives new weights."""

    each_step = False

    def __init__(self, load: AnyLoad, learning: bool) -> None:
        super().__init__(load, learning)
        import norse.torch as norse
        from norse.torch.functional import stdp

        leak = 1 - DECAY  # of both in a step, by Euler's method
        rate = torch.tensor(1000 * leak / DT)  # in 1/s
        self.lif = norse.LIFBoxCell(norse.LIFBoxParameters(tau_mem_inv=rate), dt=DT / 1000)
        conv = isinstance(load, ConvLoad)
        self.step = stdp.stdp_step_conv2d if conv else stdp.stdp_step_linear
        self.begin = stdp.STDPState
        self.rule = stdp.STDPParameters(
            a_pre=1 / leak, a_post=1 / leak, tau_pre_inv=rate, tau_post_inv=rate,
            eta_plus=LR_POST / load.batch, eta_minus=-LR_PRE / load.batch, hardbound=False,
            convolutional=conv, padding=load.kernel // 2 if conv else 0,
        )  # fmt: skip

    @torch.no_grad()
    def run(self, spikes: Tensor, see: See) -> None:
        state, fc, load = None, self.fc, self.load
        gain = 1 / (1 - DECAY)  # the neuron lets that much less of its input in
        traces = self.begin(
            torch.zeros(load.batch, *load.before), torch.zeros(load.batch, *load.after)
        )
        change = torch.zeros_like(fc.weight)
        for step in spikes:
            out, state = self.lif(fc(step) * gain, state)
            see(out)
            if self.learning and self.each_step:
                fc.weight.data, traces = self.step(
                    step, out, fc.weight.data, traces, self.rule, DT / 1000
                )
            elif self.learning:
                change, traces = self.step(step, out, change, traces, self.rule, DT / 1000)
        fc.weight += change


class NorseEachStep(Norse):
    each_step = True


class SnnTorch(Steps):
    """Rule over what it has recorded of the batch.

    The rule takes a module's output for spikes, and the library's neurons give their potential as
    well. So the spikes pass through a module of their own, which the rule watches. Its ``reset``
    raises an error, for its base class has none; the traces are forgotten by hand.
    """

    def __init__(self, load: AnyLoad, learning: bool) -> None:
        super().__init__(load, learning)
        import snntorch

        self.lif = snntorch.Leaky(beta=DECAY, reset_mechanism="zero", reset_delay=False)
        self.spikes, self.rule = nn.Identity(), None
        if learning:
            from snntorch.functional.stdp_learner import STDPLearner

            tau = 1 / (1 - DECAY)  # decays by 1 - 1/τ
            self.rule = STDPLearner(
                self.fc, self.spikes, tau, tau, f_pre=lambda _: -LR_PRE, f_post=lambda _: LR_POST
            )

    @torch.no_grad()
    def run(self, spikes: Tensor, see: See) -> None:
        membrane = self.lif.reset_mem()
        for step in spikes:
            out, membrane = self.lif(self.fc(step), membrane)
            see(self.spikes(out))
        if self.rule is not None:
            self.fc.weight += self.rule.step(on_grad=False, scale=1 / self.load.batch)
            self.rule.trace_pre = self.rule.trace_post = None
            for monitor in (self.rule.in_spike_monitor, self.rule.out_spike_monitor):
                monitor.clear_recorded_data()
