"""The trainer of cells by a rule: the one machine that runs every rule."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, final

from torch import Tensor, nn
from typing_extensions import Self

from lightning_accum._checks import check_mapping, check_type, knows_arguments, nearest
from lightning_accum._compat.torch_internals import compiled_from, is_traced
from lightning_accum._training_events import Observer
from lightning_accum.cells.cell import Cell, CellSpec
from lightning_accum.cells.recorded_signals import check_modules, follows_gradient, recorded_signals
from lightning_accum.cells.state import CellState, Options
from lightning_accum.cells.trainer import CellTrainer, feedbacks_of, recorded_steps
from lightning_accum.cells.window_evaluation import CellPlan, CellWindow, named_terms_of
from lightning_accum.engine.rule import OPTIONS, Rule, fields_of
from lightning_accum.engine.rule_inputs import Given
from lightning_accum.engine.vjp import sample_dims_of
from lightning_accum.engine.window_changes import Backend
from lightning_accum.functional.reductions import ReductionFn
from lightning_accum.observe import Monitor
from lightning_accum.observe.monitor import Picker
from lightning_accum.updates.targets import follow_synapses


class RegisteredCell(NamedTuple):
    """A cell with its state and its monitors."""

    cell: Cell
    state: nn.Module | None
    monitors: dict[str, Monitor]


@final
class RuleTrainer(CellTrainer):
    r"""Trains cells by a rule, which is a value: hyperparameters, and an equation.

    Calling the trainer evaluates the window since the last call and accumulates the change; it
    applies nothing. Each cell may have other hyperparameters or options than the trainer.

    Traces carry over from call to call until :meth:`clear`, so that calling the trainer after every
    step gives the same sum as calling it once for many steps; a batch of another shape has other
    samples, and begins at rest. The batch reduction is applied in each call, to each part by
    itself: how a window is cut matters, unless it is a sum or a mean.

    Args:
        rule: the rule, such as :class:`~lightning_accum.STDP`.
        dt: step, in ms.
        time_dim: ``None`` if modules are called once per step with ``[B, ...]``, ``0`` if they are
            called once per sequence with ``[T, B, ...]``.
        batch_reduction: ``"mean"``, ``"sum"``, or any ``fn(per_sample, dim)``. When ``None``, the
            mean; for rules that record the gradient of a loss the sum, which follows the gradient
            be the loss a sum or a mean over samples, and is averaged over processes.
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
        ValueError: if an option makes no sense.

    Example:
        >>> import torch
        >>> from lightning_accum import Hebb
        >>> fc, relu = torch.nn.Linear(2, 1, bias=False), torch.nn.ReLU()
        >>> trainer = RuleTrainer(Hebb(lr=0.1))
        >>> unit = trainer.register_cell("enc", Cell(fc, relu))
        >>> _ = relu(fc(torch.ones(1, 2)))
        >>> trainer()
        >>> trainer.update()
    """

    if TYPE_CHECKING:
        # nn.Module's accepts every name, so that a checker would not find a misspelt one.
        __getattr__: None  # type: ignore[misc, assignment]

    default_events: ClassVar[Callable[[RuleTrainer, str], Observer] | None] = None
    """Returns what observes a trainer that is used by hand, when it gets a cell of a name."""

    @knows_arguments()
    def __init__(
        self,
        rule: Rule,
        *,
        dt: float = 1.0,
        time_dim: int | None = None,
        batch_reduction: ReductionFn | str | None = None,
        params: Sequence[str] = ("weight",),
        carry: bool = True,
        backend: Backend = "auto",
        picker: Picker | None = None,
        graded_input: bool = False,
    ) -> None:
        super().__init__()
        check_type(isinstance(rule, Rule), "rule", rule, "a Rule, such as `STDP(0.01, -0.01)`")
        if batch_reduction is None:
            batch_reduction = "sum" if follows_gradient(rule) else "mean"
        names = dt, time_dim, batch_reduction, params, carry, backend, picker, graded_input
        self.rule, self.options = rule, Options(*names)  # type: ignore[arg-type]  # checked there
        for name, module in modules_of(rule).items():
            self.add_module(name, module)
        self._plans: dict[str, CellPlan] = {}
        self._feedbacks = feedbacks_of(self)

    def __setattr__(self, name: str, value: Any) -> None:
        rule = self.__dict__.get("rule")
        if rule is not None and name in (*vars(rule), *OPTIONS):
            raise dataclasses.FrozenInstanceError(
                f"`{name}` of a trainer of `{self.title}` should be given when it is made, or to"
                " `register_cell` for one cell. Found it assigned afterwards, which would reach no"
                f" cell: call `trainer.replace(cell, {name}=...)`, or, for a rate that changes in a"
                " run, scale its updates, with `lr` and `lr_scheduler` of the CellTrainerCallback"
                " or `lr` of an UpdateOptimizer."
            )
        super().__setattr__(name, value)

    # ------------------------------------------------------------------ cells
    def register_cell(self, name: str, cell: Cell, /, **overrides: Any) -> RegisteredCell:
        """Adds a cell with the monitors of its signals; the connection gets an updater.

        Args:
            name: as for :meth:`add_cell`.
            cell: the cell.
            **overrides: hyperparameters of the rule and options that differ from the trainer's.

        Returns:
            The cell with its state and monitors.

        Raises:
            TypeError: if an override is neither a hyperparameter of the rule nor an option.
            ValueError: if a value makes no sense, or the name is taken.
        """
        self._drop_dead()
        kept = self._states[name] if name in self._states else None
        if not isinstance(kept, CellState) or overrides:
            kept = CellState(*self._with(f"Overrides of cell `{name}`", overrides))
            if isinstance(cell, Cell):
                kept.rule = kept.rule.of_cell(name, cell)
            for field, module in modules_of(kept.rule).items():
                if module is not modules_of(self.rule).get(field):
                    kept.add_module(field, module)
        if isinstance(cell, Cell):  # otherwise `add_cell` raises an error
            check_modules(name, cell, kept.rule, kept.options)
        self.add_cell(name, cell, kept, kept.options.params)
        self._feedbacks = feedbacks_of(self)
        self._watch(name, cell, kept)
        return self.get_unit(name)

    def _with(self, what: str, given: dict[str, Any]) -> tuple[Rule, Options]:
        """Returns the rule and the options with other values of some names."""
        fields = [each.name for each in fields_of(self.rule)]
        for name in given:
            if name not in (known := [*fields, *OPTIONS]):
                raise TypeError(
                    f"{what} should be hyperparameters of `{type(self.rule).__name__}` or options"
                    f" of its trainer, among {known}. Found `{name}`{nearest(name, known)}"
                )
        rule = {name: value for name, value in given.items() if name in fields}
        options = {name: value for name, value in given.items() if name not in fields}
        changed = dataclasses.replace(self.rule, **rule) if rule else self.rule  # type: ignore[type-var]
        return changed, dataclasses.replace(self.options, **options)

    def replace(self, name: str, /, **changes: Any) -> None:
        """Replaces hyperparameters of a cell from the next window on; what is carried stays.

        Args:
            name: name of the cell.
            **changes: hyperparameters of the rule.

        Raises:
            TypeError: if the rule has no such hyperparameter.
            ValueError: if a value makes no sense, or recorded steps are not evaluated yet.
        """
        state = self.state_of(name)
        if steps := recorded_steps(self, name):
            raise ValueError(
                f"Hyperparameters of cell `{name}` should be replaced between windows. Found"
                f" {steps} recorded steps: call the trainer first, or drop them with `clear()`."
            )
        state.rule = dataclasses.replace(state.rule, **changes)  # type: ignore[type-var]
        self._plans.pop(name, None)

    def _watch(self, name: str, cell: Cell, state: CellState) -> None:
        """Adds the monitors of a cell's signals."""
        self._plans.pop(name, None)
        follow_synapses(cell.connection, self)
        own = state.options, sample_dims_of(cell.connection)
        named = named_terms_of(cell.connection, state)
        for signal in recorded_signals(cell, state.rule, state.options, named.values()):
            make = signal.constructor(name, *own)
            self.add_monitor(name, signal.name, signal.attr, make, **signal.tags(*own))
        by_hand = type(self).default_events
        if by_hand is not None and not self.hosted:
            self.events = by_hand(self, name)

    def get_unit(self, name: str) -> RegisteredCell:
        """Returns a cell with its state and monitors."""
        return RegisteredCell(*self.get_cell(name), dict(self.named_monitors_of(name)))

    def state_of(self, name: str) -> CellState:
        """Returns the state of a cell, with the rule and the options in force for it.

        Raises:
            RuntimeError: if it was added without :meth:`register_cell`.
        """
        self.registry[name]  # raises
        state = self._state_of(name)
        if not isinstance(state, CellState):
            raise RuntimeError(
                f"Cell `{name}` should have a rule. Found none, as `add_cell` was called: call"
                f" `del_cell` and `register_cell({name!r}, cell)` instead."
            )
        return state

    def __iter__(self) -> Iterator[RegisteredCell]:
        """Iterates over the cells with their states and monitors."""
        return (self.get_unit(name) for name, _ in self.named_cells)

    def del_cell(self, name: str) -> None:
        """Deletes a cell from the trainer, with its state and its monitors; the model keeps it."""
        super().del_cell(name)
        self._plans.pop(name, None)
        self._feedbacks = feedbacks_of(self)
        self.events.dropped(name, 0)

    # ------------------------------------------------------------------ a window
    def forward(self, *, carry: bool | None = None, **inputs: Any) -> None:
        """Evaluates the window since the last call and accumulates the change.

        Args:
            carry: whether traces pass to the next call; as the trainer is set when ``None``.
            **inputs: what the rule's terms need, such as a reward.

        Raises:
            RuntimeError: if there are no cells.
            ValueError: if the activity does not fit the parameters, in which case it is dropped; or
                if an input is missing or does not fit, in which case no cell has changed: call
                again for the same window, or drop it with :meth:`clear`.
        """
        if not inputs and carry is not False and self._step_again():
            return
        given = Given(inputs)
        with given.scratch:
            cells = self._bound_cells()
            windows = self._observed(cells)
            try:  # terms may reject the inputs, and nothing changes
                for window in windows.values():
                    window.evaluate(given, carry)
            except BaseException:
                for name in self.registry:
                    self.events.dropped(name, 0)
                raise
            try:
                for window in windows.values():
                    window.accumulate(self.events)
                if inputs or self.unread:
                    self.unread = given.unread if windows else []
                for name, _ in cells:
                    if name not in windows:
                        self.events.found_nothing(name)
            finally:
                self._pool.drop_window()
        for module in self._feedbacks:
            module.follow()

    def _observed(self, cells: list[tuple[str, Cell]]) -> dict[str, CellWindow]:
        """Returns what was recorded of each cell, and drops it if it is not valid."""
        windows = {}
        try:
            for name, cell in cells:
                if (plan := self._plans.get(name)) is None:
                    plan = CellPlan(name, self.state_of(name), cell.connection)
                    self._plans[name] = plan
                window = plan.window(cell, self._pool.members(name), self.registry)
                if window is not None:
                    windows[name] = window
        except BaseException:
            self._pool.drop_window()
            raise
        if not cells and not self.hosted:
            raise RuntimeError(
                f"A trainer of `{self.title}` should have a cell to train. Found none"
                " whose modules exist: register each connection and its neuron,"
                " `trainer.register_cell(name, Cell(connection, neuron))`."
            )
        return windows

    def _step_again(self) -> bool:
        """Evaluates one more step like those before, if there is one; otherwise changes nothing."""
        registry, ready = self.registry, []
        for plan in self._plans.values():
            step = plan.steps.next
            if step is None or is_traced() or not step.suits(registry[plan.name].replacement):
                return False
            ready.append(step)
        if not ready or len(ready) != len(registry):
            return False
        if len(ready) > 1 and len({step.pending for step in ready}) < len(ready):
            return False  # what two cells change is no longer free for the second one
        try:
            for name, step in zip(self._plans, ready, strict=True):
                step.evaluate(name, self.events)
        finally:
            self._pool.drop_window()
        return True

    def update(self, **kwargs: Any) -> None:
        """Applies all pending changes."""
        if not kwargs and len(self._plans) == 1:
            ((name, plan),) = self._plans.items()
            step = plan.steps.next
            alone = step is not None and len(self.registry) == 1
            if step is not None and alone and step.apply(self.registry[name].replacement):
                return
        super().update(**kwargs)

    # ------------------------------------------------------------------ beside a window
    @property
    def title(self) -> str:
        """What messages call the trainer: the name of its rule."""
        return type(self.rule).__name__

    def rearranging(
        self, module: nn.Module, move: Callable[[Tensor], Tensor]
    ) -> list[partial[None]]:
        """Returns calls that move what is carried for each synapse, as a connection's move."""
        calls = []
        for name, cell in self.registry.bound:
            if compiled_from(cell.connection) is module:
                state = self.state_of(name)
                carried = {
                    key: move(value) if key.kind.startswith("weight ") else value
                    for key, value in state.carried.items()
                }
                # The `__setattr__` of modules is Python code, in which an interrupt may come.
                calls.append(partial(object.__setattr__, state, "carried", carried))
        return calls

    def finish_batch(self, carry: bool, **inputs: Any) -> None:
        """Evaluates the rest of a batch; ``carry`` says whether traces pass to the next one."""
        self(carry=carry, **inputs)

    def clear(self, **kwargs: Any) -> None:
        """Drops recorded activity and carried traces; averages of neurons stay."""
        for name in self.registry:
            if steps := recorded_steps(self, name):
                self.events.dropped(name, steps)
        super().clear(**kwargs)

    def train(self, mode: bool = True) -> Self:
        """Sets training mode, in which activity is recorded, or evaluation mode."""
        if self.training and not mode:
            self.events.ended("eval")
        return super().train(mode)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plans": {}}  # a copy makes its own

    def __repr__(self) -> str:
        defaults = vars(Options())
        options = {k: v for k, v in vars(self.options).items() if v != defaults[k]}
        shown = "".join(f", {name}={value!r}" for name, value in options.items())
        cells = ", ".join(self.registry) or "none"
        return f"{type(self).__name__}({self.rule!r}{shown}\n  cells: {cells})"


