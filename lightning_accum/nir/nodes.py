"""The node of NIR for each module that it can express."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from lightning_accum.nn import (
    LIF,
    AdaptiveLIF,
    Conv1d,
    Conv2d,
    LeakyIntegrator,
    Linear,
)

Solver = Literal["exact", "euler"]
Shape = tuple[int, ...]


class Target(NamedTuple):
    """The simulator that nodes are written for.

    Args:
        nir: the package.
        solver: how the simulator solves the equations.
        leading: number of dimensions before a sample's own: 1 for the batch, 2 with time.
    """

    nir: Any
    solver: Solver
    leading: int


def linear_node(to: Target, name: str, module: nn.Linear, shape: Shape) -> Any:
    """Returns the node of a linear connection."""
    if module.bias is None:
        return to.nir.Linear(_array(module.weight))
    return to.nir.Affine(_array(module.weight), _array(module.bias))


def conv_node(to: Target, name: str, module: nn.Conv1d | nn.Conv2d, shape: Shape) -> Any:
    """Returns the node of a convolution, which always has a bias there."""
    if module.padding_mode != "zeros" or module.groups != 1 or len({*module.kernel_size}) > 1:
        raise ValueError(
            "A convolution for NIR should have `padding_mode='zeros'`, `groups=1` and a square"
            f" kernel, as NIR computes shapes of no others. Found `{module}` as `{name}`."
        )
    if len(shape) != len(module.kernel_size) + 1:
        raise ValueError(
            f"The input of `{name}` should have {len(module.kernel_size) + 1} dimensions. Found"
            f" shape {shape}."
        )
    bias = torch.zeros(module.out_channels) if module.bias is None else module.bias
    settings = (module.stride, module.padding, module.dilation)
    if len(module.kernel_size) == 1:
        ints = (value if isinstance(value, str) else value[0] for value in settings)
        return to.nir.Conv1d(shape[1], _array(module.weight), *ints, 1, _array(bias))
    return to.nir.Conv2d(shape[1:], _array(module.weight), *settings, 1, _array(bias))


def flatten_node(to: Target, name: str, module: nn.Flatten, shape: Shape) -> Any:
    """Returns the node of an ``nn.Flatten``, which has neither time nor batch there."""
    if module.start_dim != to.leading or module.end_dim != -1:
        raise ValueError(
            f"An nn.Flatten for NIR should have `start_dim={to.leading}` and `end_dim=-1`, which"
            " keep the batch, and time if neurons have `time_dim=0`, and flatten the rest. Found"
            f" `{module}` as `{name}`."
        )
    return to.nir.Flatten({"input": np.array(shape)}, start_dim=0, end_dim=-1)


def lif_node(to: Target, name: str, module: LIF | AdaptiveLIF, shape: Shape) -> Any:
    """Returns the node of integrate-and-fire neurons, with potentials on a scale where R = 1."""
    for option, off in (("inhibition", None), ("refractory", 0.0)):
        value = getattr(module, option)
        if value:
            raise ValueError(
                f"Neurons for NIR should have no `{option}`, which its equations do not have. Found"
                f" `{option} = {value}` in `{name}`: export neurons with `{option}={off}` if the"
                " network may run without."
            )
    threshold = torch.full(module.size, float(module.v_threshold), dtype=torch.float64)
    if isinstance(module, AdaptiveLIF):
        if module.training:
            raise ValueError(
                "AdaptiveLIF neurons for NIR should be in evaluation mode, in which thresholds do"
                f" not change. Found `{name}` in training mode: call `model.eval()`."
            )
        threshold = threshold + module.theta.detach().to(threshold)
    tau, gain = _membrane(to, module)
    ones = np.ones(module.size, np.float32)
    if tau is None:  # without leak, only the distance from rest counts, where neurons start
        over, reset = threshold - module.v_rest, module.v_reset - module.v_rest
        return to.nir.IF(ones, _array(gain * over), np.float32(gain * reset) * ones)
    return to.nir.LIF(
        tau=tau * ones,
        r=ones,
        v_leak=np.float32(gain * module.v_rest) * ones,
        v_threshold=_array(gain * threshold),
        v_reset=np.float32(gain * module.v_reset) * ones,
    )


def integrator_node(to: Target, name: str, module: LeakyIntegrator, shape: Shape) -> Any:
    """Returns the node of a readout, whose potential is its output, and is not scaled."""
    tau, gain = _membrane(to, module)
    ones = np.ones(module.size, np.float32)
    r = np.float32(1 / gain) * ones
    return to.nir.I(r) if tau is None else to.nir.LI(tau * ones, r, 0 * ones)


def _membrane(
    to: Target, module: LIF | AdaptiveLIF | LeakyIntegrator
) -> tuple[np.float32 | None, float]:
    """Returns tau in seconds, ``None`` without leak, and what a current of 1 adds in a step."""
    step = module.dt / 1000
    if math.isinf(module.tc_mem):
        return None, step
    gain = -math.expm1(-module.dt / module.tc_mem)
    return np.float32(module.tc_mem / 1000 if to.solver == "exact" else step / gain), gain


def _array(values: Tensor) -> Any:
    return values.detach().cpu().float().numpy().copy()


NODES: dict[type[nn.Module], Callable[..., Any]] = {
    Linear: linear_node,
    nn.Linear: linear_node,
    Conv1d: conv_node,
    nn.Conv1d: conv_node,
    Conv2d: conv_node,
    nn.Conv2d: conv_node,
    nn.Flatten: flatten_node,
    LIF: lif_node,
    AdaptiveLIF: lif_node,
    LeakyIntegrator: integrator_node,
}
"""The function that writes the node of each module."""
