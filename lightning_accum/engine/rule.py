"""The base of learning rules: hyperparameters, and the terms that they make of a window."""

import dataclasses
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, get_args

from torch import Tensor
from typing_extensions import Self, dataclass_transform

from lightning_accum._checks import (
    check_choice,
    check_type,
    check_value,
    is_number,
    knows_arguments,
)
from lightning_accum._compat.torch_internals import in_dispatch_mode, is_traced, values_under_vmap
from lightning_accum.engine.activity_window import Window
from lightning_accum.engine.neuromodulator import Neuromodulator
from lightning_accum.engine.terms import Change
from lightning_accum.functional.traces import TraceMode

OPTIONS = (
    *("dt", "time_dim", "batch_reduction", "params", "carry", "backend", "picker"),
    "graded_input",
)
"""Names of the options of running a rule, which belong to its trainer."""


@dataclass_transform(field_specifiers=(dataclasses.field,), frozen_default=True)
class Rule(ABC):
    r"""Base of learning rules that are sums of products of pre- and postsynaptic signals.

    .. math:: \Delta w = \sum_k \text{rate}_k \,
              \operatorname{reduce}_b \sum_t \mathrm{post}_k[t, b] \otimes \mathrm{pre}_k[t, b]

    A rule is a value: a frozen dataclass of hyperparameters, and an equation. A subclass lists its
    hyperparameters as annotated attributes, and returns the products from :meth:`terms`; it need
    not be decorated. A :class:`~lightning_accum.RuleTrainer` runs it.

    Raises:
        TypeError: if an argument is unknown; the message has the nearest known name.
        ValueError: if a hyperparameter makes no sense.

    Example:
        >>> from lightning_accum import Term
        >>> class Coincidence(Rule):
        ...     lr: float = 0.1
        ...     def terms(self, window):
        ...         return Term(self.lr, window.post, window.pre)
        >>> Coincidence(lr=0.2)
        Coincidence(lr=0.2)
    """

    spikes: ClassVar[bool | Sequence[str]] = True
    """Whether both sides are spikes, which are kept as booleans; or the names of those that are."""

    graded: ClassVar[bool] = False
    """Whether each value of a graded input counts by its size, instead of as a spike."""

    _of_others: ClassVar[Mapping[str, str]] = {}  # what to say of names of other libraries

    def __init_subclass__(cls, kw_only: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = inspect.get_annotations(cls)
        known = {each.name: each.type for each in fields_of(cls.__base__)}
        for name in {*own, *vars(cls)} & {*OPTIONS}:
            raise TypeError(
                f"`{cls.__name__}` should leave `{name}` to its trainer, `RuleTrainer(rule,"
                f" {name}=...)`. Found it among the attributes of the class: leave it out."
            )
        for name in {"__init__", "__post_init__"} & {*vars(cls)}:
            raise TypeError(
                f"`{cls.__name__}` should list its hyperparameters as fields, `lr: float = 0.1`,"
                f" and check them in `check(self)`. Found `{name}`, which a rule has already."
            )
        for name, annotation in known.items():  # `tc = 10.0` gives a field another default
            if name in vars(cls) and name not in own:
                own[name] = annotation
        cls.__annotations__ = own
        dataclasses.dataclass(frozen=True, kw_only=kw_only)(cls)
        cls.__init__ = knows_arguments(hint=_hint)(cls.__init__)  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        """Checks the hyperparameters; ``check`` cannot read those that ``vmap`` maps over."""
        for each in fields_of(type(self)):
            _check_field(each, getattr(self, each.name))
        tensors = [each for each in vars(self).values() if isinstance(each, Tensor)]
        if any(values_under_vmap(each) is not None for each in tensors):
            return
        found: object = self.check()  # type: ignore[func-returns-value]
        if found is not None:
            raise TypeError(
                f"`{type(self).__name__}.check` should raise an error for what makes no sense, and"
                f" return nothing. Found that it returns {found!r}: write"
                " `if not ...: raise ValueError(...)`."
            )

    @abstractmethod
    def terms(self, window: Window) -> Sequence[Change] | Change:
        """Returns the products whose sum is the change of a parameter.

        It is asked for once for a cell if all that it reads are names: signals, traces and ``dt``.
        If it reads numbers, such as ``window.post.values()``, ``window.inputs`` or
        ``window.param``, it is asked for in every window, and in every piece of a long one.

        Args:
            window: the signals of one cell.
        """

    def states(self) -> Mapping[str, Any]:
        """Returns what else to record of the neuron, by the name for ``window.state``.

        It is the dotted path of an attribute that is read after each call, such as ``"v"``; a
        callable that finds a tensor in the neuron's output; or the class of a monitor of the
        output, such as :class:`~lightning_accum.observe.GradientMonitor`.
        """
        return {}

    def reads(self) -> tuple[str, ...]:
        """Returns names of the connection's other tensors that ``window.tensors`` should have."""
        return ()

    def prepare(self, recording: Any) -> Any:
        """Computes what :meth:`terms` needs of the whole window, as ``window.prepared``.

        A long window is passed to :meth:`terms` in pieces; what looks ahead in time belongs here.
        """
        return None

    def check(self) -> None:  # noqa: B027 - it need not be defined
        """Raises an error if hyperparameters make no sense; a subclass defines which do.

        Every ``tc_...`` is positive, and ``lr`` and every ``lr_...`` is finite: that is checked
        before; of tensors, only on the CPU and outside transforms. Where ``torch.func.vmap`` maps
        over a field, this is not called.
        """

    def of_cell(self, name: str, cell: Any) -> Self:
        """Returns the rule for a cell, with what it takes of the cell's modules.

        Raises:
            ValueError: if the rule cannot learn from them.
        """
        return self


def fields_of(rule: Any) -> tuple[dataclasses.Field[Any], ...]:
    """Returns the fields of a rule, or of its class."""
    return dataclasses.fields(rule) if dataclasses.is_dataclass(rule) else ()


def rates_in(values: Mapping[str, object]) -> dict[str, object]:
    """Returns the hyperparameters that are learning rates: ``lr``, and each ``lr_...``."""
    return {name: value for name, value in values.items() if _is(name, "lr")}


def time_constants_in(values: Mapping[str, Any]) -> dict[str, float]:
    """Returns the hyperparameters that are time constants and given: ``tc``, each ``tc_...``."""
    return {name: value for name, value in values.items() if _is(name, "tc") and value}


def check_numeric(rule: Rule) -> None:
    """Raises a ``TypeError`` if a rate or a time constant is a tensor, which no trainer takes."""
    for name, value in vars(rule).items():
        if isinstance(value, Tensor) and (_is(name, "lr") or _is(name, "tc")):
            raise TypeError(
                f"`{name}` of `{type(rule).__name__}` should be a number in a trainer. Found a"
                f" tensor of shape {list(value.shape)}: give `float({name})`, or take `change_of`"
                " or `FastWeights`, which differentiate it."
            )


def _is(name: str, kind: str) -> bool:
    return name == kind or name.startswith(f"{kind}_")


def _check_field(each: dataclasses.Field[Any], value: Any) -> None:
    """Raises if a hyperparameter makes no sense; one whose default is ``None`` may be it."""
    name = each.name
    if "Neuromodulator" in str(each.type) or isinstance(each.default, Neuromodulator):
        fits = value is None or isinstance(value, Neuromodulator)
        how = f"give what is released to each call, `trainer({name}=...)`, and here, if its effect"
        how += " should last, `Neuromodulator(tc=200.0)`"
        check_type(fits, name, value, "a Neuromodulator that calls release, or None", how)
    if value is None and each.default is None:
        return
    kinds = ("tc", 0.0, "a positive, finite number of ms"), ("lr", -math.inf, "a finite number")
    for kind, least, should in kinds:
        for number in _numbers(value) if _is(name, kind) else ():
            check_value(is_number(number) and least < number < math.inf, name, number, should)
    if name == "trace_mode":
        check_choice(name, value, get_args(TraceMode))


def _numbers(value: Any) -> Sequence[Any]:
    """Returns a value; of a tensor, its least and its greatest, if reading them waits for none."""
    if not isinstance(value, Tensor):
        return (value,)
    if not value.is_cpu or is_traced() or in_dispatch_mode() or not value.numel():
        return ()
    return [float(each) for each in value.detach().aminmax()]


def _hint(rule: type[Rule], name: str) -> str | None:
    """Returns how to mend an unknown argument, if more is known than a similar name."""
    if name in OPTIONS:
        return f", an option of running: give it to the trainer, `RuleTrainer(rule, {name}=...)`."
    if name not in rule._of_others and is_number(getattr(rule, name, None)):
        return f", which belongs to the class: annotate it there, `{name}: float = ...`."
    return rule._of_others.get(name)
