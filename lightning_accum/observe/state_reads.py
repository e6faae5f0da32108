"""Finds out whether a module reads a state that it keeps, or keeps it only as a record."""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from lightning_accum._compat import remove_hooks
from lightning_accum.observe.copies import copied
from lightning_accum.observe.tensors import tensors_in

_LARGE = 1e3  # of states that no neuron ignores, on either side of zero


def reads_state(
    module: nn.Module, state: Iterable[Tensor], args: Any, kwargs: dict[str, Any]
) -> bool:
    """Returns whether the output of a call depends on a state that the module keeps.

    The call runs in copies of the module: with the state as it is, with zeros, and with large
    numbers, in case the input is too weak to show a difference. The module, its hooks and the
    random numbers to come are left alone. The answer is ``True`` if a copy does not run.

    Args:
        module: the module, before the call.
        state: the tensors that it keeps.
        args: the positional arguments of the call.
        kwargs: its keyword arguments.
    """
    kept = list(state)
    generator = torch.Generator().manual_seed(0)

    def large(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tensor.clone()
        signed = torch.rand(tensor.shape, generator=generator) * 2 - 1
        return (signed * _LARGE).to(tensor)

    def output(change: Callable[[Tensor], Tensor]) -> list[Tensor]:
        twin = copied(module, {id(each): change(each.detach()) for each in kept})
        remove_hooks(twin)
        found = twin(*map(_own, args), **{name: _own(each) for name, each in kwargs.items()})
        return [each.clone() for each in tensors_in(found)]

    on_cuda = any(each.is_cuda for each in kept)
    found: list[list[Tensor]] = []
    for change in (torch.clone, torch.zeros_like, large):
        with _same_numbers(on_cuda), warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # the call itself gives them
            try:
                found.append(output(change))
            except Exception:  # nothing is known of a module that cannot be copied, or called again
                return True
    first, *others = found
    return not first or any(not _are_equal(first, other) for other in others)


@contextmanager
def _same_numbers(on_cuda: bool) -> Iterator[None]:
    """Leaves the generators of random numbers of torch, Python and NumPy as they are."""
    numpy, state = sys.modules.get("numpy"), random.getstate()
    arrays = None if numpy is None else numpy.random.get_state()
    devices = range(torch.cuda.device_count()) if on_cuda else ()
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(state)
        if numpy is not None:
            numpy.random.set_state(arrays)


def _own(argument: Any) -> Any:
    """Returns an argument in memory that the module may change."""
    return argument.detach().clone() if isinstance(argument, Tensor) else argument


def _are_equal(some: list[Tensor], others: list[Tensor]) -> bool:
    return len(some) == len(others) and all(map(torch.equal, some, others))
