"""Constraints that hold after each update: hard limits, a fixed norm, and those of the user."""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from lightning_accum._checks import (
    check_finite,
    check_floats,
    check_numbers,
    check_shape,
    check_tensors,
    check_value,
)
from lightning_accum.distributed.shards import is_sharded, local
from lightning_accum.functional.dtypes import widened
from lightning_accum.updates.targets import PendingTarget, by_output

Constraint: TypeAlias = Callable[[Tensor], Any]  # changes a parameter in place

Limits: TypeAlias = "tuple[float | None, float | None]"
"""A lower and an upper limit, each of which may be missing."""


@dataclass(frozen=True)
class Clamp:
    r"""Hard bounds: :math:`w \leftarrow \min(\max(w, w_{\min}), w_{\max})` after each update.

    Args:
        min: the lowest value, or ``None`` for no limit.
        max: the highest value, or ``None`` for no limit.

    Example:
        >>> import torch
        >>> w = torch.tensor([-1.0, 2.0])
        >>> Clamp(0.0, 1.0)(w)
        >>> w
        tensor([0., 1.])
    """

    min: float | None = None
    max: float | None = None

    def __post_init__(self) -> None:
        limits = {name: limit for name, limit in vars(self).items() if limit is not None}
        if not limits:
            raise ValueError(
                "Arguments `min` and `max` should not both be None, because there would be nothing"
                " to clamp to: pass at least one."
            )
        check_finite(**limits)
        if self.min is not None and self.max is not None:
            check_value(self.min <= self.max, "min", self.min, f"at most `max = {self.max}`")

    @property
    def weight_limits(self) -> tuple[float | None, float | None]:
        """The lowest and the highest value."""
        return self.min, self.max

    def __call__(self, param: Tensor) -> None:
        """Clamps ``param`` in place."""
        check_tensors(param=param)
        with torch.no_grad():
            param.clamp_(min=self.min, max=self.max)


@dataclass(frozen=True)
class Normalize:
    r"""Scales each output's incoming weights to one norm, :math:`\lVert w_o \rVert_p = n`.

    Outputs are the first dimension of a parameter, but the last of an embedding, and the channels
    that a transposed convolution gives out; the weights of an output of a
    :class:`~lightning_accum.nn.SparseLinear` are those of its synapses. A call on a tensor takes
    its first dimension: for another one, as in a module of your own, pass or register a call on a
    view, ``lambda w: Normalize()(w.T)``. A row of zeros stays unchanged, and so does one whose norm
    is too small for its precision.

    Args:
        norm: the norm :math:`n` of each output's weights.
        order: :math:`p`, usually 1 or 2.

    Example:
        >>> import torch
        >>> w = torch.tensor([[1.0, 3.0]])
        >>> Normalize(1.0, order=1)(w)
        >>> w
        tensor([[0.2500, 0.7500]])

    Source:
        Miller & MacKay (1994), doi:10.1162/neco.1994.6.1.100, the multiplicative constraint.
    """

    norm: float = 1.0
    order: float = 1.0

    def __post_init__(self) -> None:
        check_numbers(**vars(self))
        check_value(0 < self.norm < math.inf, "norm", self.norm, "a positive number")
        check_value(self.order > 0, "order", self.order, "a positive number")

    @torch.no_grad()
    def __call__(self, param: Tensor) -> None:
        """Normalizes each slice of ``param`` along its first dimension, in place."""
        check_floats(param=param)
        how = "leave out what is not a weight, such as a bias, by naming the parameters of a"
        how += ' constraint, `register_constraint(fn, "weight")`'
        should = "incoming dimensions for its outputs to be normalized"
        check_shape(param.ndim > 1, "param", param, should, how)
        wide = widened(param)
        total = torch.linalg.vector_norm(wide, self.order, (*range(1, param.ndim),), keepdim=True)
        self._scale(param, wide, total)

    @torch.no_grad()
    def on_synapses(self, param: Tensor, outputs: Tensor, count: int) -> None:
        """Normalizes weights ``[synapses]`` in place, those that lead to one output together."""
        wide = widened(param)
        size, places = wide.abs(), outputs.long()
        largest = wide.new_zeros(count).scatter_reduce_(0, places, size, "amax")
        total = largest
        if not math.isinf(self.order):  # relative to the largest, so that no power overflows
            share = size / largest.where(largest > 0, 1.0).index_select(0, places)
            powers = wide.new_zeros(count).index_add_(0, places, share**self.order)
            total = powers ** (1 / self.order) * largest
        self._scale(param, wide, total.index_select(0, places))

    def _scale(self, param: Tensor, wide: Tensor, total: Tensor) -> None:
        """Gives weights of norms ``total`` the norm."""
        # A row without a norm is divided and multiplied by the same number. The division comes
        # first, so that no quotient overflows, however small the row and however large the norm.
        tiny = torch.finfo(wide.dtype).tiny
        param.copy_(wide / total.where(total > tiny, self.norm) * self.norm)


