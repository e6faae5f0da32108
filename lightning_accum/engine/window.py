"""The window: signals of one cell, as a rule sees them for one parameter."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import torch
from torch import Tensor

from lightning_accum.engine.signal import Activity, Signal
from lightning_accum.engine.state import Carried, StateKey
from lightning_accum.engine.terms import Term
from lightning_accum.engine.vjp import WeightVJP


@dataclass(frozen=True)
class Window:
    """Signals of one cell since the rule's last call, for one parameter; or a piece of them.

    Args:
        pre: presynaptic signal, ``[T, B, ..., in]``; for a bias, an input that is always one.
        post: postsynaptic signal, ``[T, B, ..., out]``.
        name: the parameter's name.
        param: the parameter, which is constant in a window.
        dt: step, in ms.
        inputs: the keyword arguments of the rule's call, such as a reward.
        start: the first step of this piece in the whole window.
        total: steps of the whole window.
        vjp: sums products of both sides into the parameter's shape.
        tensors: other tensors of the connection, which the rule named in ``reads``.
        carried: what the previous window left.
        states: other signals of the cell that the rule records, by name; see :meth:`state`.
        levels: those of the rule's neuromodulators, by name; see :meth:`modulator`.
        prepared: what the rule's ``prepare`` returned for the whole window.
    """

    pre: Signal
    post: Signal
    name: str
    param: Tensor
    dt: float
    inputs: Mapping[str, Any]
    start: int
    total: int
    vjp: WeightVJP
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    carried: Carried = field(default_factory=dict)
    states: Mapping[str, Signal] = field(default_factory=dict)
    levels: Mapping[str, Tensor] = field(default_factory=dict)
    prepared: Any = None
    places: Iterator[int] = field(default_factory=count)  # of what changes carry, in their order

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
        if name not in self.states:
            raise KeyError(
                f"Argument `name` should be among {[*self.states]}, which the rule records. Found"
                f" `{name}`: return it from the rule's `states`."
            )
        return self.states[name]

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
        ones = self.vjp.for_constant_input.constant_input(self.post.activity, self.pre.activity)
        dtype, unit_dim = self.post.dtype, self.post.unit_dim
        return Signal(Activity(ones, self.dt, dtype=dtype, unit_dim=unit_dim, constant=True))

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
