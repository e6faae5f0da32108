"""Accumulators of a module's parameters, each an attribute under the name of its parameter."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from lightning_accum._checks import check_module, names_in
from lightning_accum._compat import compiled_from, in_dispatch_mode
from lightning_accum._state import CheckedState
from lightning_accum.functional.reductions import ReductionFn
from lightning_accum.updates.accumulator import Accumulator
from lightning_accum.updates.ledger import Ledger
from lightning_accum.updates.targets import parameter_of, updatable_param
from lightning_accum.updates.unattached import note_unattached


class NamedAccumulators(CheckedState):
    """Routes names to the accumulators of a module's parameters; abstract.

    :class:`Updater` applies what they hold. Names are looked up in the module each time, so that a
    parameter that was replaced by another of its shape is found.

    Args:
        module: the module; it is referenced weakly.
        reduction: how contributions are reduced, as for :meth:`Accumulator.reduction`.
    """

    keywords: ClassVar[tuple[str, ...]] = ()
    """The keywords that a call takes in addition to the options of bounds."""

    attached = False
    """Whether it is or was the updater of its module, or has the constraints and bounds of that."""

    _accumulators: dict[str, Accumulator] = {}  # noqa: RUF012 - none before `__init__`
    _parent: weakref.ref[nn.Module] | None = None
    _user: weakref.ref[Any] | None = None
    _watchers: tuple[tuple[weakref.ref[object], Callable[[NamedAccumulators], None]], ...] = ()

    def __init__(self, module: nn.Module, reduction: ReductionFn | str | None) -> None:
        super().__init__()
        check_module(module=module)
        module = compiled_from(module)
        self.label = type(module).__name__
        self._reduction = reduction
        self._accumulators = {}
        self._ledger = Ledger(self.label, self._accumulators)
        self.held: dict[str, Tensor] = {}  # what was changed last, also after the module's end
        self.bind(module)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters, in the order in which they were added."""
        return tuple(self._accumulators)

    def add(self, *params: str) -> None:
        """Makes further parameters of the module updatable; known ones stay unchanged.

        Args:
            *params: names of the module's own parameters or buffers.

        Raises:
            AttributeError: if the module lacks one of ``params``, or computes it.
            TypeError: if one of them does not hold floating-point numbers.
            ValueError: if a name collides with an attribute of ``Updater``, or a parameter has no
                shape yet.
        """
        module, new = self.parent, {}
        if all(type(name) is str and name in self._accumulators for name in params):
            return
        for name in names_in("params", params):
            if name in self._accumulators or name in new:
                continue
            param = updatable_param(module, name)
            if hasattr(self, name):
                raise ValueError(
                    f"Argument `params` should not name an attribute that every Updater has. Found"
                    f" `{name}`: rename the parameter of `{self.label}`."
                )
            new[name] = Accumulator(param.shape, name=name)
            new[name].reduction(self._reduction)
        for name, accumulator in new.items():
            self._put(name, accumulator)

    def _put(self, name: str, accumulator: Accumulator) -> None:
        """Sets the accumulator of a parameter."""
        self.add_module(name, accumulator)
        self._accumulators[name] = accumulator

    # ------------------------------------------------------------------ the module
    @property
    def parent(self) -> nn.Module:
        """The module whose parameters are updated.

        Raises:
            RuntimeError: if it no longer exists, or this is a copy without its module.
        """
        parent = self.known_parent
        if parent is None:
            raise RuntimeError(
                f"The module `{self.label}` of this updater no longer exists, or this is a copy"
                " that was made apart from its module: bind it with `updater.bind(module)`."
            )
        return parent

    @property
    def known_parent(self) -> nn.Module | None:
        """The module; ``None`` if it no longer exists, or this is a copy without its module."""
        return None if self._parent is None else self._parent()

    def bind(self, module: nn.Module) -> None:
        """Makes ``module`` the parent, weakly; its parameters take the accumulators by name."""
        self._parent = self._ledger.parent = weakref.ref(module)

    @property
    def user(self) -> object | None:
        """The object that has claimed this, referenced weakly; ``None`` if it does not exist."""
        return None if self._user is None else self._user()

    @user.setter
    def user(self, user: object | None) -> None:
        self._user = None if user is None else weakref.ref(user)

    def call_at_end(self, owner: object, watcher: Callable[[NamedAccumulators], None]) -> None:
        """Calls ``watcher(self)`` when this is deleted; a copy does not.

        Args:
            owner: whose watcher it is, referenced weakly; those of dead owners are forgotten.
            watcher: it must not refer to the module or to the owner, which would then stay.
        """
        self._ledger.watched = True
        alive = (known for known in self._watchers if known[0]() is not None)
        self._watchers = (*alive, (weakref.ref(owner), watcher))

    def note_limit(self, what: str) -> None:
        """Notes a constraint or a bound, unless this is or was attached to its module.

        Args:
            what: names it in a message.
        """
        if not self.attached and self.known_parent is not None:
            note_unattached(self.known_parent, what)

    def __del__(self) -> None:
        for name, accumulator in self._accumulators.items():
            if accumulator.bounded:
                self.note_limit(f"a bound of `{name}`")
        for _, watcher in () if in_dispatch_mode() else self._watchers:
            watcher(self)

    def target(self, name: str) -> Tensor:
        """Returns the parameter that the module has under a name now.

        Args:
            name: one of :attr:`names`.

        Raises:
            RuntimeError: if the module no longer has such a parameter.
            ValueError: if it has another shape now.
        """
        param, shape = parameter_of(self.parent, name), self._accumulators[name].shape
        if param is None:
            raise RuntimeError(
                f"`{name}` should stay a parameter of `{self.label}` while it is trained. Found"
                " that it is gone, or computed from others by now: change the module before its"
                " cell is registered, and name its new parameters in `params`."
            )
        if param.shape != shape:
            raise ValueError(
                f"The updater of `{self.label}` should fit the parameter's shape"
                f" {tuple(param.shape)}. Found one that was made when `{name}` had the shape"
                f" {tuple(shape or ())}: remove it with `set_updater(module, None)`, and register"
                " the cell again."
            )
        return param

    def clear(self, **kwargs: Any) -> None:
        """Drops everything that is pending."""
        for accumulator in self._accumulators.values():
            accumulator.clear()

    # ------------------------------------------------------------------ accumulators by name
    def checked_names(self, params: Sequence[str]) -> Sequence[str]:
        """Returns ``params``, all names if it is empty.

        Raises:
            AttributeError: if one of them is unknown.
        """
        for name in params:
            if name not in self._accumulators:
                raise AttributeError(
                    f"Argument `params` should name parameters of this updater, {self.names}."
                    f" Found `{name}`: name it when the updater is made, or call `add({name!r})`."
                )
        return params or self.names

    def takes(self, keyword: str) -> bool:
        """Returns whether a call takes a keyword, or a bound of one of the parameters does."""
        accumulators = self._accumulators.values()
        return keyword in self.keywords or any(each.takes(keyword) for each in accumulators)

    @staticmethod
    def _getacc_(self: NamedAccumulators, attr: str) -> Accumulator:
        """Returns the accumulator of a parameter."""
        return self._accumulators[attr]

    @staticmethod
    def _setacc_(
        self: NamedAccumulators,
        value: tuple[Tensor | None, Tensor | None] | Tensor | None,
        attr: str,
    ) -> None:
        """Adds to the accumulator of a parameter: a tensor to ``pos``, a pair to both parts."""
        pair = value if isinstance(value, (tuple, list)) else (value, None)
        if len(pair) != 2:
            raise ValueError(
                f"A value assigned to `updater.{attr}` should be a tensor, None, or a pair"
                f" `(pos, neg)`. Found {len(pair)} values."
            )
        self._getacc_(self, attr).accumulate(*pair)
        self._ledger.note_assigned(attr, self._accumulators[attr])

    @staticmethod
    def _delacc_(self: NamedAccumulators, attr: str) -> None:
        """Clears both parts of a parameter's accumulator."""
        self._getacc_(self, attr).clear()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._accumulators:
            self._setacc_(self, value, name)
        elif isinstance(getattr(type(self), name, None), property):
            # nn.Module would register a module or an nn.Parameter that is assigned here.
            object.__setattr__(self, name, value)
        else:
            if not name.startswith("_") and isinstance(value, (Tensor, tuple)):
                self.checked_names((name,))  # a change of a parameter that has no accumulator
            super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        if name in self._accumulators:
            self._delacc_(self, name)
        else:
            super().__delattr__(name)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_parent": None, "_user": None, "_watchers": (), "held": {}}
