"""The base of learning rules: hyperparameters, and the terms that they make of a window."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, get_args

from torch import Tensor, nn
from typing_extensions import Self

from lightning_accum._checks import check_choice, names_in
from lightning_accum._compat.torch import compiled_from, is_traced
from lightning_accum._events import Events
from lightning_accum.cells.cell import Cell
from lightning_accum.cells.independent_trainer import IndependentCellTrainer, field
from lightning_accum.engine import accumulate as run
from lightning_accum.engine.recording import BOTH_SIDES, Given, Recording
from lightning_accum.engine.terms import Change, listed
from lightning_accum.engine.vjp import WeightVJP, kind_of_vjp
from lightning_accum.engine.window import Window
from lightning_accum.functional.reductions import Reduction, ReductionFn, reduction
from lightning_accum.observe import WindowRecorder
from lightning_accum.observe.monitor import Picker
from lightning_accum.rules import _signals as recorded
from lightning_accum.rules._plan import CellPlan, Observed
from lightning_accum.rules.neuromodulator import with_levels
from lightning_accum.sparse.neurons import LoopTerms
from lightning_accum.updates.targets import follow_synapses


class Rule(IndependentCellTrainer, ABC, kw_only=True):
    r"""Base of learning rules that are sums of products of pre- and postsynaptic signals.

    .. math:: \Delta w = \sum_k \text{rate}_k \,
              \operatorname{reduce}_b \sum_t \mathrm{post}_k[t, b] \otimes \mathrm{pre}_k[t, b]

    A subclass lists its hyperparameters as annotated attributes, which are arguments of its
    constructor besides those below, and returns the products from :meth:`terms`. Calling the rule
    evaluates the window since the last call and accumulates the change; it applies nothing.

    Traces carry over from call to call until :meth:`clear`, so that calling the rule after every
    step gives the same sum as calling it once for many steps; a batch of another shape has other
    samples, and begins at rest. The batch reduction is applied in each call, to each part by
    itself: how a window is cut matters, unless it is a sum or a mean.

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
        graded_input: whether a rule on spikes takes real values before the connection, such as
            those of :class:`~lightning_accum.nn.ShortTermPlasticity`. Each value other than 0 then
            counts as a spike; for a rule that learns from an error or a gradient, the value counts.

    Raises:
        TypeError: if an argument is unknown; the message has the nearest known name.
        ValueError: if a hyperparameter or an option makes no sense.

    Example:
        >>> import torch
        >>> class Coincidence(Rule):
        ...     lr: float = 0.1
        ...     def terms(self, window, h):
        ...         return [Term(h.lr, window.post, window.pre)]
        >>> fc, relu = torch.nn.Linear(2, 1, bias=False), torch.nn.ReLU()
        >>> rule = Coincidence()
        >>> unit = rule.register_cell("enc", Cell(fc, relu))
        >>> rule  # doctest: +ELLIPSIS
        Coincidence(lr=0.1, dt=1.0, batch_reduction='mean', time_dim=None, ...
          cells: enc)
    """

    dt: float = 1.0
    batch_reduction: ReductionFn | str = "mean"
    time_dim: int | None = None
    params: Sequence[str] = field(default=("weight",), converter=partial(names_in, "params"))
    carry: bool = field(default=True, hyperparameter=False)
    backend: run.Backend = field(default="auto", hyperparameter=False)
    picker: Picker | None = None
    graded_input: bool = False

    spikes: ClassVar[bool] = True
    """Whether both sides are spikes, which are kept as booleans."""

    _reads_input: ClassVar[bool] = True  # or else the input's values are not checked to be spikes
    _counts_values: ClassVar[bool] = False  # whether a graded input counts by its values
    _fires: ClassVar[bool] = True  # or else a rule on spikes takes any output of the neuron
    _shifts_by_delay: ClassVar[bool] = False  # whether it takes account of the connection's delays
    # whether terms are products of activity and its traces that only hyperparameters change
    _fixed_terms: ClassVar[bool] = False
    _states_in_terms: ClassVar[bool] = True  # whether terms read states too, not only `prepare`
    _traces: ClassVar[int] = 1  # about how many of both sides the terms need at a time, beyond one

    default_events: ClassVar[Callable[[Rule, str], Events] | None] = None
    """Returns what observes a rule that is used by hand, when it gets a cell of a name."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "terms" in vars(cls) and "_fixed_terms" not in vars(cls):
            cls._fixed_terms = False
        if "terms" in vars(cls) and "loop_constants" not in vars(cls):
            cls.loop_constants = Rule.loop_constants  # type: ignore[method-assign]  # of other terms

    def __post_init__(self) -> None:
        super().__post_init__()
        self._plans: dict[str, CellPlan] = {}

    @abstractmethod
    def terms(self, window: Window, h: Self) -> Sequence[Change] | Change:
        """Returns the products whose sum is the change of a parameter; long windows come in pieces.

        Args:
            window: the signals of one cell.
            h: the hyperparameters in force for the cell.
        """

    def states(self, h: Self) -> Mapping[str, recorded.StateSource]:
        """Returns what else to record of the neuron, by the name for ``window.state``.

        It is the dotted path of an attribute that is read after each call, such as ``"v"``; a
        callable that finds a tensor in the neuron's output; or the class of a monitor of the
        output, such as :class:`~lightning_accum.observe.GradientMonitor`.
        """
        return {}

    def reads(self, h: Self) -> tuple[str, ...]:
        """Returns names of the connection's other tensors that ``window.tensors`` should have."""
        return ()

    def prepare(self, recording: Recording, h: Self) -> Any:
        """Computes what :meth:`terms` needs of the whole window, as ``window.prepared``.

        A long window is passed to :meth:`terms` in pieces; what looks ahead in time belongs here.
        """
        return None

    def check(self, h: Self) -> None:
        """Raises an error if hyperparameters make no sense; a subclass adds its own checks."""
        recorded.check_hyperparameters(h, self._fields)
        check_choice("backend", self.backend, get_args(run.Backend))
        WindowRecorder(self.spikes, h.time_dim)  # checks `time_dim`

    def check_cell(self, name: str, cell: Cell, h: Self) -> None:
        """Raises a ``ValueError`` if the rule cannot learn from the cell's modules."""
        recorded.check_modules(name, cell, h, self._shifts_by_delay)
        own = {state: of for state, of in self.states(h).items() if state in self._fields}
        recorded.check_states(type(self).__name__, name, cell, own)

    def forward(self, *, carry: bool | None = None, **inputs: Any) -> None:
        """Evaluates the window since the last call and accumulates the change.

        Args:
            carry: whether traces pass to the next call; as the rule is set when ``None``.
            **inputs: what the rule's terms need, such as a reward.

        Raises:
            RuntimeError: if the rule has no cells.
            ValueError: if the activity does not fit the parameters, in which case it is dropped; or
                if an input is missing or does not fit, in which case no cell has changed: call the
                rule again for the same window, or drop the window with :meth:`clear`.
        """
        carry = self.carry if carry is None else carry
        if not inputs and carry and self._step_again():
            return
        cells = self.bound_cells()
        try:
            found = [(name, self._observed(name, cell)) for name, cell in cells]
        except BaseException:
            self.drop_window()
            raise
        if not cells and not self.hosted:
            raise RuntimeError(
                f"`{type(self).__name__}` should have a cell to train. Found none whose modules"
                " exist: register each connection and its neuron, `rule.register_cell(name,"
                " Cell(connection, neuron))`."
            )
        given, finishing = Given(inputs), []
        try:  # the terms may reject the inputs, before anything changes
            for _, seen in found:
                if seen is not None:
                    finishing.append(self._evaluated(seen, given, carry))
        except BaseException:
            for name, _ in cells:
                self.events.dropped(name, 0)
            raise
        try:
            for accumulate_changes in finishing:
                accumulate_changes()
            unread = given.unread if given.every and finishing else []
            if unread != self.unread:
                self.unread = unread
            for name, seen in found:
                if seen is None:
                    self.events.found_nothing(name)
        finally:
            self.drop_window()

    def _observed(self, name: str, cell: Cell) -> Observed | None:
        """Returns what was recorded of a cell, whose plan is made in the first call."""
        plan = self._plans.get(name)
        if plan is None:
            state = self.state_of(name)
            h = state.hyperparameters
            names = [signal.name for signal in self._recorded(cell, h)]
            plan = self._plans[name] = CellPlan(name, state, names, self.reads(h), cell.connection)
        signals = plan.read(cell, self._pool.members(name))
        if signals is None:
            return None
        updater = self.updater_of(name, *plan.h.params, cell=cell)
        return plan, cell, signals, plan.targets(cell, signals, updater, self._vjp_kind)

    def _evaluated(self, seen: Observed, inputs: Given, carry: bool) -> Callable[[], None]:
        """Evaluates the terms over what a cell recorded; returns what accumulates the changes."""
        plan, cell, signals, targets = seen
        h, state = plan.h, plan.state
        fixed = self._fixed_terms and self.backend == "auto" and not inputs.every
        known = found = plan.steps.terms(signals, targets[0]) if fixed else None
        factors: Mapping[str, Any] = {}
        if known is None:
            tensors = {each: getattr(cell.connection, each).detach() for each in plan.reads}
            recording = Recording(signals, h.dt, plan.unit_dim, tensors, inputs, carry)
            if modulators := plan.modulators:
                recording = with_levels(recording, modulators, state.carried, run.dtype_of(targets))
            factors = self._factors(inputs, recording, h)
            recording = recording.after(self.prepare(recording, h), self._states_in_terms)
            terms = partial(self._changes, h=h)
            how = run.Evaluation(plan.batch, self.backend, self._traces)
            pieces = run.pieces_of(recording, how)
            piece = pieces[0] if len(pieces) > 1 else None
            first = run.terms_of(terms, recording, targets, state.carried, piece)
            plan.check_terms(type(self).__name__, first.changes)
            if fixed:
                plan.steps.note_terms(first.changes[0], signals, targets)
            evaluate = partial(run.accumulate, first, pieces, terms, recording, targets, how=how)
            found = plan.steps.terms(signals, targets[0]) if fixed else None
        if found is not None:
            activity = {side: signals[side].activity for side in BOTH_SIDES}
            evaluate = partial(found.accumulate, targets[0].accumulator, activity, carry)

        def finish() -> None:
            carried = evaluate(carried=state.carried)
            pre, post = signals["pre"].activity, signals["post"].activity
            self.events.evaluated(plan.name, pre, post, factors)
            if state.loaded:
                state.check_loaded(carried, plan.name)
            state.carried = carried
            for target in targets:
                state.samples[target.name] = state.samples.get(target.name, 0) + pre.shape[1]
            if fixed and carry and (len(pre) == 1 or plan.steps.next is not None):
                plan.steps.note(cell, state, targets[0], self._pool.members(plan.name), known)

        return finish

    def _step_again(self) -> bool:
        """Evaluates one more step like those before, if there is one; otherwise changes nothing."""
        registry, ready = self.registry, []
        for plan in self._plans.values():
            step = plan.steps.next
            if step is None or self.backend != "auto" or is_traced():
                return False
            if not step.suits(registry[plan.name].replacement):
                return False
            ready.append(step)
        if not ready or len(ready) != len(registry):
            return False
        if len(ready) > 1 and len({step.accumulator for step in ready}) < len(ready):
            return False  # the accumulator of two cells is no longer free for the second one
        try:
            for name, step in zip(self._plans, ready, strict=True):
                step.evaluate(name, self.events)
        finally:
            self.drop_window()
        return True

    def _changes(self, window: Window, h: Self) -> Sequence[Change]:
        return listed(self.terms(window, h), type(self).__name__)

    def _recorded(self, cell: Cell, h: Self) -> Sequence[recorded.RecordedSignal]:
        """Returns the signals to record of a cell: those of both sides come first."""
        checks, counts = self._reads_input and not h.graded_input, self._counts_values
        spikes = self.spikes and not (counts and h.graded_input), self.spikes and self._fires
        sides = recorded.both_sides(cell, h, spikes, checks)
        return *sides, *(
            recorded.state_of(cell, name, source) for name, source in self.states(h).items()
        )

    def _factors(self, inputs: Given, recording: Recording, h: Self) -> Mapping[str, Any]:
        """Returns, by name, what every change is multiplied by, or functions that return it."""
        return {**inputs.every, **recording.levels}

    def _vjp_kind(self, module: nn.Module, name: str) -> type[WeightVJP]:
        """Returns the kind of a parameter's product; a subclass may have another."""
        return kind_of_vjp(module, name)

    def update(self, **kwargs: Any) -> None:
        """Applies all pending changes."""
        if not kwargs and len(self._plans) == 1:
            ((name, plan),) = self._plans.items()
            step = plan.steps.next
            alone = step is not None and len(self.registry) == 1
            if step is not None and alone and step.apply(self.registry[name].replacement):
                return
        super().update(**kwargs)

    def _watch(self, name: str, cell: Cell, h: Self) -> None:
        """Adds the monitors of a cell's signals."""
        self._plans.pop(name, None)
        follow_synapses(cell.connection, self)
        for signal in self._recorded(cell, h):
            make = signal.constructor(name, h)
            self.add_monitor(name, signal.name, signal.attr, make, **signal.tags(h))
        by_hand = type(self).default_events
        if by_hand is not None and not self.hosted:
            self.events = by_hand(self, name)

    def del_cell(self, name: str) -> None:
        """Deletes a cell from the trainer, with its state and its monitors; the model keeps it."""
        super().del_cell(name)
        self._plans.pop(name, None)
        self.events.dropped(name, 0)

    def rearrange(self, module: nn.Module, move: Callable[[Tensor], Tensor]) -> None:
        """Moves what is carried for each synapse of a connection whose synapses have moved."""
        for name, cell in self.registry.bound:
            if compiled_from(cell.connection) is module:
                state = self.state_of(name)
                state.carried = {
                    key: move(value) if key.kind.startswith("weight ") else value
                    for key, value in state.carried.items()
                }

    def loop_constants(self, h: Self, batch: int) -> LoopTerms | None:
        """Returns the constants of a step for the loop that learns online, ``None`` without one."""
        return None

    def reduction_of(self, name: str) -> Reduction:
        """Returns how a cell reduces its batch."""
        return reduction(self.state_of(name).hyperparameters.batch_reduction)

    def take_samples(self, name: str, param: str) -> int:
        """Returns how many samples' changes of a parameter are pending, and resets the count."""
        return self.state_of(name).samples.pop(param, 0)

    def forget_samples(self) -> None:
        """Counts the samples of pending changes from zero again."""
        for state in self.cell_states.values():
            state.samples.clear()

    def finish_batch(self, carry: bool, **inputs: Any) -> None:
        """Evaluates the rest of a batch; ``carry`` says whether traces pass to the next one."""
        self(carry=carry, **inputs)

    def clear(self, **kwargs: Any) -> None:
        """Drops recorded activity and carried traces; averages of neurons stay."""
        for name in self.registry:
            if steps := self.recorded_steps(name):
                self.events.dropped(name, steps)
        super().clear(**kwargs)

    def recorded_steps(self, name: str) -> int:
        """Returns the number of recorded steps of a cell that no call has evaluated."""
        self.registry[name]  # raises
        monitor = self._pool.members(name).get("post")
        return 0 if monitor is None else int(getattr(monitor.reducer, "length", 0))

    def train(self, mode: bool = True) -> Self:
        """Sets training mode, in which activity is recorded, or evaluation mode."""
        if self.training and not mode and "events" in vars(self):
            self.events.ended("eval")
        return super().train(mode)


class RateRule(Rule):
    """Base of rules on activity of real values or spikes."""

    spikes = False

    lr: float
