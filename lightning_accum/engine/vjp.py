"""The vector-Jacobian product that makes a change of a parameter of activity on both sides."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import grad

from lightning_accum.distributed.fsdp import Bare, is_fsdp
from lightning_accum.functional.numbers import as_numbers
from lightning_accum.observe import first_tensor, unobserved

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_WEIGHT_GRADIENTS = {
    1: grad.conv1d_weight,
    2: grad.conv2d_weight,
    3: grad.conv3d_weight,
}
# Elements of both sides that are converted and multiplied at a time: 4 MB in float32.
_CHUNK_ELEMENTS = 1 << 20


class WeightVJP(ABC):
    r"""Sums products of both sides' activity into the shape of a parameter.

    With :math:`f(x; w)` the connection, linear in :math:`w`, it is the vector-Jacobian product

    .. math:: C(y, x) = \sum_k \left(\frac{\partial f(x_k; w)}{\partial w}\right)^\top y_k,

    the outer product :math:`\sum_k y_k \otimes x_k` where the connection is a matrix.

    Args:
        module: the connection.
        name: the parameter.
        place: parameter and cell, for messages.
    """

    is_matrix: ClassVar[bool] = False
    """Whether the parameter is a matrix ``[out, in]``, and the product the outer product."""

    reads_input: ClassVar[bool] = True
    """Whether the connection's input multiplies the parameter; a bias has a constant one."""

    def __init__(self, module: nn.Module, name: str, place: str) -> None:
        self.module = module
        self.name = name
        self.place = place

    @abstractmethod
    def vjp(self, post: Tensor, pre: Tensor) -> Tensor:
        """Sums over the first dimension.

        Args:
            post: ``[K, ...]`` in the shape of the connection's output, floating point.
            pre: ``[K, ...]`` in the shape of its input, of the same dtype, or indices.

        Returns:
            A tensor of the parameter's shape.
        """

    @property
    def constant(self) -> WeightVJP:
        """The product with an input that is always one."""
        return self

    def one(self, post: Tensor, pre: Tensor) -> Tensor:
        """Input that is always one, beside ``post`` and ``pre`` of a window, ``[T, B, ...]``.

        Raises:
            ValueError: if the input is indices, of which none is one.
        """
        if _indices(pre):
            raise ValueError(
                f"Parameter {self.place} should have a rule that asks for no constant input, for"
                " it takes indices. Found one that does: a decay, a target."
            )
        return post.new_ones(()).expand(pre.shape)

    def sum(self, post: Tensor, pre: Tensor, dtype: torch.dtype) -> Tensor:
        """As :meth:`vjp`, in chunks of bounded size; either side may be spikes.

        Args:
            post: ``[K, ...]`` of any dtype.
            pre: ``[K, ...]`` of any dtype.
            dtype: in which to compute.
        """
        rows = max(1, _CHUNK_ELEMENTS // max(1, pre[:1].numel() + post[:1].numel()))
        total: Tensor | None = None
        for left, right in zip(post.split(rows), pre.split(rows), strict=True):
            part = self.vjp(as_numbers(left, dtype), _operand(right, dtype))
            total = part if total is None else total.add_(part)
        assert total is not None
        return total

    def check(self, post: Tensor, pre: Tensor) -> None:
        """Runs the connection on one sample, to see that the neuron's output has its shape.

        Args:
            post: ``[1, ...]`` activity of the neuron.
            pre: ``[1, ...]`` activity before the connection.

        Raises:
            ValueError: if the shapes differ, or the module is not linear in the parameter.
        """
        try:
            with torch.no_grad():
                out = self._run(getattr(self.module, self.name).detach(), pre)
        except TypeError as error:
            raise ValueError(
                f"Parameter {self.place} belongs to a {type(self.module).__name__}, which should"
                f" take one tensor. Found that it does not: {error}"
            ) from error
        if out.shape != post.shape:
            raise ValueError(
                f"Parameter {self.place} belongs to a {type(self.module).__name__}, and the neuron"
                f" should give what has the shape of that module's output, {_shape(out)}. Found"
                f" {_shape(post)}."
            )

    def _run(self, param: Tensor, pre: Tensor) -> Tensor:
        """What the connection gives with ``param`` in the place of the parameter."""
        inputs = (_operand(pre, param.dtype),)
        module, name = self.module, self.name
        if is_fsdp(module):
            module, name = Bare(module), f"module.{name}"
        with unobserved():
            out: Any = torch.func.functional_call(module, {name: param}, inputs)
        return first_tensor((out,))


class Outer(WeightVJP):
    """A matrix, ``[out, in]``: the outer product, with what stands between batch and neurons."""

    is_matrix = True

    def one(self, post: Tensor, pre: Tensor) -> Tensor:
        """One column of ones, whose product stands for all of them."""
        return post.new_ones(()).expand(*post.shape[:-1], 1)

    def vjp(self, post: Tensor, pre: Tensor) -> Tensor:
        """``[out, in]`` of ``[K, ..., out]`` and ``[K, ..., in]``."""
        return post.flatten(0, -2).T @ pre.flatten(0, -2)


class Bias(WeightVJP):
    """A bias: the weight of an input that is always one, ``[K, 1, ...]``."""

    reads_input = False

    def one(self, post: Tensor, pre: Tensor) -> Tensor:
        """A single one for each step and sample."""
        return post.new_ones(*post.shape[:2], *[1] * (post.ndim - 2))

    def vjp(self, post: Tensor, pre: Tensor) -> Tensor:
        """``[out]`` of ``[K, ..., out]``, or ``[K, out, ...]`` of a convolution."""
        channel = -1 if isinstance(self.module, nn.Linear) else 1
        product = (post * pre).movedim(channel, -1)
        return product.flatten(0, -2).sum(0)


class Taps(Bias):
    """A kernel whose input is always one, at padded places too: all taps of a channel are alike."""

    def vjp(self, post: Tensor, pre: Tensor) -> Tensor:
        """``[out, 1, ...]`` of ``[K, out, ...]``."""
        param: Tensor = getattr(self.module, self.name)
        return super().vjp(post, pre).reshape(-1, *[1] * (param.ndim - 1))


class Convolution(WeightVJP):
    """A convolution's kernel: its own weight gradient, stride, padding and groups included."""

    @property
    def constant(self) -> WeightVJP:
        """All taps see an input that is always one equally often."""
        return Taps(self.module, self.name, self.place)

    def vjp(self, post: Tensor, pre: Tensor) -> Tensor:
        """``[out, in / groups, ...]`` of ``[K, out, ...]`` and ``[K, in, ...]``."""
        conv = self.module
        assert isinstance(conv, _CONVOLUTIONS)
        gradient: Any = _WEIGHT_GRADIENTS[conv.weight.ndim - 2]
        product: Tensor = gradient(
            pre, conv.weight.shape, post, conv.stride, conv.padding, conv.dilation, conv.groups
        )
        return product


class Jacobian(WeightVJP):
    """Any module that is linear in the parameter: the vector-Jacobian product."""

    def vjp(self, post: Tensor, pre: Tensor) -> Tensor:
        """The parameter's shape, of the module's output and input."""
        return self._product(getattr(self.module, self.name).detach(), post, pre)

    def check(self, post: Tensor, pre: Tensor) -> None:
        """Sees to the shapes, and to the parameter entering linearly.

        Raises:
            ValueError: if one of the two is not so.
        """
        super().check(post, pre)
        param = getattr(self.module, self.name).detach().double()
        generator = torch.Generator(param.device).manual_seed(0)  # not the run's own

        def random(like: Tensor) -> Tensor:
            options = {"dtype": param.dtype, "device": param.device}
            return torch.rand(like.shape, generator=generator, **options)

        probe = pre if _indices(pre) else random(pre)
        direction = random(post)
        module = copy.deepcopy(self.module).double()
        at = [
            Jacobian(module, self.name, self.place)._product(p, direction, probe)
            for p in (param, random(param))
        ]
        if not torch.allclose(at[0], at[1], rtol=1e-6, atol=1e-9):
            raise ValueError(
                f"Parameter {self.place} should enter its module, a {type(self.module).__name__},"
                " linearly: local rules sum products of what goes in and comes out. Found that"
                " its derivative depends on its value: train the linear module inside, and take"
                " what follows as the neuron."
            )

    def _product(self, param: Tensor, post: Tensor, pre: Tensor) -> Tensor:
        with torch.enable_grad():
            leaf = param.to(post.dtype).requires_grad_()
            out = self._run(leaf, pre)
            if not out.requires_grad:
                raise ValueError(
                    f"Parameter {self.place} should take part in what its module, a"
                    f" {type(self.module).__name__}, gives, with a derivative. Found that it has"
                    " none: name another in `params`, and run the module with gradients."
                )
            (product,) = torch.autograd.grad(out, leaf, post, allow_unused=True)
        return torch.zeros_like(leaf) if product is None else product


class PaddedConvolution(Jacobian):
    """A convolution that is padded by name, or with other values than zero."""

    @property
    def constant(self) -> WeightVJP:
        """All taps see an input that is always one equally often."""
        return Taps(self.module, self.name, self.place)


def unit_dim_of(module: nn.Module) -> int:
    """Which dimension of a module's ``[T, B, ...]`` counts neurons: the last, or channels."""
    return 2 if isinstance(module, nn.modules.conv._ConvNd) else -1


def vjp_of(module: nn.Module, name: str, place: str = "") -> WeightVJP:
    """The geometry of a parameter, by the kind of its module.

    Args:
        module: the connection.
        name: one of its parameters.
        place: parameter and cell, for messages.

    Example:
        >>> from torch import nn
        >>> type(vjp_of(nn.Conv2d(1, 2, 3), "weight")).__name__
        'Convolution'
    """
    kind: type[WeightVJP] = Jacobian
    if not _stock(module):
        return kind(module, name, place)
    if name == "bias" and isinstance(module, (nn.Linear, nn.modules.conv._ConvNd)):
        kind = Bias
    elif name == "weight" and isinstance(module, nn.Linear):
        kind = Outer
    elif name == "weight" and isinstance(module, _CONVOLUTIONS):
        plain = module.padding_mode == "zeros" and not isinstance(module.padding, str)
        kind = Convolution if plain else PaddedConvolution
    return kind(module, name, place)


def _stock(module: nn.Module) -> bool:
    """Whether the module runs as torch or this package wrote it, whatever class it has."""
    ours = ("torch.nn.modules.", "lightning_accum.nn.")
    runs = [getattr(type(module), name, None) for name in ("forward", "_conv_forward")]
    own = {"forward", "_conv_forward"} & set(module.__dict__)
    return not own and all(fn is None or fn.__module__.startswith(ours) for fn in runs)


def _operand(activity: Tensor, dtype: torch.dtype) -> Tensor:
    """Spikes and values in the dtype of the computation; indices as they are."""
    return activity if _indices(activity) else as_numbers(activity, dtype)


def _indices(activity: Tensor) -> bool:
    return activity.dtype != torch.bool and not activity.is_floating_point()


def _shape(tensor: Tensor) -> str:
    return str(["B", *tensor.shape[1:]]).replace("'", "")
