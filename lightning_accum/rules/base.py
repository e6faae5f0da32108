"""Rules: hyperparameters, and the terms that they make of a window."""

from __future__ import annotations

import inspect
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple, get_args

from torch import Tensor, nn

from lightning_accum._checks import check_mapping, is_number, names_in, nearest, warn_below_step
from lightning_accum.cells.cell import Cell
from lightning_accum.cells.independent import IndependentCellTrainer, RegisteredCell
from lightning_accum.cells.mismatch import check_alike
from lightning_accum.cells.state import CellState, Hyperparameters
from lightning_accum.cells.tally import Tally, why_nothing
from lightning_accum.engine.accumulate import Backend
from lightning_accum.engine.run import Recording, Target, run_rule
from lightning_accum.engine.terms import Change
from lightning_accum.engine.vjp import WeightVJP, unit_dim_of, vjp_of
from lightning_accum.engine.window import Window
from lightning_accum.functional.reductions import ReductionFn, check_reduction, reduction
from lightning_accum.functional.traces import TraceMode
from lightning_accum.observe import (
    InputMonitor,
    Monitor,
    OutputMonitor,
    Picker,
    WindowRecorder,
    first_tensor,
)
from lightning_accum.sparse.events import Events
from lightning_accum.updates import Accumulator, Updater


class _Seen(NamedTuple):
    """A cell, what both sides of it recorded, and how their products change each parameter."""

    cell: Cell
    pre: Tensor
    post: Tensor
    vjps: dict[str, WeightVJP]
    events: tuple[Events | None, Events | None]


