"""One layer with pair STDP in this package: with its own layers, and on those of others."""

from __future__ import annotations

import torch
from _evaluation_paths import forced
from _rival_layers import Norse, SnnTorch, SpikingJelly, Steps
from _stdp_work import DECAY, LR_POST, LR_PRE, TC, AnyLoad, See
from torch import Tensor, nn

from lightning_accum import STDP, Cell, RuleTrainer, Serial
from lightning_accum import nn as layers
from lightning_accum.rules import learn_online


def trainer_for(connection: nn.Module, neuron: nn.Module, time_dim: int | None) -> RuleTrainer:
    trainer = RuleTrainer(STDP(LR_POST, LR_PRE, TC, TC), time_dim=time_dim, carry=False)
    trainer.register_cell("cell", Cell(connection, neuron))
    trainer.updater_of("cell").weight.keep_parts = False  # as in a Trainer: nothing reads the parts
    return trainer


class Native:
    """A whole sequence a call, and the rule once for all of it."""

    def __init__(self, load: AnyLoad, learning: bool, path: str = "auto") -> None:
        self.fc = load.connection(layers)
        self.lif = layers.LIF(load.after, tc_mem=TC, time_dim=0, spike_dtype=torch.bool)
        self.layer = Serial(self.fc, self.lif)
        self.trainer = trainer_for(self.fc, self.lif, 0) if learning else None
        self.path = path

    def feed(self, raster: Tensor) -> Tensor:
        return raster

    @torch.no_grad()
    def run(self, spikes: Tensor, see: See) -> None:
        self.lif.reset()
        see(self.layer(spikes))
        if self.trainer is not None:
            with forced(self.path):
                self.trainer()
            self.trainer.update()

    @property
    def weight(self) -> Tensor:
        return self.fc.weight


class EachStep(Steps):
    """A step a call; the rule is evaluated and applied in every one."""

    def __init__(self, load: AnyLoad, learning: bool) -> None:
        super().__init__(load, learning)
        self.lif = layers.LIF(load.after, tc_mem=TC, spike_dtype=torch.bool)
        self.trainer = trainer_for(self.fc, self.lif, None) if learning else None

    @torch.no_grad()
    def run(self, spikes: Tensor, see: See) -> None:
        self.lif.reset()
        if self.trainer is not None:
            self.trainer.clear()
        for step in spikes:
            see(self.lif(self.fc(step)))
            if self.trainer is not None:
                self.trainer(carry=True)
                self.trainer.update()


class Online(Steps):
    """A sequence a call, in which the rule is applied after every step."""

    def __init__(self, load: AnyLoad, learning: bool) -> None:
        super().__init__(load, learning)
        self.fc = load.connection(layers)
        time_dim = None if learning else 0
        lif = layers.LIF(load.after, tc_mem=TC, time_dim=time_dim, spike_dtype=torch.bool)
        self.layer = Serial(self.fc, lif)
        self.trainer = trainer_for(self.fc, self.layer.neuron, None) if learning else None

    def feed(self, raster: Tensor) -> Tensor:
        return raster

    @torch.no_grad()
    def run(self, spikes: Tensor, see: See) -> None:
        self.layer.neuron.reset()
        if self.trainer is None:
            see(self.layer(spikes))
        else:
            self.trainer.clear()
            see(learn_online(self.trainer, self.layer, spikes))


class PerStepProduct(Steps):
    """What one would write by hand: a loop over time, with traces and a product in every step."""

    def __init__(self, load: AnyLoad, learning: bool) -> None:
        super().__init__(load, learning)
        self.lif = layers.LIF(load.after, tc_mem=TC)

    @torch.no_grad()
    def run(self, spikes: Tensor, see: See) -> None:
        self.lif.reset()
        load, fc = self.load, self.fc
        x_pre, x_post = torch.zeros(load.batch, *load.before), torch.zeros(load.batch, *load.after)
        change = torch.zeros_like(fc.weight)
        for pre in spikes:
            post = self.lif(fc(pre))
            see(post)
            if self.learning:
                x_pre, x_post = DECAY * x_pre + pre, DECAY * x_post + post
                change += LR_POST * load.outer(post, x_pre) + LR_PRE * load.outer(x_post, pre)
        fc.weight += change / load.batch


class _Foreign(Steps):
    """Layers of another library as they are, watched; the rule once for all steps."""

    def __init__(self, load: AnyLoad, learning: bool) -> None:
        super().__init__(load, learning=False)
        self.ours = trainer_for(self.fc, self.lif, None) if learning else None

    @torch.no_grad()
    def run(self, spikes: Tensor, see: See) -> None:
        super().run(spikes, see)
        if self.ours is not None:
            self.ours()
            self.ours.update()


class OnSnnTorch(_Foreign, SnnTorch):
    pass


class OnNorse(_Foreign, Norse):
    pass


class OnSpikingJelly(_Foreign, SpikingJelly):
    pass
