"""Fields: the arguments of a trainer, which its class lists once, with their types and defaults."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, ClassVar, Optional, get_origin

from torch import nn


@dataclass(frozen=True)
class Field:
    """An argument of a trainer's constructor; :func:`field` describes its options."""

    default: Any = inspect.Parameter.empty
    default_factory: Callable[[], Any] | None = None
    kw_only: bool = False
    hyperparameter: bool = True
    of_neuron: str | None = None
    converter: Callable[[Any], Any] | None = None
    annotation: Any = inspect.Parameter.empty

    def parameter(self, name: str) -> inspect.Parameter:
        """Returns the parameter of the constructor."""
        kind = inspect.Parameter
        default = self.default if self.default_factory is None else None
        annotation = self.annotation
        if default is None and not isinstance(annotation, str):
            annotation = Optional[annotation]  # noqa: UP045 - such as a constant of the neuron, filled in later
        place = kind.KEYWORD_ONLY if self.kw_only else kind.POSITIONAL_OR_KEYWORD
        return kind(name, place, default=default, annotation=annotation)

    def value(self, given: Any) -> Any:
        """Returns the value for an argument, which a factory makes if it is ``None``."""
        if given is None and self.default_factory is not None:
            return self.default_factory()
        return given if self.converter is None else self.converter(given)


def field(
    *,
    default: Any = inspect.Parameter.empty,
    default_factory: Callable[[], Any] | None = None,
    kw_only: bool = False,
    hyperparameter: bool = True,
    of_neuron: str | None = None,
    converter: Callable[[Any], Any] | None = None,
) -> Any:
    """Describes a field of a rule, where a type and a default do not say enough.

    Args:
        default: the default; the field is a required argument without one.
        default_factory: makes the value if none is given, or ``None``.
        kw_only: whether the argument is passed by its name only.
        hyperparameter: whether cells may override it; otherwise it belongs to the rule, as a module
            or an option of the whole rule does, and is set as an ordinary attribute.
        of_neuron: the attribute of the neuron that is taken when the hyperparameter is ``None``,
            in a rule with a third factor.
        converter: returns the value for an argument.

    Example:
        >>> from torch import nn
        >>> from lightning_accum import Rule, Term
        >>> class Gated(Rule):
        ...     lr: float
        ...     gate: nn.Module = field(default_factory=nn.Identity, hyperparameter=False)
        ...     def terms(self, window, h):
        ...         return Term(h.lr, window.post, self.gate(window.pre.values()))
        >>> Gated(0.1).gate
        Identity()
    """
    return Field(default, default_factory, kw_only, hyperparameter, of_neuron, converter)


def collect(cls: type, known: Mapping[str, Field], kw_only: bool) -> dict[str, Field]:
    """Returns the fields of a class's bases, with defaults that it sets, and those it annotates."""
    taken = set(dir(cls.__base__)) | set(nn.Module.__annotations__)
    own: dict[str, Field] = {}
    for name, annotation in inspect.get_annotations(cls).items():
        annotation = _resolved(annotation, cls)
        if ClassVar in (annotation, get_origin(annotation)):
            continue
        if name not in known and name in taken:
            raise TypeError(
                f"Fields of `{cls.__name__}` should have names that its base classes do not use."
                f" Found `{name}: ...`: choose another name, or, to set what the base class"
                f" calls so, leave out the annotation."
            )
        value = vars(cls).get(name, inspect.Parameter.empty)
        found = value if isinstance(value, Field) else Field(value)
        own[name] = replace(found, annotation=annotation, kw_only=found.kw_only or kw_only)
    for name, found in known.items():
        if name in vars(cls) and name not in own:
            own[name] = replace(found, default=vars(cls)[name], default_factory=None)
    for name, found in own.items():
        if found.hyperparameter:
            setattr(cls, name, property(attrgetter(f"defaults.{name}")))
        elif name in vars(cls):
            delattr(cls, name)
    first = {name: found for name, found in {**known, **own}.items() if not found.kw_only}
    return {**first, **own, **known, **own}


def _resolved(annotation: Any, cls: type) -> Any:
    """Returns the type that an annotation names; the annotation if its names are not known yet."""
    if isinstance(annotation, str):
        try:
            return eval(annotation, vars(sys.modules[cls.__module__]), dict(vars(cls)))
        except Exception:
            return ClassVar if "ClassVar" in annotation else annotation
    return annotation


def constructor(cls: type, own: inspect.Signature) -> Callable[..., None]:
    """Returns a constructor with the signature of a class's fields, for readers and for a CLI."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        self._begin(*args, **kwargs)

    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    __init__.__signature__ = own.replace(parameters=[first, *own.parameters.values()])  # type: ignore[attr-defined]
    __init__.__annotations__ = {p.name: p.annotation for p in own.parameters.values()}
    __init__.__module__, __init__.__qualname__ = cls.__module__, f"{cls.__qualname__}.__init__"
    return __init__
