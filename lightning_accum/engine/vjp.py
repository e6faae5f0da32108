"""Vector-Jacobian products: how products of activity change a parameter, by kind of connection."""

from __future__ import annotations

import math
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import grad

from lightning_accum._compat.torch_internals import forward_methods
from lightning_accum.distributed.shards import WithoutHooks, is_fsdp
from lightning_accum.functional.dtypes import as_numbers
from lightning_accum.nn.sparse_linear import SparseLinear
from lightning_accum.observe import unobserved
from lightning_accum.observe.monitor import copied, first_tensor
from lightning_accum.sparse.synapse_products import plain_sum_pairs, sum_pairs

# Elements of both sides that are converted and multiplied at a time: 4 MB in float32.
_CHUNK_ELEMENTS = 1 << 20
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_WEIGHT_GRADIENTS = {1: grad.conv1d_weight, 2: grad.conv2d_weight, 3: grad.conv3d_weight}
_CHANNELS_FIRST = (*CONVOLUTIONS, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_MULTIPLY = (nn.Linear, SparseLinear, *_CHANNELS_FIRST)  # numbers, not indices
_STOCK = ("torch.nn.modules.", "lightning_accum.nn.")  # code that torch or this package wrote


class WeightVJP(ABC):
    """Sums ``(df(x; w) / dw)^T y`` over products of presynaptic x and postsynaptic y."""

    # whether the parameter is a matrix `[out, in]`, and the product the outer product
    is_matrix: ClassVar[bool] = False
    # whether the connection's input multiplies the parameter; a bias has a constant input
    reads_input: ClassVar[bool] = True

    def __init__(self, module: nn.Module, name: str, place: str) -> None:
        self._module = weakref.ref(module)  # which belongs to the model
        self.name = name
        self.place = place

    @property
    def module(self) -> nn.Module:
        """The module with the parameter."""
        module = self._module()
        assert module is not None
        return module

    @abstractmethod
    def vjp(self, post: Tensor, pre: Tensor) -> Tensor:
        """Returns the product, summed over the first dimension, in the parameter's shape."""

    @property
    def for_constant_input(self) -> WeightVJP:
        """Returns the product with :meth:`constant_input`."""
        return self

    @property
    def plain(self) -> WeightVJP:
        """Returns the product in its plain form."""
        return self

    def constant_input(self, post: Tensor, pre: Tensor) -> Tensor:
        """Returns an input that is always one, for a window ``[T, B, ...]``."""
        if is_indices(pre) and not isinstance(self.module, _MULTIPLY):
            raise ValueError(
                f"Parameter {self.place} should have a rule without a constant input, because its"
                f" connection takes {str(pre.dtype).removeprefix('torch.')}, which may be indices."
                " Found a rule with one, as in a decay or a target: choose a rule whose terms all"
                " use `window.pre`, or give the connection numbers in floating point."
            )
        return post.new_ones(()).expand(pre.shape)

    def sum(self, post: Tensor, pre: Tensor, dtype: torch.dtype) -> Tensor:
        """Returns :meth:`vjp` of activity of any dtype, computed in chunks of bounded size."""
        rows = max(1, _CHUNK_ELEMENTS // max(1, pre[:1].numel() + post[:1].numel()))
        total: Tensor | None = None
        for left, right in zip(post.split(rows), pre.split(rows), strict=True):
            part = self.vjp(as_numbers(left, dtype), _as_input(right, dtype))
            total = part if total is None else total.add_(part)
        assert total is not None
        return total

    def check(self, post: Tensor, pre: Tensor) -> None:
        """Runs the connection on one sample and compares its output with the neuron's in shape."""
        # Hooks on the connection do not run: what others record there would have one call more.
        with self.explained(pre.ndim == 1), torch.no_grad():
            out = self.run(getattr(self.module, self.name).detach(), pre, hooks=False)
        if out.shape != post.shape:
            raise ValueError(
                f"Parameter {self.place} belongs to a {type(self.module).__name__}; the neuron's"
                f" output should have the shape of that module's output, {_shape(out)}. Found"
                f" {_shape(post)}: name the module whose output the neuron takes as the connection."
            )

    @contextmanager
    def explained(self, no_batch: bool = False) -> Iterator[None]:
        """Says, of an error that the connection raises inside, that the package called it."""
        try:
            yield
        except (MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            raise ValueError(
                f"Parameter {self.place} belongs to a {type(self.module).__name__}, which should"
                " take one floating-point tensor, in the dtype of the parameter, because the rule"
                " calls it to see how it uses the parameter. Found that it then raises a"
                f" {type(error).__name__}, `{error}`: let its `forward` take such a tensor, also"
                f" when spikes are booleans{', and a batch, as `x[None]`' if no_batch else ''}."
            ) from error

    def run(self, param: Tensor, pre: Tensor, hooks: bool = True) -> Tensor:
        """Returns the output for other values of the parameter, unseen by monitors."""
        inputs = (_as_input(pre, param.dtype),)
        module, name = self.module, self.name
        if not hooks or is_fsdp(module):
            module, name = WithoutHooks(module), f"module.{name}"
        values = {name: param}
        if (trained := getattr(self.module, self.name)).dtype != param.dtype:
            # The others too, as a module computes in one dtype.
            for own, value in (*module.named_parameters(), *module.named_buffers()):
                if value is not trained and value.is_floating_point():
                    values.setdefault(own, value.detach().to(param.dtype))
        with unobserved():
            out: Any = torch.func.functional_call(module, values, inputs)
        return first_tensor((out,))


class Outer(WeightVJP):
    """Sums outer products into a matrix ``[out, in]``, over all dimensions but the last."""

    is_matrix = True

    def constant_input(self, post: Tensor, pre: Tensor) -> Tensor:
        """Returns a single input, whose column of the product stands for all columns."""
        return post.new_ones(()).expand(*post.shape[:-1], 1)

    def vjp(self, post: Tensor, pre: Tensor) -> Tensor:
        """Returns ``[out, in]`` of ``[K, ..., out]`` and ``[K, ..., in]``."""
        return post.flatten(0, -2).T @ pre.flatten(0, -2)


class PerSynapse(Outer):
    """Sums outer products into a matrix that has an entry for each synapse, as delays do."""

    def check(self, post: Tensor, pre: Tensor) -> None:
        """Raises a ``ValueError`` if the shape is not ``[out, in]``."""
        # The connection is not run, because one with delays keeps past inputs.
        param: Tensor = getattr(self.module, self.name)
        expected = (post.shape[-1], pre.shape[-1])
        if tuple(param.shape) != expected:
            raise ValueError(
                f"Parameter {self.place} should have an entry for each synapse, shape"
                f" {list(expected)}. Found {list(param.shape)}."
            )


class SparseOuter(WeightVJP):
    """Sums outer products into the synapses of a sparse connection, by the spikes of one side."""

    _is_plain = False
    constant_input = Outer.constant_input

    @property
    def plain(self) -> WeightVJP:
        """Returns the product that multiplies both sides of every synapse."""
        other = SparseOuter(self.module, self.name, self.place)
        other._is_plain = True
        return other

    def sum(self, post: Tensor, pre: Tensor, dtype: torch.dtype) -> Tensor:
        """Returns the sums of all synapses, in memory that is proportional to their number."""
        post, pre = post.flatten(0, -2), pre.flatten(0, -2)
        connection = self.module
        assert isinstance(connection, SparseLinear)
        if not self._is_plain and pre.shape[1] == connection.in_features:
            return sum_pairs(post, pre, connection.by_output, connection.by_input, dtype)
        return self.vjp(as_numbers(post, dtype), as_numbers(pre, dtype))

    def vjp(self, post: Tensor, pre: Tensor) -> Tensor:
        """Returns ``[synapses]`` of ``[K, ..., out]`` and ``[K, ..., in]``."""
        connection = self.module
        assert isinstance(connection, SparseLinear)
        post, pre = post.flatten(0, -2), pre.flatten(0, -2)
        if pre.shape[1] == connection.in_features:
            return plain_sum_pairs(post, pre, connection.by_input)
        return (post * pre).sum(0).index_select(0, connection.outputs)


class Bias(WeightVJP):
    """Sums activity into a bias, the weight of an input ``[K, 1, ...]`` that is always one."""

    reads_input = False

    def constant_input(self, post: Tensor, pre: Tensor) -> Tensor:
        """Returns a single one for each step and sample."""
        return post.new_ones(*post.shape[:2], *[1] * (post.ndim - 2))

    def vjp(self, post: Tensor, pre: Tensor) -> Tensor:
        """Returns ``[out]``; of a convolution's kernel ``[out, 1, ...]``, alike in all entries."""
        channel = 1 if isinstance(self.module, _CHANNELS_FIRST) else -1
        product = (post * pre).movedim(channel, -1).flatten(0, -2).sum(0)
        param: Tensor = getattr(self.module, self.name)
        return product.reshape(-1, *[1] * (param.ndim - 1))


class Jacobian(WeightVJP):
    """Differentiates the module by its parameter."""

    def vjp(self, post: Tensor, pre: Tensor) -> Tensor:
        """Returns the gradient, in the parameter's shape, of the output weighted by ``post``."""
        return self._gradient(getattr(self.module, self.name).detach(), post, pre)

    def run(self, param: Tensor, pre: Tensor, hooks: bool = True) -> Tensor:
        """Returns the output for other values of the parameter; hooks always run."""
        # They may compute tensors that the module uses, as those of `torch.nn.utils.prune` do.
        return super().run(param, pre)

    def check(self, post: Tensor, pre: Tensor) -> None:
        """Checks the shapes, and that the derivative by the parameter does not depend on it."""
        super().check(post, pre)
        dtype, linear = torch.float64, None
        with suppress(Exception):  # a module may name a dtype itself, as `x.float()` does
            linear = self._is_same(post, pre, dtype)
        if linear is None:
            dtype = torch.promote_types(getattr(self.module, self.name).dtype, torch.float32)
            linear = self._is_same(post, pre, dtype)
        if not linear:
            found = "that the derivative depends on the parameter's value: train the linear module"
            found += " inside, and make the rest part of the neuron"
            if not self._is_same(post, pre, dtype, elsewhere=False):
                found = "that two calls with the same input have other derivatives: put what is"
                found += " random, such as dropout, in a module of its own before the connection"
            raise ValueError(
                f"Parameter {self.place} should enter its module, a {type(self.module).__name__},"
                " linearly, because local rules sum products of its input and its output. Found"
                f" {found}."
            )

    def _is_same(
        self, post: Tensor, pre: Tensor, dtype: torch.dtype, elsewhere: bool = True
    ) -> bool:
        """Returns whether the derivatives at two values, or twice at one, are the same."""
        param = getattr(self.module, self.name).detach().to(dtype)
        generator = torch.Generator(param.device).manual_seed(0)  # leaves the global one alone

        def random(like: Tensor) -> Tensor:
            return torch.rand(like.shape, generator=generator, dtype=dtype, device=param.device)

        probe = pre if is_indices(pre) else random(pre)
        direction = random(post)
        with self.explained():
            module = copied(self.module)
        module = module.double() if dtype == torch.float64 else module
        twin = Jacobian(module, self.name, self.place)
        values = param, random(param) if elsewhere else param
        one, other = (twin._gradient(value, direction, probe) for value in values)
        if dtype == torch.float64:
            return torch.allclose(one, other, rtol=1e-6, atol=1e-9)
        part = math.sqrt(torch.finfo(dtype).eps)  # sums of many products round, relative to all
        return torch.allclose(one, other, rtol=part, atol=part * float(one.abs().max()))

    def _gradient(self, param: Tensor, post: Tensor, pre: Tensor) -> Tensor:
        """Returns the derivative of the output, weighted by ``post``, by the parameter."""
        with torch.enable_grad(), self.explained():
            leaf = param.to(post.dtype).requires_grad_()
            out = self.run(leaf, pre)
        if not out.requires_grad:
            raise ValueError(
                f"Parameter {self.place} should take part in the output of its module, a"
                f" {type(self.module).__name__}, with a derivative. Found that it has none:"
                " name another parameter in `params`, and run the module with gradients."
            )
        with self.explained():
            (gradient,) = torch.autograd.grad(out, leaf, post, allow_unused=True)
        return torch.zeros_like(leaf) if gradient is None else gradient


class Convolution(WeightVJP):
    """Computes the weight gradient of a convolution, with its stride, dilation and groups."""

    @property
    def for_constant_input(self) -> WeightVJP:
        """Returns the product that treats all entries of a channel's kernel alike."""
        return Bias(self.module, self.name, self.place)

    def vjp(self, post: Tensor, pre: Tensor) -> Tensor:
        """Returns ``[out, in / groups, ...]`` of ``[K, out, ...]`` and ``[K, in, ...]``."""
        conv = self.module
        assert isinstance(conv, CONVOLUTIONS)
        gradient: Any = _WEIGHT_GRADIENTS[conv.weight.ndim - 2]
        product: Tensor = gradient(
            pre, conv.weight.shape, post, conv.stride, conv.padding, conv.dilation, conv.groups
        )
        return product


class PaddedConvolution(Jacobian):
    """Differentiates a convolution whose padding is named, or is not zeros."""

    for_constant_input = Convolution.for_constant_input


def unit_dim_of(module: nn.Module) -> int:
    """Returns the dimension of ``[T, B, ...]`` that counts neurons: the last, or channels."""
    return 2 if isinstance(module, _CHANNELS_FIRST) else -1


def sample_dims_of(module: nn.Module) -> int | None:
    """Returns how many dimensions a module takes of one sample without a batch, if it takes it."""
    if not _is_stock(module):
        return None
    if isinstance(module, _CHANNELS_FIRST):
        return 1 + len(module.kernel_size)
    return 1 if isinstance(module, _MULTIPLY) else None


def kind_of_vjp(module: nn.Module, name: str) -> type[WeightVJP]:
    """Returns the class of the vector-Jacobian product of a parameter."""
    if not _is_stock(module):
        return Jacobian
    if name == "bias" and isinstance(module, _MULTIPLY):
        return Bias
    if name == "weight" and isinstance(module, SparseLinear):
        return SparseOuter
    if name == "weight" and isinstance(module, nn.Linear):
        return Outer
    if name == "weight" and isinstance(module, CONVOLUTIONS):
        plain = module.padding_mode == "zeros" and not isinstance(module.padding, str)
        return Convolution if plain else PaddedConvolution
    return Jacobian


def _is_stock(module: nn.Module) -> bool:
    return all(method.startswith(_STOCK) for method in forward_methods(module))


def is_indices(activity: Tensor) -> bool:
    """Returns whether activity is indices, as an embedding takes them."""
    return activity.dtype != torch.bool and not activity.is_floating_point()


def _as_input(activity: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns spikes and values in ``dtype``, and indices unchanged."""
    return activity if is_indices(activity) else as_numbers(activity, dtype)


def _shape(tensor: Tensor) -> str:
    return str(["B", *tensor.shape[1:]]).replace("'", "")
