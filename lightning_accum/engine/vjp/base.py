"""The interface of a weight's vector-Jacobian product."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from lightning_accum.distributed.fsdp import WithoutHooks, is_fsdp
from lightning_accum.functional.numbers import as_numbers
from lightning_accum.observe import first_tensor, unobserved

# Elements of both sides that are converted and multiplied at a time: 4 MB in float32.
_CHUNK_ELEMENTS = 1 << 20


class WeightVJP(ABC):
    r"""Sums products of pre- and postsynaptic activity into the shape of a parameter.

    With :math:`f(x; w)` the connection, linear in :math:`w`, it is the vector-Jacobian product

    .. math:: C(y, x) = \sum_k \left(\frac{\partial f(x_k; w)}{\partial w}\right)^\top y_k,

    which is the outer product :math:`\sum_k y_k \otimes x_k` if the connection is a matrix.

    Args:
        module: the connection.
        name: the name of the parameter.
        place: names the parameter and the cell in messages.
    """

    is_matrix: ClassVar[bool] = False
    """Whether the parameter is a matrix ``[out, in]``, and the product the outer product."""

    reads_input: ClassVar[bool] = True
    """Whether the connection's input multiplies the parameter; a bias has a constant input."""

    def __init__(self, module: nn.Module, name: str, place: str) -> None:
        self.module = module
        self.name = name
        self.place = place

    @abstractmethod
    def vjp(self, post: Tensor, pre: Tensor) -> Tensor:
        """Returns the product, summed over the first dimension, in the parameter's shape.

        Args:
            post: ``[K, ...]`` in the shape of the connection's output, floating point.
            pre: ``[K, ...]`` in the shape of the connection's input, of the same dtype, or indices.
        """

    @property
    def for_constant_input(self) -> WeightVJP:
        """Returns the product with :meth:`constant_input`."""
        return self

    def constant_input(self, post: Tensor, pre: Tensor) -> Tensor:
        """Returns an input that is always one, for a window ``[T, B, ...]``.

        Args:
            post: postsynaptic activity of the window.
            pre: presynaptic activity of the window.

        Raises:
            ValueError: if the connection takes indices, for which no value means one.
        """
        if is_indices(pre):
            raise ValueError(
                f"Parameter {self.place} should have a rule without a constant input, because its"
                " connection takes indices. Found a rule with one, as in a decay or a target:"
                " choose a rule whose terms all use `window.pre`."
            )
        return post.new_ones(()).expand(pre.shape)

    def sum(self, post: Tensor, pre: Tensor, dtype: torch.dtype) -> Tensor:
        """Returns :meth:`vjp` of activity of any dtype, computed in chunks of bounded size.

        Args:
            post: ``[K, ...]`` postsynaptic activity.
            pre: ``[K, ...]`` presynaptic activity.
            dtype: the dtype of the computation.
        """
        rows = max(1, _CHUNK_ELEMENTS // max(1, pre[:1].numel() + post[:1].numel()))
        total: Tensor | None = None
        for left, right in zip(post.split(rows), pre.split(rows), strict=True):
            part = self.vjp(as_numbers(left, dtype), _as_input(right, dtype))
            total = part if total is None else total.add_(part)
        assert total is not None
        return total

    def check(self, post: Tensor, pre: Tensor) -> None:
        """Runs the connection on one sample and compares its output with the neuron's in shape.

        Hooks on the connection do not run: what others record there would have one call more.

        Args:
            post: ``[1, ...]`` activity of the neuron.
            pre: ``[1, ...]`` activity before the connection.

        Raises:
            ValueError: if the shapes differ, or the connection raises an error.
        """
        with self.explained(), torch.no_grad():
            out = self.run(getattr(self.module, self.name).detach(), pre, hooks=False)
        if out.shape != post.shape:
            raise ValueError(
                f"Parameter {self.place} belongs to a {type(self.module).__name__}; the neuron's"
                f" output should have the shape of that module's output, {_shape(out)}. Found"
                f" {_shape(post)}: name the module whose output the neuron takes as the connection."
            )

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Says, of an error that the connection raises inside, that the package called it.

        Raises:
            ValueError: whose cause is that error.
        """
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
                " when spikes are booleans."
            ) from error

    def run(self, param: Tensor, pre: Tensor, hooks: bool = True) -> Tensor:
        """Returns the connection's output with other values of the parameter, unseen by monitors.

        Args:
            param: the values.
            pre: ``[K, ...]`` the input.
            hooks: whether the connection's hooks run, which may change its output.
        """
        inputs = (_as_input(pre, param.dtype),)
        module, name = self.module, self.name
        if not hooks or is_fsdp(module):
            module, name = WithoutHooks(module), f"module.{name}"
        with unobserved():
            out: Any = torch.func.functional_call(module, {name: param}, inputs)
        return first_tensor((out,))


def is_indices(activity: Tensor) -> bool:
    """Returns whether activity is indices, as an embedding takes them."""
    return activity.dtype != torch.bool and not activity.is_floating_point()


def _as_input(activity: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns spikes and values in ``dtype``, and indices unchanged."""
    return activity if is_indices(activity) else as_numbers(activity, dtype)


def _shape(tensor: Tensor) -> str:
    return str(["B", *tensor.shape[1:]]).replace("'", "")
