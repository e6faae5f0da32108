"""Reductions of several contributions to one parameter, and their streaming forms."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from lightning_accum._checks import check_type, check_value, name_of

ReductionFn: TypeAlias = Callable[[Tensor, int], Tensor]


@dataclass(frozen=True)
class Reduction:
    """A reduction over stacked contributions and, if it has one, its streaming form."""

    name: str  # under which a state dict or a configuration file knows it
    fn: ReductionFn  # the reduction itself, `fn(stacked, dim)`
    # adds one more contribution to the running value, in place; None if all have to be kept
    merge: Callable[[Tensor, Tensor], Tensor] | None = None
    averages: bool = False  # whether the running value is divided by their number at the end
    adds: bool = False  # whether they are added, so that a product may go straight into the total

    def of(self, stacked: Tensor) -> Tensor:
        """Returns the reduction over the first dimension."""
        try:
            result = self.fn(stacked, 0)
        except AttributeError as error:  # nn.Module would hide one from a property
            raise TypeError(f"The reduction `{self.name}` fails: {error}.") from error
        if not isinstance(result, Tensor):
            raise TypeError(
                f"The reduction `{self.name}` should give a tensor. Found"
                f" `{type(result).__name__}`: wrap it in a function that returns only its values."
            )
        if result.shape != stacked.shape[1:]:
            raise ValueError(
                f"The reduction `{self.name}` should reduce `dim`, and keep other dimensions."
                f" Found shape {tuple(result.shape)} from {tuple(stacked.shape)}: pass `dim` on, as"
                " `lambda x, dim: x.mean(dim)` does."
            )
        return result

    def share(self, samples: int) -> float | None:
        """Returns the factor of one of so many samples' changes; ``None`` if they do not add up."""
        return (1 / max(1, samples) if self.averages else 1.0) if self.adds else None


_STREAMING = {
    "sum": Reduction("sum", torch.sum, Tensor.add_, adds=True),
    "mean": Reduction("mean", torch.mean, Tensor.add_, averages=True, adds=True),
    "amax": Reduction("amax", torch.amax, Tensor.clamp_min_),
    "amin": Reduction("amin", torch.amin, Tensor.clamp_max_),
}


def reduction(fn: ReductionFn | str | None = None, name: str = "reduction") -> Reduction:
    """Returns a reduction by function or name, streaming if it can; the sum if it is ``None``."""
    if fn is None:
        return _STREAMING["sum"]
    if isinstance(fn, str):
        should = f"one of {sorted(_STREAMING)} or a callable `fn(stacked, dim)`"
        check_value(fn in _STREAMING, name, fn, should)
        return _STREAMING[fn]
    for known in _STREAMING.values():
        if fn is known.fn:
            return known
    check_type(callable(fn), name, fn, "a callable `fn(stacked, dim)`, a name or None")
    return Reduction(name_of(fn), fn)


def check_reduction(fn: ReductionFn | str | None, name: str = "reduction") -> None:
    """Raises if a reduction is unknown, or does not take a stack of contributions and ``dim``."""
    known = reduction(fn, name)
    if known.merge is not None:
        return
    try:
        signature = inspect.signature(known.fn)
    except (TypeError, ValueError):  # the function has no signature
        return
    try:
        signature.bind(None, 0)
    except TypeError:
        raise TypeError(
            f"Argument `{name}` should be a callable `fn(stacked, dim)`. Found"
            f" `{known.name}{signature}`: it reduces the dimension `dim`, as"
            " `lambda x, dim: x.mean(dim)` does."
        ) from None
