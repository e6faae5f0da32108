"""Checks of saved states before they are loaded, and modules with such states."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from lightning_accum._checks import check_type
from lightning_accum._compat.torch_internals import is_traced
from lightning_accum._extra_state import EXTRA, Packed, unpack


class Kind(NamedTuple):
    """A kind of values in a state."""

    should: str  # the kind in words, for a message
    fits: Callable[[Any], bool]  # returns whether a value is of the kind


def _is_tensor(value: object) -> bool:
    if not isinstance(value, Tensor) or value.layout is not torch.strided or value.is_meta:
        return False
    return value.dtype.itemsize > 1 or not value.is_floating_point()  # of which torch has no sums


ANYTHING = Kind("anything", lambda _: True)
COUNT = Kind(
    "a non-negative integer",
    lambda v: isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 2**63,
)
FLAG = Kind("True or False", lambda value: isinstance(value, bool))
TEXT = Kind("a string", lambda value: isinstance(value, str))
TENSOR = Kind("a dense tensor", _is_tensor)
REAL = Kind("a dense tensor of real numbers", lambda v: _is_tensor(v) and not v.is_complex())
FLOATS = Kind(
    "a dense tensor of real floating-point numbers",
    lambda v: _is_tensor(v) and v.is_floating_point(),
)


def within(kind: Kind, least: float, most: float = math.inf) -> Kind:
    """Returns the kind of tensors of ``kind`` whose elements are in a closed range, and not NaN."""
    return Kind(
        f"{kind.should} from {least:g} to {most:g}",
        lambda value: kind.fits(value) and bool(((value >= least) & (value <= most)).all()),
    )


FINITE = Kind(
    "a dense tensor of finite floating-point numbers",
    lambda value: FLOATS.fits(value) and bool(value.isfinite().all()),
)


def optional(kind: Kind) -> Kind:
    """Returns the kind of values that are of ``kind``, or ``None``."""
    return Kind(f"{kind.should}, or None", lambda value: value is None or kind.fits(value))


def list_of(kind: Kind) -> Kind:
    """Returns the kind of lists with values of ``kind``."""
    return Kind(
        f"a list, each {kind.should}",
        lambda value: isinstance(value, list) and all(map(kind.fits, value)),
    )


def named(kind: Kind) -> Kind:
    """Returns the kind of mappings of names to values of ``kind``."""
    return Kind(
        f"a mapping of names, each to {kind.should}",
        lambda value: (
            isinstance(value, Mapping)
            and all(isinstance(name, str) and kind.fits(each) for name, each in value.items())
        ),
    )


MAPPING = named(ANYTHING)
OTHER = "it is the state of another object, or of another version"
ANOTHER_VERSION = (
    "it was saved by another version, or by hand. Go on with that version, or begin again with only"
    " the weights, which `load_from_checkpoint` of the LightningModule gives"
)


def check_state(place: str, state: Any, kinds: Mapping[str, Kind], mend: str = OTHER) -> None:
    """Raises unless a state has these entries, no others, and each of its kind."""
    known = MAPPING.fits(state)
    if not known or state.keys() != kinds.keys():
        found = sorted(state) if known else f"`{type(state).__name__}`"
        raise RuntimeError(
            f"The state of {place} should have the keys {sorted(kinds)}. Found {found}: {mend}."
        )
    for key, kind in kinds.items():
        check_that(kind.fits(state[key]), place, f"{kind.should} as `{key}`", state[key])


def check_that(fits: bool, place: str, should: str, found: object) -> None:
    """Raises a ``RuntimeError`` unless a state fits."""
    if not fits:
        raise RuntimeError(f"The state of {place} should hold {should}. Found {shown(found)}.")


def shown(value: object) -> str:
    """Returns what was found in a state, for a message."""
    if isinstance(value, Tensor):
        layout = "" if value.layout is torch.strided else f", {value.layout}"
        found = f"a tensor of shape {tuple(value.shape)}, {value.dtype}{layout}, on {value.device}"
        if FLOATS.fits(value) and value.numel():
            found += f", from {value.min():g} to {value.max():g}"
        return found
    plain = value is None or isinstance(value, (str, int, float))
    return f"`{value!r:.80}`" if plain else f"`{type(value).__name__}`"


class CheckedState(Packed):
    """A module that loads a whole state, or nothing of it, after a check of its submodules' too."""

    _shown: ClassVar[tuple[str, ...]] = ()
    """The attributes that the module's representation shows."""

    def extra_repr(self) -> str:
        """Returns the settings shown in the module's representation."""
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self._shown)

    def check_extra_state(self, state: Any) -> None:
        """Raises a ``RuntimeError`` if this is not the extra state of such a module."""

    def _why_not(self, state: Mapping[str, Any], prefix: str) -> str:
        """Returns what is wrong with the module's own entries of a state, if anything is."""
        return ""

    def check_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> None:
        """Raises an error if :meth:`load_state_dict` would; loads nothing."""
        check_type(isinstance(state_dict, Mapping), "state_dict", state_dict, "a mapping")
        if reason := self._why_not(state_dict, ""):
            raise RuntimeError(reason)
        place, own = f"`{type(self).__name__}`", self.state_dict()
        if strict:
            check_state(place, state_dict, dict.fromkeys(own, ANYTHING))
        for key, value in own.items():
            if key in state_dict and not key.endswith(EXTRA) and isinstance(value, Tensor):
                found, kind = state_dict[key], TENSOR if value.is_complex() else REAL
                should = f"{kind.should} of shape {tuple(value.shape)} as `{key}`"
                check_that(kind.fits(found) and found.shape == value.shape, place, should, found)
        for path, module in self.named_modules(remove_duplicate=False):
            key = f"{path}.{EXTRA}" if path else EXTRA
            if key in state_dict and isinstance(module, CheckedState):
                module.check_extra_state(unpack(state_dict[key], f"`{path or place[1:-1]}`"))

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Loads a state dict as any module does, but after an error nothing of it."""
        self.check_state_dict(state_dict, strict)
        return super().load_state_dict(state_dict, strict, assign)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        """Has a model that contains this one list what does not fit, beside its parameters."""
        try:
            if reason := self._why_not(state_dict, prefix):
                raise RuntimeError(reason)
            if (key := prefix + EXTRA) in state_dict:
                own = f"`{type(self).__name__}`"
                state_dict = {**state_dict, key: unpack(state_dict[key], own)}
            super()._load_from_state_dict(state_dict, prefix, *rest)
        except RuntimeError as error:
            rest[-1].append(f"`{prefix[:-1] or type(self).__name__}`: {error}")


class StateModule(CheckedState):
    """A module with named transient tensors, whose shapes are not known in advance."""

    # The tensors live in `self._state` and are neither parameters nor buffers: no optimizer finds
    # them, DDP does not broadcast them, and they may be None until something has run. They have one
    # key in the state dict, so that a state loads into a fresh module before its first forward.

    _state: dict[str, Tensor | None]
    _sizes: tuple[int | None, ...] = ()
    """The shape of all tensors, with ``None`` for the batch; any if it is empty."""

    steps_since_reset: float = math.inf
    """The number of steps since a neuron's last ``reset()``; infinite if that is not known."""

    def __init__(self) -> None:
        super().__init__()
        self._state = {}
        self._graph: _Graph | None = None

    def detach(self) -> None:
        """Cuts the graph of the state: no gradient passes from later calls to those before."""
        for tensor in self._state.values():
            if tensor is not None and tensor.requires_grad:
                tensor.detach_()  # it stays the same tensor, as what was not reset is found by that

    def _kept(self, like: Tensor, shape: Sequence[int], copy: bool = False) -> list[Tensor] | None:
        """Returns the state, as ``like``; ``None`` at rest, which another shape begins at."""
        kept = [tensor for tensor in self._state.values() if tensor is not None]
        if len(kept) < len(self._state) or any(tensor.shape != shape for tensor in kept):
            self._state, self._graph = dict.fromkeys(self._state), None
            return None
        if self._graph is not None and self._graph.is_freed():
            self.detach()
        return [tensor.to(like, copy=copy) for tensor in kept]

    def _keep(self, out: Tensor, **state: Tensor) -> Tensor:
        """Keeps the state after a call, with its graph; returns what the call gives."""
        before, self._state = self._state.values(), {**state}
        if is_traced() or not _have_graph(state.values()):
            return out
        if self._graph is None or not _have_graph(before):
            self._graph = _Graph()
        noted: Tensor = _Noted.apply(out, self._graph)  # type: ignore[no-untyped-call]
        return noted

    def _moved(self, fn: Callable[[Tensor], Tensor], tensor: Tensor) -> Tensor:
        """Returns a state tensor after ``.to()``; a subclass may keep a wider dtype."""
        return fn(tensor)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> StateModule:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._state = {
            name: None if tensor is None else self._moved(fn, tensor)
            for name, tensor in self._state.items()
        }
        return self

    def get_extra_state(self) -> dict[str, Any]:
        """Returns the transient tensors, for the state dict."""
        return {k: v if v is None else v.detach().clone() for k, v in self._state.items()}

    def check_extra_state(self, state: Any) -> None:
        """Raises a ``RuntimeError`` if this is not the extra state of such a module."""
        place = f"`{type(self).__name__}`"
        if self._state:
            check_state(place, state, dict.fromkeys(self._state, optional(TENSOR)))
        kind = named(optional(TENSOR))
        check_that(kind.fits(state), place, kind.should, state)
        sizes = self._sizes
        shape = ", ".join("B" if size is None else str(size) for size in sizes)
        for key, value in state.items():
            if sizes and value is not None:
                fits = value.is_floating_point() and value.ndim == len(sizes)
                fits = fits and all(n in (m, None) for n, m in zip(sizes, value.shape, strict=True))
                check_that(
                    fits, place, f"floating-point numbers of shape [{shape}] as `{key}`", value
                )

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Loads copies of the transient tensors from a state dict, if they fit."""
        self.check_extra_state(state)
        own = {name: state[name] for name in self._state or state}  # in the order of this module
        self._state = {k: None if v is None else v.detach().clone() for k, v in own.items()}
        self.steps_since_reset = math.inf

    def __getstate__(self) -> dict[str, Any]:
        # A copy has no graph: torch does not copy tensors that have one.
        return {**self.__dict__, "_state": StateModule.get_extra_state(self), "_graph": None}


class _Graph:
    """The graph of a state since it began; a backward pass may free it, as that of a batch."""

    node: Any = None  # the latest that a backward pass has been at

    def is_freed(self) -> bool:
        """Returns whether no other backward pass can take this way."""
        try:
            return self.node is not None and not self.node.saved_tensors
        except RuntimeError:
            return True


class _Noted(torch.autograd.Function):
    """A copy, whose node notes that a backward pass has been there."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, graph: _Graph) -> Tensor:
        ctx.graph = weakref.ref(graph)
        ctx.save_for_backward(out.new_empty(0))
        return out.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        if (graph := ctx.graph()) is not None:
            graph.node = ctx
        return grad, None


def _have_graph(state: Iterable[Tensor | None]) -> bool:
    return any(tensor is not None and tensor.requires_grad for tensor in state)
