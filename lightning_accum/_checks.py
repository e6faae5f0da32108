"""Checks of arguments, with messages of one form."""

from __future__ import annotations

import functools
import inspect
import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from typing_extensions import TypeIs

_Init = TypeVar("_Init", bound=Callable[..., None])
_LARGEST = 2**63
_INTEGERS = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}


def is_number(value: object) -> TypeIs[float]:
    """Returns whether a value is a real number in the range of a float; not a tensor or a bool."""
    if type(value) is float:
        return True
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True


def _is_integer(value: object) -> bool:
    """Returns whether a value is an integer of 64 bits; not a bool."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    return whole and -_LARGEST <= int(value) < _LARGEST  # type: ignore[call-overload]


def _checker(should: str, fits: Callable[[object], bool]) -> Callable[..., None]:
    """Returns a check that arguments, passed by their names, fit; otherwise a ``TypeError``."""

    def check(**values: object) -> None:
        for name, value in values.items():
            if not fits(value):
                _refuse(name, should, value)

    return check


check_numbers = _checker("a number", is_number)
check_integers = _checker("an integer of 64 bits", _is_integer)
check_callables = _checker("callable", callable)
check_tensors = _checker("a tensor", lambda value: isinstance(value, Tensor))
check_floats = _checker(
    "a tensor of floating-point numbers",
    lambda value: isinstance(value, Tensor) and value.is_floating_point(),
)
check_whole = _checker(
    "a tensor of integers", lambda value: getattr(value, "dtype", None) in _INTEGERS
)
check_module = _checker("a torch.nn.Module", lambda value: isinstance(value, nn.Module))


def check_finite(**values: object) -> None:
    """Checks that arguments are finite numbers."""
    check_numbers(**values)
    for name, value in values.items():
        check_value(math.isfinite(value), name, value, "finite")  # type: ignore[arg-type]


def check_positive(should: str = "a positive number", /, **values: object) -> None:
    """Checks that arguments are finite numbers above 0, with what they should be."""
    check_finite(**values)
    for name, value in values.items():
        check_value(value > 0, name, value, should)  # type: ignore[operator]


def check_counts(should: str = "a positive integer", /, **values: object) -> None:
    """Checks that arguments are integers above 0, with what they should be."""
    check_integers(**values)
    check_positive(should, **values)


def check_factor(**values: float) -> None:
    """Raises a ``ValueError`` if a factor, passed by its name, is negative or NaN."""
    check_numbers(**values)
    for name, value in values.items():
        check_value(value >= 0, name, value, "a non-negative factor")


def check_value(fits: bool, name: str, value: object, should: str, mend: str = "") -> None:
    """Raises a ``ValueError`` unless an argument fits, which says how to mend it."""
    if not fits:
        found = f"`{name} = {_short(value)}`" + (f": {mend}" if mend else "")
        raise ValueError(f"Argument `{name}` should be {should}. Found {found}.")


def check_type(fits: bool, name: str, value: object, should: str, mend: str = "") -> None:
    """Raises a ``TypeError`` unless the type of an argument fits, which says how to mend it."""
    if not fits:
        kind = f"the class `{value.__name__}`" if isinstance(value, type) else None
        found = (kind or f"`{type(value).__name__}`") + (f": {mend}" if mend else "")
        raise TypeError(f"Argument `{name}` should be {should}. Found {found}.")


def check_shape(fits: bool, name: str, value: Tensor, should: str, mend: str = "") -> None:
    """Raises a ``ValueError`` unless the shape of an argument fits, which says how to mend it."""
    if not fits:
        found = f"`{name}.shape = {tuple(value.shape)}`" + (f": {mend}" if mend else "")
        raise ValueError(f"Argument `{name}` should have {should}. Found {found}.")


def check_time_dim(value: object) -> None:
    """Raises a ``ValueError`` unless modules take a step in each call, or sequences, time first."""
    fits = value is None or (isinstance(value, int) and value == 0)
    should = "None (a call per step, `[B, ...]`) or 0 (a call per sequence, `[T, B, ...]`)"
    check_value(fits, "time_dim", value, should, "transpose the input if its time is not first")


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raises a ``ValueError`` if an argument is not one of some strings."""
    check_value(isinstance(value, str) and value in choices, name, value, f"one of {choices}")


def warn_below_step(dt: float, where: str, **constants: float) -> None:
    """Warns of time constants that are shorter than a step."""
    for name, value in constants.items():
        if value < dt:
            warnings.warn(
                f"`{name}` of {where} should be at least a step, `dt = {dt}` ms, for anything to"
                f" be left after one. Found `{name} = {value}`: time constants are in ms.",
                UserWarning,
                stacklevel=4,
            )


def check_strings(what: str = "a string", /, **values: object) -> None:
    """Raises a ``TypeError`` if an argument is not a string, with what it should be."""
    _checker(what, lambda value: isinstance(value, str))(**values)