class Constraints(OrderedDict[int, tuple[Constraint, tuple[str, ...]]]):
    """Constraints in the order of their registration, each for some parameters or for all."""

    def register(
        self,
        fn: Constraint,
        names: tuple[str, ...],
        params: Mapping[str, Tensor | None],
        bounds: Mapping[str, Limits],
    ) -> RemovableHandle:
        """Adds a constraint."""
        if not callable(fn) or isinstance(fn, type):
            kind = type(fn).__name__
            found = f"the class `{fn.__name__}`" if isinstance(fn, type) else f"`{kind}`"
            raise TypeError(
                "Argument `fn` should be a callable that changes a parameter in place. Found"
                f" {found}: pass a function or an object, such as `Clamp(0.0, 1.0)`."
            )
        self._check_room(fn, names)
        self.check_bounds(bounds, fn)
        for name, param in params.items():
            if param is not None and not is_sharded(param):
                _try(fn, name, param)
        handle = RemovableHandle(self)
        while handle.id in self:  # pickled in another process
            handle = RemovableHandle(self)
        self[handle.id] = (fn, names)
        return handle

    def _check_room(self, fn: Constraint, names: tuple[str, ...]) -> None:
        """Raises a ``ValueError`` if a parameter would have no room between its limits."""
        own = _limits(fn)
        if _leave_no_room(own, own):
            raise ValueError(
                f"The limits of a constraint should leave room for weights to change. Found `{fn}`,"
                " which sets all to one value: give it a `max` above its `min`, or give the"
                " rule only the `params` that should learn."
            )
        for other, of in self.values():
            if names and of and not {*names} & {*of}:
                continue
            if _leave_no_room(own, _limits(other)):
                raise ValueError(
                    f"Constraints on one parameter should leave room for it to change. Found"
                    f" `{fn}` and `{other}`, which no two values satisfy: call `remove()` on the"
                    " handle of the other, name the parameter that each is for, or correct the"
                    " limits."
                )

    def check_bounds(self, bounds: Mapping[str, Limits], new: Constraint | None = None) -> None:
        """Raises a ``ValueError`` if these, or a new one, and bounds leave a parameter no room."""
        for name, (lower, upper) in bounds.items():
            for fn in self.of(name) if new is None else [new]:
                if _leave_no_room(_limits(fn), (lower, upper)):
                    least = "-inf" if lower is None else lower
                    raise ValueError(
                        "A constraint and the bounds of a parameter should leave room for it to"
                        f" change. Found `{fn}`, and bounds of `{name}` that keep it from {least}"
                        f" to {'inf' if upper is None else upper}: correct the limits of one of"
                        " them, or name the parameter that the constraint is for."
                    )

    def of(self, name: str) -> list[Constraint]:
        """Returns the constraints of a parameter."""
        return [fn for fn, names in self.values() if not names or name in names]

    @torch.no_grad()
    def run(self, targets: Iterable[PendingTarget], module: nn.Module) -> None:
        """Runs every constraint on those of its parameters that have changed."""
        for fn, only in self.values():
            for name, param, *_ in targets:
                if not only or name in only:
                    _check_in_place(name, param, _called(fn, param, module, name))

    def limits(self, name: str, lower: float | None, upper: float | None) -> Limits:
        """Returns the limits of a parameter, those of its bounds if no constraint sets others."""
        # A constraint that keeps a parameter between limits has them as `weight_limits`.
        for fn in self.of(name):
            lowest, highest = _limits(fn)
            lower = lower if lowest is None else lowest
            upper = upper if highest is None else highest
        return lower, upper


def _called(fn: Constraint, param: Tensor, module: nn.Module, name: str) -> object:
    """Calls a constraint; one that has ``on_synapses`` is called on the weights of each output."""
    grouped, outputs_of = getattr(fn, "on_synapses", None), getattr(module, "outputs_of", None)
    if not callable(grouped):
        return fn(param)
    outputs = outputs_of(name) if callable(outputs_of) else None
    if outputs is not None:
        return grouped(param, *outputs)
    return [fn(view) for view in by_output(module, name, param)]


def _limits(fn: Constraint) -> Limits:
    limits: Limits = getattr(fn, "weight_limits", (None, None))
    return limits


def _leave_no_room(first: Limits, second: Limits) -> bool:
    """Returns whether no two values lie between the limits of both."""
    (low, high), (lower, upper) = first, second
    apart = low is not None and upper is not None and low >= upper
    return apart or (lower is not None and high is not None and lower >= high)


@torch.no_grad()
def _try(fn: Constraint, name: str, param: Tensor) -> None:
    """Raises a ``TypeError`` if a constraint does not change a parameter in place."""
    copy = param.detach().clone()
    try:
        result = fn(copy)
    except Exception:
        # It may expect weights of another kind than these first ones; if not, it will raise again
        # when it runs on them.
        return
    _check_in_place(name, copy, result)


def _check_in_place(name: str, param: Tensor, result: Any) -> None:
    tensors = (result, param) if isinstance(result, Tensor) else ()
    if len({local(each).untyped_storage().data_ptr() for each in tensors}) > 1:
        raise TypeError(
            f"The constraint on `{name}` should change the parameter in place. Found one that"
            " returns a new tensor, which would be lost: use `clamp_`, `copy_` and the like."
        )
