"""One layer with pair STDP in Inferno."""

from __future__ import annotations

from typing import Any

import torch
from _rival_layers import Steps
from _stdp_work import DECAY, DT, LR_POST, LR_PRE, TC, AnyLoad, See
from torch import Tensor


class Inferno(Steps):
    """Rule in every step; what it finds is applied at the end, or in every step."""

    each_step = False

    def __init__(self, load: AnyLoad, learning: bool) -> None:
        super().__init__(load, learning)
        from inferno import learn, neural

        synapse = neural.DeltaCurrent.partialconstructor(1.0)
        connection = self.connection(neural, synapse=synapse, batch_size=load.batch)
        # its spikes are read off refractory times just begun; one of a step holds no neuron back
        neuron = neural.LIF(
            load.after, DT, rest_v=0.0, reset_v=0.0, thresh_v=1.0, refrac_t=DT,
            time_constant=TC, resistance=1 / (1 - DECAY), batch_size=load.batch,
        )  # fmt: skip
        self.layer = neural.Serial(connection, neuron)
        self.trainer = None
        if learning:
            connection.updater = connection.defaultupdater()
            self.trainer = learn.STDP(LR_POST, LR_PRE, tc_post=TC, tc_pre=TC)
            self.trainer.register_cell("cell", self.layer.cell)

    def connection(self, neural: Any, **options: Any) -> Any:
        return neural.LinearDense(self.load.before, self.load.after, DT, **options)

    def feed(self, raster: Tensor) -> Tensor:
        return raster

    @torch.no_grad()
    def run(self, spikes: Tensor, see: See) -> None:
        layer, trainer = self.layer, self.trainer
        layer.connection.clear()
        layer.neuron.clear()
        if trainer is None:
            for step in spikes:
                see(layer(step))
            return
        trainer.clear()
        for step in spikes:
            see(layer(step))
            trainer()
            if self.each_step:
                layer.connection.update()
        layer.connection.update()

    @property
    def weight(self) -> Tensor:
        return self.layer.connection.weight


class InfernoEachStep(Inferno):
    each_step = True


class InfernoConv(Inferno):
    def connection(self, neural: Any, **options: Any) -> Any:
        load = self.load
        return neural.Conv2D(
            load.size, load.size, load.channels, load.filters, DT, load.kernel,
            padding=load.kernel // 2, **options,
        )  # fmt: skip