def modules_of(rule: Rule) -> dict[str, nn.Module]:
    """Returns the modules among the hyperparameters of a rule, by name."""
    return {name: each for name, each in vars(rule).items() if isinstance(each, nn.Module)}


def trainer_of(what: object, options: dict[str, Any]) -> CellTrainer:
    """Returns a trainer, or that of a rule with options of running."""
    if isinstance(what, Rule):
        return RuleTrainer(what, **options)
    should = "a rule, such as `STDP(0.01, -0.01)`, or a CellTrainer"
    check_type(isinstance(what, CellTrainer), "cell_trainer", what, should)
    if options:
        raise TypeError(
            f"Options of running, {[*options]}, should be given with a rule. Found them with a"
            f" `{type(what).__name__}`: give them to it."
        )
    return what  # type: ignore[return-value]


def cells_for(trainer: CellTrainer, cells: Any) -> dict[str, CellSpec] | None:
    """Returns the cells that a trainer should register, ``None`` if its user adds cells."""
    if cells is None:
        return None
    if not isinstance(trainer, RuleTrainer):
        raise TypeError(
            "Argument `cells` should be None for a trainer that does not register cells by"
            f" itself. Found it given with `{type(trainer).__name__}`: add the cells with"
            " `add_cell`."
        )
    check_mapping("cells", cells, '{"encoder": CellSpec("fc", "lif")}')
    return {name: CellSpec.of(name, spec) for name, spec in cells.items()}
