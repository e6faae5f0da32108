"""The window: signals of one cell, as a rule sees them for one parameter."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import count
from typing import Any

import torch
from torch import Tensor

from lightning_accum.engine.signal import Signal, SignalName
from lightning_accum.engine.state_keys import Carried, StateKey
from lightning_accum.engine.terms import Term


@dataclass
class Window:
    """Signals of one cell since the trainer's last call, for one parameter; or a piece of them.

    Args:
        sources: the activity of both, and other signals that the rule records, by name; see
            :meth:`state`.
        name: the parameter's name.
        dt: step, in ms.
        param: the parameter, which is constant in a window.
        inputs: the keyword arguments of the trainer's call, such as a reward.
        start: the first step of this piece in the whole window.
        total: steps of the whole window.
        vjp: sums products of both sides into the parameter's shape.
        tensors: other tensors of the connection, which the rule named in ``reads``.
        carried: what the previous window left.
        levels: those of the rule's neuromodulators, by name; see :meth:`modulator`.
        prepared: what the rule's ``prepare`` returned for the whole window.
    """

    sources: Mapping[str, Any]
    name: str
    dt: float
    param: Tensor
    inputs: Mapping[str, Any]
    start: int
    total: int
    vjp: Any
    tensors: Mapping[str, Tensor]
    carried: Carried
    levels: Mapping[str, Tensor]
    prepared: Any
    places: Iterator[int] = field(default_factory=count)  # of what changes carry, in their order

    @cached_property
    def pre(self) -> Signal:
        """The presynaptic signal, ``[T, B, ..., in]``; for a bias, an input that is always one."""
        return Signal(self.sources["pre"])

    @cached_property
    def post(self) -> Signal:
        """The postsynaptic signal, ``[T, B, ..., out]``."""
        return Signal(self.sources["post"])

    def source(self, name: str) -> Any:
        """Returns the activity of a name, as signals of terms have it."""
        if name.endswith(" ones"):
            return self.source(name.removesuffix(" ones")).ones()
        if name == "one":
            return self.post.source.constant_input(self.vjp, self.pre.source)
        return self.sources[name]

    def with_data(self, named: Signal) -> Signal:
        """Returns what a signal of named terms is in this window."""
        weights = named.weights
        weights = self.with_data(weights) if isinstance(weights, Signal) else weights
        source = self.source(named.source.side) if named.is_named else named.source
        return Signal(source, named.decay, named.mode, weights, named.shifted)

    def left_for_samples(self, key: StateKey) -> Tensor | None:
        """Returns what the previous window left for each sample, in the parameter's shape.

        Returns:
            ``[B, *param.shape]``; ``None`` for nothing, or if it belongs to other samples.
        """
        value = self.carried.get(key)
        if value is None or value.shape != (self.post.activity.shape[1], *self.param.shape):
            return None
        return value.to(self.param.device)

    def state(self, name: str) -> Signal:
        """Returns another signal of the cell, ``[T, B, ...]``, that the rule named in ``states``.

        Raises:
            KeyError: if the rule does not record it.
        """
        known = [each for each in self.sources if each not in ("pre", "post")]
        if name not in known:
            raise KeyError(
                f"Argument `name` should be among {known}, which the rule records. Found"
                f" `{name}`: return it from the rule's `states`."
            )
        return Signal(self.sources[name])

    def modulator(self, name: str) -> Tensor:
        """Returns the level of a neuromodulator that the rule has as a hyperparameter.

        Args:
            name: the name of the hyperparameter, such as ``"dopamine"``.

        Returns:
            ``[T, B]`` for all steps of the whole window; ``level[window.steps]`` has those of this
            piece.

        Raises:
            KeyError: if the rule has none of that name.
        """
        self.inputs.get(name)  # what was released has been read
        if name not in self.levels:
            raise KeyError(
                f"Argument `name` should be among {[*self.levels]}, the rule's hyperparameters that"
                f" are a Neuromodulator. Found `{name}`: annotate it in the class, as in `{name}:"
                " Neuromodulator = Neuromodulator(tc=200.0)`."
            )
        return self.levels[name]

    @property
    def one(self) -> Signal:
        """A presynaptic signal that is always one, for terms that do not depend on the input.

        A padded convolution sees it at padded places too, so that it reaches every weight alike.
        """
        return Signal(self.source("one"))

    def decay(self, rate: float, post: Signal | Tensor) -> Term:
        """Returns a term that changes the parameter in proportion to its value.

        Args:
            rate: factor; negative for a decay.
            post: ``[T, B, ..., out]``, the strength in each step.
        """
        return Term(rate, post, self.one, transform=partial(torch.mul, self.param))

    @property
    def steps(self) -> slice:
        """The steps of the whole window that this piece has."""
        return slice(self.start, self.start + self.post.activity.shape[0])


class Outline(Window):
    """A window without data, in which signals are names; reading anything else raises an error."""

    def __init__(self, name: str, dt: float, unit_dim: int, states: Sequence[str]) -> None:
        self.sources = {each: SignalName(each, dt, unit_dim) for each in ("pre", "post", *states)}
        self.name, self.dt = name, dt

    def source(self, name: str) -> SignalName:
        """Returns the name of an activity."""
        return SignalName(name, self.dt)

    __getattr__ = SignalName.__getattr__
