"""The parameters that can be updated, and the constraints that hold after each update."""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import is_parametrized
from torch.utils.hooks import RemovableHandle

from lightning_accum import _checks as checks
from lightning_accum._compat.torch import own_tensor
from lightning_accum.distributed.shards import is_sharded, local
from lightning_accum.functional.dtypes import widened
from lightning_accum.updates.pending import Pending

_TRANSPOSED = nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d  # [in, out, ...]


class PendingTarget(NamedTuple):
    """A parameter for which a change is pending, for one call of its updater."""

    name: str
    param: Tensor
    pending: Pending
    sharded: bool = False  # whether the parameter is spread over processes
    factor: float = 1.0  # of the bounded change
    options: Mapping[str, Any] = MappingProxyType({})  # for the bounds that take them


def parameter_of(module: nn.Module, name: str) -> Tensor | None:
    """Returns the module's own parameter or buffer of a name; ``None`` if it has none."""
    # If `torch.nn.utils.prune` computes the tensor, the original parameter is returned.
    found = own_tensor(module, name)
    if found is None and own_tensor(module, f"{name}_mask") is not None:
        found = own_tensor(module, f"{name}_orig")
    return found


def by_output(module: nn.Module, name: str, param: Tensor) -> list[Tensor]:
    """Returns views of a parameter, one for each group, whose first dimension counts outputs."""
    if name.removesuffix("_orig") == "weight":  # or what `torch.nn.utils.prune` made of it
        if isinstance(module, _TRANSPOSED):
            return [group.transpose(0, 1) for group in param.chunk(module.groups)]
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
            return [param.transpose(0, 1)]
    return [param]


def follow_synapses(module: nn.Module, follower: Any) -> None:
    """Has a connection tell a follower, weakly, when its synapses are replaced, if they may be."""
    followers = getattr(module, "followers", None)
    if isinstance(followers, WeakSet):
        followers.add(follower)


def updatable_param(module: nn.Module, name: str) -> Tensor:
    """Returns the module's own parameter or buffer of a name, if it can be updated."""
    label = type(module).__name__
    if isinstance(module, torch.jit.ScriptModule):
        raise TypeError(
            "Argument `module` should be a module of Python. Found what `torch.jit` made of a"
            f" `{getattr(module, 'original_name', label)}`: train the module itself, and script it"
            " afterwards."
        )
    param = parameter_of(module, name)
    if param is None:
        own = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
        raise AttributeError(
            f"Argument `params` should name parameters of `{label}`, which has"
            f" {[name for name, _ in own]}. Found `{name}`"
            f"{_remedy(module, name) if getattr(module, name, None) is not None else '.'}"
        )
    if is_lazy(param):
        raise ValueError(
            f"Argument `params` should name parameters that have a shape. Found `{name}` of"
            f" `{label}`, which waits for its first input: call the module once before."
        )
    if not (param.is_floating_point() or param.is_complex()):
        raise TypeError(
            f"Argument `params` should name parameters and buffers of floating-point numbers:"
            f" integers would lose small changes. Found `{name}` of `{label}`, {param.dtype}: keep"
            " it in floating point, and round it where it is used."
        )
    strides = param.stride() if param.layout == torch.strided else ()
    if any(size > 1 and not step for size, step in zip(param.shape, strides, strict=False)):
        raise ValueError(
            "Argument `params` should name parameters whose elements each have a place in memory."
            f" Found `{name}` of `{label}`, which was made by `expand`, so that a change of one"
            " element would change others: call `clone()` on it before it becomes a parameter."
        )
    return param


def _remedy(module: nn.Module, name: str) -> str:
    """Returns the end of a message: how to train a tensor that is computed from others."""
    undo = "make it a parameter of the module"
    if is_parametrized(module, name):
        undo = f"call `torch.nn.utils.parametrize.remove_parametrizations(module, {name!r})`"
    elif own_tensor(module, f"{name}_g") is not None:
        undo = f"call `torch.nn.utils.remove_weight_norm(module, {name!r})`"
    elif own_tensor(module, f"{name}_orig") is not None:
        undo = f"call `torch.nn.utils.remove_spectral_norm(module, {name!r})`"
    return (
        ", which is computed from others before each use, so that a change of it would not last:"
        f" {undo}, and register what should hold after each update with"
        " `updater.register_constraint(...)`, for example `Normalize()`."
    )


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
        checks.check_finite(**limits)
        if self.min is not None and self.max is not None:
            checks.check_value(self.min <= self.max, "min", self.min, f"at most `max = {self.max}`")

    @property
    def weight_limits(self) -> tuple[float | None, float | None]:
        """The lowest and the highest value."""
        return self.min, self.max

    def __call__(self, param: Tensor) -> None:
        """Clamps ``param`` in place."""
        checks.check_tensors(param=param)
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
        checks.check_numbers(**vars(self))
        checks.check_value(0 < self.norm < math.inf, "norm", self.norm, "a positive number")
        checks.check_value(self.order > 0, "order", self.order, "a positive number")

    @torch.no_grad()
    def __call__(self, param: Tensor) -> None:
        """Normalizes each slice of ``param`` along its first dimension, in place."""
        checks.check_floats(param=param)
        how = "name the parameters of a constraint that are weights, and no biases, as in"
        how += ' `register_constraint(fn, "weight")`'
        should = "incoming dimensions for its outputs to be normalized"
        checks.check_shape(param.ndim > 1, "param", param, should, how)
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
            if param is None or is_sharded(param):
                continue
            copy = param.detach().clone()
            with torch.no_grad():
                try:
                    result = fn(copy)
                except Exception:  # it may expect other weights; if not, it raises again in a run
                    continue
            _check_in_place(name, copy, result)
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
        outputs_of = getattr(module, "outputs_of", None)
        for fn, only in self.values():
            grouped = getattr(fn, "on_synapses", None)  # is called on the weights of each output
            for name, param, *_ in targets:
                if only and name not in only:
                    continue
                if not callable(grouped):
                    _check_in_place(name, param, fn(param))
                elif (outputs := outputs_of(name) if callable(outputs_of) else None) is not None:
                    _check_in_place(name, param, grouped(param, *outputs))
                else:
                    for view in by_output(module, name, param):
                        fn(view)

    def limits(self, name: str, lower: float | None, upper: float | None) -> Limits:
        """Returns the limits of a parameter, those of its bounds if no constraint sets others."""
        # A constraint that keeps a parameter between limits has them as `weight_limits`.
        for fn in self.of(name):
            lowest, highest = _limits(fn)
            lower = lower if lowest is None else lowest
            upper = upper if highest is None else highest
        return lower, upper


def _limits(fn: Constraint) -> Limits:
    return getattr(fn, "weight_limits", (None, None))


def _leave_no_room(first: Limits, second: Limits) -> bool:
    """Returns whether no two values lie between the limits of both."""
    (low, high), (lower, upper) = first, second
    apart = low is not None and upper is not None and low >= upper
    return apart or (lower is not None and high is not None and lower >= high)


def _check_in_place(name: str, param: Tensor, result: Any) -> None:
    tensors = (result, param) if isinstance(result, Tensor) else ()
    if len({local(each).untyped_storage().data_ptr() for each in tensors}) > 1:
        raise TypeError(
            f"The constraint on `{name}` should change the parameter in place. Found one that"
            " returns a new tensor, which would be lost: use `clamp_`, `copy_` and the like."
        )