def check_range(name: str, value: Tensor, most: float, should: str, mend: str) -> None:
    """Raises a ``ValueError`` unless values lie from 0 to ``most``, if they are on the CPU."""
    if value.is_cpu and value.numel():
        low, high = (each.item() for each in value.detach().aminmax())
        if not (low >= 0 and high <= most):  # this form rejects NaN too
            found = f"{low:g} to {high:g}" if isinstance(low, float) else f"{low} to {high}"
            raise ValueError(f"Argument `{name}` should {should}. Found values from {found}{mend}.")


def check_below(name: str, value: Tensor, count: int) -> None:
    """Raises a ``ValueError`` unless integers on the CPU are from 0 to below ``count``."""
    check_range(name, value, count - 1, f"lie between 0 and {count - 1}", "")


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns the end of a message: the known names that begin so, or a similar one, if any."""
    known = sorted(known)
    stem = {"learning_rate": "lr", "eta": "lr", "tau": "tc"}.get(name, name)
    near = [each for each in known if each == stem or each.startswith(f"{stem}_")]
    near = near or get_close_matches(name, known, 1)
    return f": did you mean {quoted(near)}?" if near else "."


def knows_arguments(
    *more: str, hint: Callable[[Any, str], str | None] = lambda owner, name: None
) -> Callable[[_Init], _Init]:
    """Has a constructor tell of an argument that is neither its own nor among ``more``."""

    def wrap(init: _Init) -> _Init:
        own = inspect.signature(init).parameters.values()
        known = [each.name for each in own if each.kind is not each.VAR_KEYWORD][1:]
        known += [name for name in more if name not in known]

        @functools.wraps(init)
        def __init__(self: object, *args: Any, **kwargs: Any) -> None:
            for name in kwargs:
                if name not in known:
                    raise TypeError(
                        f"Arguments of `{type(self).__name__}` should be among {known}. Found"
                        f" `{name}`{hint(type(self), name) or nearest(name, known)}"
                    )
            init(self, *args, **kwargs)

        return __init__  # type: ignore[return-value]

    return wrap


def check_taken(
    owner: str,
    given: Mapping[str, object],
    known: Iterable[str],
    takes: Callable[[str], bool] | None = None,
    hints: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Raises a ``TypeError`` if nobody takes a keyword; ``hints`` say what to pass instead."""
    for name in given:
        if takes is None or not takes(name):
            should = [f"`{each}`" for each in known] + ["options of its bounds"] * bool(takes)
            hint = f": {hints[name]}." if name in hints else nearest(name, known)
            if hint == ".":
                hint = ": pass `scale`, a factor of every change, or " if "scale" in known else ": "
                hint += "leave it out."
            raise TypeError(
                f"Keywords of `{owner}` should be {' or '.join(should)}. Found `{name}`, which"
                f" nothing takes{hint}"
            )


def check_matrix(name: str, value: Any) -> None:
    """Raises a ``TypeError`` or a ``ValueError`` if an argument is not a matrix."""
    check_tensors(**{name: value})
    check_shape(value.ndim == 2, name, value, "two dimensions", "flatten time and batch into one")


def check_mapping(name: str, value: object, example: str = "") -> None:
    """Raises a ``TypeError`` if an argument is not a mapping, such as the example."""
    if not isinstance(value, Mapping):
        such = f", such as `{example}`" if example else ""
        _refuse(name, f"a mapping of names to values{such}", value)


def name_of(fn: Callable[..., Any]) -> str:
    """Returns the name of a function, or that of the type of another callable."""
    return getattr(fn, "__name__", type(fn).__name__)


def quoted(names: Iterable[object], between: str = " and ") -> str:
    """Returns names as code, for a message."""
    return between.join(f"`{name}`" for name in names)


def names_in(name: str, value: Any) -> tuple[str, ...]:
    """Returns names as a tuple; a single name may be a string."""
    try:
        given = (value,) if isinstance(value, str) else tuple(value)
    except TypeError:
        given = (None,)
    if not all(isinstance(each, str) for each in given):
        _refuse(name, "a sequence of names, such as `['weight']`", value)
    return given


def _refuse(name: str, should: str, value: object) -> None:
    raise TypeError(f"Argument `{name}` should be {should}. Found {_shown(name, value)}.")


def _shown(name: str, value: object) -> str:
    if isinstance(value, type):
        return f"`{value.__name__}`"
    if isinstance(value, Tensor):
        return f"`Tensor`, `{name}.dtype = {value.dtype}`"
    plain = value is None or isinstance(value, (str, bytes, int, float, complex))
    return f"`{name} = {_short(value)}`" if plain else f"`{type(value).__name__}`"


def _short(value: object) -> str:
    if isinstance(value, int) and abs(value) >= _LARGEST:
        return "an integer of more than 64 bits"
    text = repr(value)
    return text if len(text) < 80 else f"{text[:76]}..."
