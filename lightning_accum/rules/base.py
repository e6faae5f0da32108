"""The base of learning rules: hyperparameters, and the terms that they make of a window."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, get_args

from torch import nn
from typing_extensions import Self

from lightning_accum.cells.cell import Cell
from lightning_accum.engine.accumulate import (
    Backend,
    Evaluation,
    Terms,
    accumulate,
    pieces_of,
    terms_of,
)
from lightning_accum.engine.recording import Given, Recording
from lightning_accum.engine.terms import Change, listed
from lightning_accum.engine.vjp import WeightVJP, kind_of_vjp
from lightning_accum.engine.window import Window
from lightning_accum.observe import WindowRecorder
from lightning_accum.rules._hyperparameters import (
    check_choice,
    check_connection,
    check_hyperparameters,
    check_neuron,
)
from lightning_accum.rules._observed_cell import ObservedCell
from lightning_accum.rules._recorded_signals import (
    RecordedSignal,
    StateSource,
    both_sides,
    state_of,
)
from lightning_accum.rules._recording_trainer import RecordingTrainer


class Rule(RecordingTrainer):
    r"""Base of learning rules that are sums of products of pre- and postsynaptic signals.

    .. math:: \Delta w = \sum_k \text{rate}_k \,
              \operatorname{reduce}_b \sum_t \mathrm{post}_k[t, b] \otimes \mathrm{pre}_k[t, b]

    A subclass lists its hyperparameters as annotated attributes, and returns the products from
    :meth:`terms`. As in a dataclass, they are arguments of its constructor, in addition to those
    below.
    The base class records activity, reduces the batch, sorts signs and shapes, and chooses the
    cheapest evaluation. Calling the rule evaluates the window since the last call and accumulates
    the change; it applies nothing.

    Traces carry over from call to call until :meth:`clear`, so that calling the rule after every
    step gives the same sum as calling it once for many steps. They carry over only between batches
    of one shape, because a batch of another shape has other samples. The batch reduction is applied
    in each call, to each part by itself; for sums and means it does not matter how a window is cut,
    for other reductions it does.

    Args:
        dt: step, in ms.
        batch_reduction: ``"mean"``, ``"sum"``, or any ``fn(per_sample, dim)``.
        time_dim: ``None`` if modules are called once per step with ``[B, ...]``, ``0`` if they are
            called once per sequence with ``[T, B, ...]``.
        params: names of the connection's parameters to train. A bias learns as the weight of an
            input that is always one.
        carry: whether traces pass from call to call; otherwise every window begins at rest.
        backend: how terms are evaluated: ``"auto"`` chooses the cheapest way, ``"plain"`` evaluates
            the equation itself, sample by sample, and is slow.
        picker: finds the activity in a neuron's output; the output's first tensor when ``None``.

    Raises:
        TypeError: if an argument is unknown; the message has the nearest known name.
        ValueError: if a hyperparameter or an option makes no sense.

    Example:
        >>> from torch import nn
        >>> class Coincidence(Rule):
        ...     lr: float = 0.1
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
    """Whether both sides are spikes, which are kept as booleans."""

    _reads_input: ClassVar[bool] = True
    """Whether the input's values matter; otherwise they are not checked to be spikes."""

    _shifts_by_delay: ClassVar[bool] = False
    """Whether the rule takes account of the connection's delays."""

    _fixed_terms: ClassVar[bool] = False
    """Whether terms are products of activity and its traces that only hyperparameters change."""

    _states_in_terms: ClassVar[bool] = True  # whether terms read states too, not only `prepare`
    _traces: ClassVar[int] = 1
    """About how many traces of both sides the terms need at a time, beyond one."""

    @abstractmethod
    def terms(self, window: Window, h: Self) -> Sequence[Change] | Change:
        """Returns the products whose sum is the change of a parameter; long windows come in pieces.

        Args:
            window: the signals of one cell.
            h: the hyperparameters in force for the cell.
        """

    def states(self, h: Self) -> Mapping[str, StateSource]:
        """Returns what else to record of the neuron, by the name for ``window.state``.

        Args:
            h: the hyperparameters in force for the cell.

        Returns:
            By name, the dotted path of an attribute of the neuron that is read after each call,
            such as ``"v"``; a callable that finds a tensor in the neuron's output; or the class of
            a monitor of the output, such as :class:`~lightning_accum.observe.GradientMonitor`.
        """
        return {}

    def prepare(self, recording: Recording, h: Self) -> Any:
        """Computes what :meth:`terms` needs of the whole window, as ``window.prepared``.

        A long window is passed to :meth:`terms` in pieces; what looks ahead in time belongs here.

        Args:
            recording: what was recorded of the cell.
            h: the hyperparameters in force for the cell.
        """
        return None

    def check(self, h: Self) -> None:
        """Raises an error if hyperparameters make no sense; a subclass adds its own checks.

        Every ``tc_...`` and ``dt`` should be positive, every ``lr_...`` finite, and ``trace_mode``
        a known mode.
        """
        optional = [name for name, each in self._fields.items() if each.default is None]
        check_hyperparameters(h, optional)
        check_choice("backend", self.backend, get_args(Backend))
        WindowRecorder(self.spikes, h.time_dim, h.dt)  # checks `time_dim`

    def check_cell(self, name: str, cell: Cell, h: Self) -> None:
        """Raises a ``ValueError`` if the rule cannot learn from the cell's modules.

        The ``time_dim`` and ``dt`` of the neuron should be the rule's, and the connection should
        have no delays unless the rule takes account of them.
        """
        check_neuron(name, cell, h)
        check_connection(name, cell, h, self._shifts_by_delay)

    def forward(self, *, carry: bool | None = None, **inputs: Any) -> None:
        """Evaluates the window since the last call and accumulates the change; applies nothing.

        Args:
            carry: whether traces pass to the next call; as the rule is set when ``None``.
            **inputs: what the rule's terms need, such as a reward.

        Raises:
            RuntimeError: if the rule has no cells.
            ValueError: if the activity does not fit the parameters, in which case it is dropped; or
                if an input is missing or does not fit, in which case no cell has changed: call the
                rule again for the same window, or drop the window with :meth:`clear`.
        """
        if not inputs and self._step_again(carry):
            return
        self.registry.check_bound()
        try:
            found = [self._observed(name, cell) for name, (cell, _) in self.named_cells]
        except BaseException:
            self.drop_window()
            raise
        if not found and not self.hosted:
            raise RuntimeError(
                f"`{type(self).__name__}` should have a cell to train. Found none whose modules"
                " exist: register each connection and its neuron, `rule.register_cell(name,"
                " Cell(connection, neuron))`."
            )
        carry = self.carry if carry is None else carry
        given = Given(inputs)
        try:  # the terms may reject the inputs, before anything changes
            runs = [self._run(seen, given, carry) for seen in found if seen is not None]
        except BaseException:
            for name, _ in self.named_cells:
                self.events.dropped(name, 0)
            raise
        try:
            for accumulate_cell in runs:
                accumulate_cell()
            self.unread = given.unread if runs else []
            for (name, _), seen in zip(self.named_cells, found, strict=True):
                if seen is None:
                    self.events.found_nothing(name)
        finally:
            self.drop_window()

    def _recorded(self, cell: Cell, h: Self) -> Sequence[RecordedSignal]:
        """Returns the signals to record of a cell: those of both sides come first."""
        sides = both_sides(cell, h, self.spikes, self._reads_input)
        return *sides, *(state_of(cell, name, source) for name, source in self.states(h).items())

    def _factors(self, inputs: Given, recording: Recording, h: Self) -> Mapping[str, Any]:
        """Returns, by name, what every change is multiplied by, or functions that return it."""
        return dict(inputs.unnoted())

    def _vjp_kind(self, module: nn.Module, name: str) -> type[WeightVJP]:
        """Returns the kind of a parameter's product; a subclass may have another."""
        return kind_of_vjp(module, name)

    def _observed(self, name: str, cell: Cell) -> ObservedCell | None:
        """Reads and checks what was recorded of a cell; returns ``None`` if that is nothing."""
        plan = self._plan(name, cell)
        signals = self._read(name, cell, plan)
        if signals is None:
            return None
        vjps = plan.vjps_of(name, cell.connection, signals, self._vjp_kind)
        return ObservedCell(name, cell, plan, signals, vjps)

    def _changes(self, window: Window, h: Self) -> Sequence[Change]:
        return listed(self.terms(window, h), type(self).__name__)

    def _run(self, seen: ObservedCell, inputs: Given, carry: bool) -> Callable[[], None]:
        """Evaluates the terms over what a cell recorded; returns what accumulates the changes."""
        h, state, plan = seen.plan.h, seen.plan.state, seen.plan
        targets = seen.targets(updater := self.updater_of(seen.name, *h.params))
        fixed = self._fixed_terms and self.backend == "auto"
        alone = fixed and carry and not inputs
        known = seen.known_terms(targets) if alone else None
        factors: Mapping[str, Any] = {}
        if known is not None:
            evaluate = partial(known.accumulate, targets[0].accumulator, seen.activity)
        else:
            recording = seen.recording(inputs, carry)
            factors = self._factors(inputs, recording, h)
            recording = recording.after(self.prepare(recording, h), self._states_in_terms)
            how = Evaluation(plan.batch, self.backend, self._traces, plan.forms)
            terms: Terms = partial(self._changes, h=h)
            if not seen.plan.checked:
                terms = seen.plan.checking(terms, type(self).__name__)
            if fixed and recording.steps == 1:
                terms = plan.noting(terms)
            pieces = pieces_of(recording, how)
            piece = pieces[0] if len(pieces) > 1 else None
            first = terms_of(terms, recording, targets, state.carried, piece)
            evaluate = partial(accumulate, first, pieces, terms, recording, targets, how=how)

        def finish() -> None:
            carried = evaluate(carried=state.carried)
            sides = seen.signals["pre"].activity, seen.signals["post"].activity
            self.events.evaluated(seen.name, *sides, factors)
            seen.keep(carried)
            if alone:
                seen.plan_step(known, updater, self._pool.members(seen.name))

        return finish