class Rule(IndependentCellTrainer, ABC):
    r"""Base of learning rules that are sums of products of pre- and postsynaptic signals.

    .. math:: \Delta w = \sum_k \text{rate}_k \,
              \operatorname{reduce}_b \sum_t \mathrm{post}_k[t, b] \otimes \mathrm{pre}_k[t, b]

    A subclass gives its hyperparameters to ``super().__init__`` and the products in :meth:`terms`;
    observing, batching, signs, shapes and the choice of the cheapest evaluation are done here.
    Calling the rule evaluates the window since the last call and accumulates; it applies nothing.
    Called after every step, or once for many, it gives the same sum, for traces carry over until
    :meth:`clear`. (The reduction is applied to each call's change of a sample, for each part apart:
    for sum and mean it does not matter how a window is cut, for others it does.) Traces carry over
    only between batches of one shape: those of another are other samples.

    Args:
        hyperparameters: those of the rule, by name.
        dt: step, in ms.
        batch_reduction: ``"mean"``, ``"sum"``, or any ``fn(per_sample, dim)``.
        time_dim: ``None`` where modules are called once per step with ``[B, ...]``, ``0`` where
            they are called once per sequence with ``[T, B, ...]``.
        params: names of the connection's parameters to train. A bias learns as the weight of an
            input that is always one.
        carry: whether traces pass from call to call; without, every window begins at rest.
        backend: how terms are evaluated: ``"auto"`` takes the cheapest way, ``"plain"`` is the
            equation itself, sample by sample, and slow.
        picker: finds the activity in what a neuron gives out; its first tensor when ``None``.
        **unknown: nothing; any other name is rejected, by name.

    Raises:
        TypeError: if an option is none of these.
        ValueError: if a hyperparameter or an option makes no sense.

    Example:
        >>> from torch import nn
        >>> class Coincidence(Rule):
        ...     def __init__(self, lr: float = 0.1, **options):
        ...         super().__init__({"lr": lr}, **options)
        ...     def terms(self, window, h):
        ...         return [Term(h.lr, window.post, window.pre)]
        >>> fc, relu = nn.Linear(2, 1, bias=False), nn.ReLU()
        >>> rule = Coincidence()
        >>> unit = rule.register_cell("enc", Cell(fc, relu))
        >>> rule
        Coincidence(lr=0.1, dt=1.0, batch_reduction='mean', time_dim=None, params=('weight',)
          cells: enc)
    """

    spikes: ClassVar[bool] = True
    """Whether both sides are spikes, so that they are kept as booleans."""

    _reads_input: ClassVar[bool] = True
    """Whether it matters what comes in; else it may be anything."""

    _traces: ClassVar[int] = 1
    """About how many traces of both sides it takes at a time, beyond one."""

    def __init__(
        self,
        hyperparameters: Mapping[str, Any] | None = None,
        *,
        dt: float = 1.0,
        batch_reduction: ReductionFn | str = "mean",
        time_dim: int | None = None,
        params: Sequence[str] = ("weight",),
        carry: bool = True,
        backend: Backend = "auto",
        picker: Picker | None = None,
        **unknown: Any,
    ) -> None:
        if unknown:
            known = _arguments(type(self))
            raise TypeError(
                f"Arguments of `{type(self).__name__}` should be among {known}. Found"
                f" `{next(iter(unknown))}`{nearest(next(iter(unknown)), known)}"
            )
        if not isinstance(backend, str) or backend not in get_args(Backend):
            raise ValueError(
                f"Argument `backend` should be one of {get_args(Backend)}. Found `{backend = }`."
            )
        if hyperparameters is not None:
            check_mapping("hyperparameters", hyperparameters)
        super().__init__(
            **(hyperparameters or {}),
            dt=dt,
            batch_reduction=batch_reduction,
            time_dim=time_dim,
            params=names_in("params", params),
            picker=picker,
        )
        self.carry = carry
        self.backend: Backend = backend
        self._checked: set[tuple[str, str]] = set()  # cells and parameters whose shapes fit

    @abstractmethod
    def terms(self, window: Window, h: Hyperparameters) -> Sequence[Change] | Change:
        """The products whose sum is the change of a parameter; a single one may come alone.

        A long window comes in pieces, one after the other.

        Args:
            window: the signals of one cell.
            h: the hyperparameters in force for it.
        """

    def _weight_vjp(self, module: nn.Module, name: str, place: str) -> WeightVJP:
        """Returns what makes a change of a parameter of products; a subclass may have its own."""
        return vjp_of(module, name, place)

    def reads(self, h: Hyperparameters) -> tuple[str, ...]:
        """Names other tensors of the connection that :meth:`terms` finds in ``window.tensors``."""
        return ()

    def check(self, h: Hyperparameters) -> None:
        """Raises a ``ValueError`` if hyperparameters make no sense.

        Every ``tc_...`` and ``dt`` should be positive, every ``lr_...`` finite, and ``trace_mode``
        one that there is; a subclass adds to that.
        """
        check_reduction(h.batch_reduction)
        names_in("params", h.params)
        for name, value in vars(h).items():
            if name == "dt" or name.startswith("tc_"):
                if not (is_number(value) and 0 < value < float("inf")):
                    raise ValueError(
                        f"Argument `{name}` should be a positive, finite number of ms."
                        f" Found `{name} = {value!r}`."
                    )
            elif (name == "lr" or name.startswith("lr_")) and not (
                is_number(value) and abs(value) < float("inf")
            ):
                raise ValueError(
                    f"Argument `{name}` should be a finite number. Found `{name} = {value!r}`."
                )
        mode = getattr(h, "trace_mode", "cumulative")
        if mode not in get_args(TraceMode):
            raise ValueError(
                f"Argument `trace_mode` should be one of {get_args(TraceMode)}."
                f" Found `trace_mode = {mode!r}`."
            )
        if not (h.picker is None or callable(h.picker)):
            raise TypeError(
                "Argument `picker` should be a callable that finds a tensor in what a neuron gives"
                f" out, or None. Found `{type(h.picker).__name__}`."
            )
        WindowRecorder(self.spikes, h.time_dim, h.dt)  # for its check of `time_dim`

    def check_cell(self, name: str, cell: Cell, h: Hyperparameters) -> None:
        """Raises a ``ValueError`` if the neuron says that it is called in another way, or steps so.

        A neuron that has a ``time_dim``, as those of ``lightning_accum.nn`` do, has its ``dt`` in
        ms; that of others may be in any unit and is not compared.
        """
        mode = {"s": None, "m": 0}.get(getattr(cell.neuron, "step_mode", ""), h.time_dim)
        said = getattr(cell.neuron, "time_dim", mode)
        if said != h.time_dim:
            raise ValueError(
                f"Argument `time_dim` should be that of the neuron of cell `{name}`, {said}. Found"
                f" `time_dim = {h.time_dim}`: give the rule `time_dim={said}`."
            )
        step: Any = getattr(cell.neuron, "dt", None) if hasattr(cell.neuron, "time_dim") else None
        if is_number(step) and not math.isclose(step, h.dt):
            raise ValueError(
                f"Argument `dt` should be the step of the neuron of cell `{name}`, {step} ms. Found"
                f" `dt = {h.dt}`: give the rule `dt={step}`."
            )
        constants = {key: value for key, value in vars(h).items() if key.startswith("tc_")}
        warn_below_step(h.dt, f"cell `{name}`", **constants)

    def register_cell(self, name: str, cell: Cell, /, **overrides: Any) -> RegisteredCell:
        """Adds a cell, an updater for its connection, and the monitors of both sides.

        Args:
            name: name of the cell, without dots.
            cell: the cell.
            **overrides: hyperparameters that differ from the rule's.

        Returns:
            The cell with its state and monitors.
        """
        super().register_cell(name, cell, **overrides)
        self._checked = {place for place in self._checked if place[0] != name}
        h = self._state_for(name).hyperparameters
        indices = isinstance(cell.connection, nn.Embedding)  # are no spikes, though integers
        for side, attr, kind, spikes in (
            ("pre", "connection", InputMonitor, self.spikes and not indices),
            ("post", "neuron", OutputMonitor, self.spikes),
        ):
            picker = (side == "post" and h.picker) or first_tensor
            validate = side == "post" or self._reads_input
            place = "before" if side == "pre" else "after"
            label = f"{place} the {attr} of cell `{name}`"
            recorder = WindowRecorder(spikes, h.time_dim, h.dt, validate, label)
            make = kind.partialconstructor(reducer=recorder, picker=picker)
            tags = {"spikes": spikes, "time_dim": h.time_dim, "dt": h.dt}
            self.add_monitor(name, side, attr, make, **tags, picker=picker, validate=validate)
        return self.get_unit(name)

    def forward(self, carry: bool | None = None, **inputs: Any) -> None:
        """Evaluates the window since the last call, and accumulates; nothing is applied.

        Args:
            carry: whether traces pass to the next call; as the rule is set when ``None``.
            **inputs: what the rule's terms ask for, such as a reward.

        Raises:
            ValueError: if the activity does not fit the parameters; then it is dropped. Or if
                something that the terms ask for is missing or does not fit; then nothing has
                changed in any cell: call the rule again for the same window, or drop that with
                :meth:`clear`.
        """
        self._check_bound()
        try:
            windows = {
                name: seen
                for name, (cell, _) in self.named_cells
                if (seen := self._observed(name, cell)) is not None
            }
        except BaseException:
            self.drop_window()
            raise
        carry = self.carry if carry is None else carry
        runs = [self._evaluate(name, seen, inputs, carry) for name, seen in windows.items()]
        for run in runs:
            next(run)  # finds the terms, which may reject the inputs, before anything changes
        try:
            for run in runs:
                next(run, None)
            if not windows:
                self._note_empty()
        finally:
            self.drop_window()

    # ------------------------------------------------------------------ inside
    def _observed(self, name: str, cell: Cell) -> _Seen | None:
        """What both sides of a cell recorded, ``None`` if nothing; all checks, no arithmetic."""
        recorders = [_recorder(self.get_monitor(name, side)) for side in ("pre", "post")]
        pre, post = (None if own is None else own.window() for own in recorders)
        if pre is None and post is None:
            return None
        check_alike(name, cell, pre, post, self._state_for(name).hyperparameters.time_dim)
        assert pre is not None
        assert post is not None
        if pre.is_complex() or post.is_complex():
            raise TypeError(
                f"Activity of cell `{name}` should be real. Found {pre.dtype} before and"
                f" {post.dtype} after the connection: record its magnitude or its real part."
            )
        if pre.shape[1] == 0:
            return None
        vjps = {}
        for param in self._state_for(name).hyperparameters.params:
            place = f"`{param}` of cell `{name}`"
            vjps[param] = self._weight_vjp(cell.connection, param, place)
            if (name, param) not in self._checked:
                vjps[param].check(post[0, :1], pre[0, :1])
                self._checked.add((name, param))
        known = [None if own is None else own.events() for own in recorders]
        return _Seen(cell, pre, post, vjps, (known[0], known[1]))

    def _evaluate(
        self, name: str, seen: _Seen, inputs: dict[str, Any], carry: bool
    ) -> Iterator[None]:
        """Runs the terms over what a cell recorded; yields once, before anything changes."""
        state = self._state_for(name)
        h, module = state.hyperparameters, seen.cell.connection
        updater = self._updater_of(name, *h.params)
        targets = [
            Target(param, updater.target(param).detach(), seen.vjps[param], getattr(updater, param))
            for param in h.params
        ]
        recording = Recording(
            pre=seen.pre,
            post=seen.post,
            dt=h.dt,
            unit_dim=unit_dim_of(module),
            events=seen.events,
            tensors={tensor: getattr(module, tensor).detach() for tensor in self.reads(h)},
            inputs=inputs,
        )
        carried = yield from run_rule(
            partial(self.terms, h=h),
            type(self).__name__,
            recording,
            targets,
            reduction(h.batch_reduction),
            self.backend,
            state.carried,
            carry,
            self._traces,
        )
        state.keep(carried, name)
        for param in h.params:
            state.samples[param] = state.samples.get(param, 0) + seen.pre.shape[1]
        if state.tally.note(seen.pre, seen.post):
            self._warn_of_pending(name, updater, state.tally)

    def _note_empty(self) -> None:
        """Warns when call after call finds nothing, and none ever found anything."""
        cells = {name: (cell, self.tally(name)) for name, (cell, _) in self.named_cells}
        resting = not self.training or not self.recording  # which is meant
        if resting or any(tally.windows for _, tally in cells.values()):
            return
        for name, (cell, tally) in cells.items():
            if tally.note_empty():
                warnings.warn(
                    f"Cell `{name}` should record activity for `{type(self).__name__}` to learn"
                    f" from. Found none in {tally.empty} calls."
                    f" {why_nothing(cell.connection, cell.neuron)}",
                    RuntimeWarning,
                    stacklevel=4,
                )

    def _warn_of_pending(self, name: str, updater: Updater, tally: Tally) -> None:
        for param in self.params_of(name):
            accumulator: Accumulator = getattr(updater, param)
            if tally.long_pending(accumulator.contributions) and not updater.applied.get(param):
                warnings.warn(
                    f"The changes that `{type(self).__name__}` makes for cell `{name}` should be"
                    f" applied from time to time. Found those of {tally.windows} windows pending"
                    f" for `{param}`, and none ever applied: call `update()` on the rule, or"
                    " `step()` on the FabricCellTrainer or the UpdateOptimizer.",
                    RuntimeWarning,
                    stacklevel=5,
                )

    def tally(self, name: str) -> Tally:
        """The counts of a cell's windows."""
        return self._state_for(name).tally

    def _state_for(self, name: str) -> CellState:
        state = self._states[name]
        assert isinstance(state, CellState)
        return state

    def __repr__(self) -> str:
        known = {k: v for k, v in vars(self.defaults).items() if v is not None or k == "time_dim"}
        settings = ", ".join(f"{k}={v!r}" for k, v in known.items())
        return f"{type(self).__name__}({settings}\n  cells: {', '.join(self._refs) or 'none'})"


def _recorder(monitor: Monitor | None) -> WindowRecorder | None:
    # spares a module's own way to find an attribute, which takes its time
    recorder = None if monitor is None else monitor._modules["reducer"]
    return recorder if isinstance(recorder, WindowRecorder) else None


def _arguments(rule: type) -> list[str]:
    """The names that a rule's arguments have, those that it passes on included."""
    found: dict[str, None] = {}
    for base in rule.__mro__:
        if "__init__" not in vars(base):
            continue
        every = inspect.signature(base).parameters.values()
        first = not found
        for p in every:
            if p.kind is p.KEYWORD_ONLY or (first and p.kind is p.POSITIONAL_OR_KEYWORD):
                found[p.name] = None
        found.pop("hyperparameters", None)  # of those who write rules
        if base is Rule or not any(p.kind is p.VAR_KEYWORD for p in every):
            break
    return list(found)
