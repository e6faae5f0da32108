"""One layer with pair STDP in BindsNET."""

from __future__ import annotations

import importlib
import types
from typing import Any

import torch
from _rival_layers import Steps
from _rival_optimizers import bare
from _stdp_work import DT, LR_POST, LR_PRE, TC, AnyLoad, See
from torch import Tensor


class BindsNet(Steps):
    """Learns in every step, which is its only way.

    A mean over the batch is a sum at rates divided by its size, for which the library has a product
    in place; given ``torch.mean`` itself, it makes the product of every sample.
    """

    mean = False

    def __init__(self, load: AnyLoad, learning: bool) -> None:
        super().__init__(load, learning)
        if not bare("bindsnet"):
            raise ModuleNotFoundError("No module named 'bindsnet'")
        from bindsnet.network import Network, nodes, topology  # before its rules, or it is a circle

        PostPre = importlib.import_module("bindsnet.learning").PostPre

        traces = {"traces": learning, "traces_additive": True, "tc_trace": TC}
        source = nodes.Input(shape=load.before, **traces)
        target = nodes.LIFNodes(
            shape=load.after, thresh=1.0, rest=0.0, reset=0.0, refrac=0, tc_decay=TC, **traces
        )
        self.net = Network(dt=DT, batch_size=load.batch, learning=learning)
        self.net.add_layer(source, "in")
        self.net.add_layer(target, "out")
        size = 1 if self.mean else load.batch
        rule: dict[str, Any] = {}
        if learning:
            rule = {
                "update_rule": PostPre,
                "nu": (-LR_PRE / size, LR_POST / size),
                "reduction": torch.mean if self.mean else torch.sum,
            }
        self.connection = self.connect(topology, source, target, **rule)
        self.net.add_connection(self.connection, "in", "out")

    def connect(self, topology: Any, *nodes: Any, **rule: Any) -> Any:
        return topology.Connection(*nodes, w=self.fc.weight.T.clone(), **rule)

    @torch.no_grad()
    def run(self, spikes: Tensor, see: See) -> None:
        layers = self.net.layers
        # an input layer comes to rest by writing zeros to the last input that it was given
        layers["in"].s = torch.zeros_like(layers["in"].s)
        self.net.reset_state_variables()
        self.net.monitors["out"] = types.SimpleNamespace(
            record=lambda: see(layers["out"].s), reset_state_variables=lambda: None
        )
        self.net.run({"in": spikes}, time=len(spikes), one_step=True)

    @property
    def weight(self) -> Tensor:
        return self.connection.w.T


class BindsNetMean(BindsNet):
    mean = True


class BindsNetConv(BindsNet):
    def connect(self, topology: Any, *nodes: Any, **rule: Any) -> Any:
        kernel = self.load.kernel
        return topology.Conv2dConnection(
            *nodes, kernel, padding=kernel // 2, w=self.fc.weight.clone(), **rule
        )

    @property
    def weight(self) -> Tensor:
        return self.connection.w
