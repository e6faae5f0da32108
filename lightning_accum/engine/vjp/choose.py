"""Chooses the vector-Jacobian product of a parameter by the kind of its module."""

from __future__ import annotations

from torch import nn

from lightning_accum._compat import forward_methods
from lightning_accum.engine.vjp.base import WeightVJP
from lightning_accum.engine.vjp.bias import Bias
from lightning_accum.engine.vjp.convolution import CONVOLUTIONS, Convolution, PaddedConvolution
from lightning_accum.engine.vjp.jacobian import Jacobian
from lightning_accum.engine.vjp.matrix import Outer

_CHANNELS_FIRST = (*CONVOLUTIONS, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_STOCK = ("torch.nn.modules.", "lightning_accum.nn.")


def unit_dim_of(module: nn.Module) -> int:
    """Returns the dimension of a module's ``[T, B, ...]`` that counts neurons: last, or channels.

    Args:
        module: the connection.
    """
    return 2 if isinstance(module, _CHANNELS_FIRST) else -1


def vjp_of(module: nn.Module, name: str, place: str = "") -> WeightVJP:
    """Returns the vector-Jacobian product of a parameter.

    Args:
        module: the connection.
        name: the name of one of its parameters.
        place: names the parameter and the cell in messages.

    Example:
        >>> from torch import nn
        >>> type(vjp_of(nn.Conv2d(1, 2, 3), "weight")).__name__
        'Convolution'
    """
    return kind_of_vjp(module, name)(module, name, place)


def kind_of_vjp(module: nn.Module, name: str) -> type[WeightVJP]:
    """Returns the class of the vector-Jacobian product of a parameter.

    Args:
        module: the connection.
        name: the name of one of its parameters.
    """
    if not _is_stock(module):
        return Jacobian
    if name == "bias" and isinstance(module, (nn.Linear, *_CHANNELS_FIRST)):
        return Bias
    if name == "weight" and isinstance(module, nn.Linear):
        return Outer
    if name == "weight" and isinstance(module, CONVOLUTIONS):
        plain = module.padding_mode == "zeros" and not isinstance(module.padding, str)
        return Convolution if plain else PaddedConvolution
    return Jacobian


def _is_stock(module: nn.Module) -> bool:
    """Returns whether torch or this package wrote the code that the module runs."""
    return all(method.startswith(_STOCK) for method in forward_methods(module))
