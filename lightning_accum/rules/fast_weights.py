"""A connection whose weight has a fast part for each sample, which a rule changes in every step."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Literal, TypeAlias, final

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lightning_accum import _checks as checks
from lightning_accum._checked_state import FLOATS, StateModule, check_that, shown
from lightning_accum.engine.rule import Rule
from lightning_accum.engine.signal import NeedsData
from lightning_accum.functional.dtypes import as_numbers
from lightning_accum.nn._arguments import check_times
from lightning_accum.rules.differentiable import change_and_left, is_named

_Tensors: TypeAlias = dict[str, Tensor]


@final
class FastWeights(StateModule):
    r"""A ``Linear`` whose weight has a part for each sample that a rule changes, with a graph.

    .. math::
        y_t = \phi\left(\left(W + \alpha \circ F_t\right) x_t + b\right), \qquad
        F_{t+1} = \lambda F_t + \Delta(x_t, y_t)

    with :math:`\Delta` the change of the rule for one step, and :math:`F_0 = 0` for each sample.
    Backpropagation passes through the changes, so an optimizer learns the slow weights :math:`W`
    and, if they are given as ``nn.Parameter``, :math:`\alpha`, :math:`\lambda` and the rates of the
    rule: a number, or one for each synapse, ``[out, in]``; and its time constants: a number each.

    Rules on spikes take real values of :math:`x` and :math:`y` too: they count as graded spikes.
    The fast weights and the rule's traces are kept from call to call until :meth:`reset`; a batch
    of another size starts at zero. Their graph is kept too, until :meth:`reset`, :meth:`detach` or
    a backward pass. They take ``B * out * in`` numbers, and training keeps those of each step,
    unless ``checkpoint_every`` is given, or factors are fewer: in no more steps than neurons, if
    the rule does not read the weight, and rates, share and decay count for all synapses.

    Args:
        connection: the slow weights; its parameters are trained as usual.
        rule: whose changes are products, at once or modulated by a reward. ``window.param`` is the
            whole weight of a sample, :math:`W + \alpha \circ F`.
        activation: :math:`\phi`, a module without a state; the identity when ``None``.
        alpha: :math:`\alpha`, the share of the fast part; a parameter is learned.
        decay: :math:`\lambda`, what is left of the fast part after a step; a parameter is learned.
        dt: step, in ms.
        time_dim: ``None`` for one step per call, 0 for a sequence with time first.
        checkpoint_every: how many steps of a sequence are computed again in the backward pass,
            instead of keeping what it needs of each; all is kept when ``None``.

    Raises:
        TypeError: if the connection is not a ``Linear``, or the rule not a rule.
        ValueError: if a shape does not fit.

    Example:
        >>> import torch
        >>> from lightning_accum import FastWeights, Hebb
        >>> fast = FastWeights(torch.nn.Linear(2, 1, bias=False), Hebb(1.0), time_dim=0)
        >>> _ = torch.nn.init.ones_(fast.connection.weight)
        >>> fast(torch.tensor([[[1.0, 0.0]], [[1.0, 0.0]], [[0.0, 1.0]]])).flatten()
        tensor([1., 2., 1.], grad_fn=<...>)

    Source:
        Miconi, Clune & Stanley 2018, "Differentiable plasticity: training plastic neural networks
        with backpropagation", arXiv:1804.02464.
    """

    alpha: float | Tensor
    decay: float | Tensor
    _shown = ("rule", "dt", "time_dim", "checkpoint_every")

    def __init__(
        self,
        connection: nn.Linear,
        rule: Rule,
        activation: nn.Module | None = None,
        *,
        alpha: float | Tensor = 1.0,
        decay: float | Tensor = 1.0,
        dt: float = 1.0,
        time_dim: Literal[0] | None = None,
        checkpoint_every: int | None = None,
    ) -> None:
        super().__init__()
        fits = isinstance(connection, nn.Linear)
        checks.check_type(fits, "connection", connection, "a torch.nn.Linear")
        should = "a rule, such as `Hebb(0.1)`"
        checks.check_type(isinstance(rule, Rule), "rule", rule, should, "pass a value, no trainer")
        fits = activation is None or (callable(activation) and not isinstance(activation, type))
        checks.check_type(fits, "activation", activation, "a module, such as `nn.Tanh()`, or None")
        check_times(0.0, dt, time_dim)
        if checkpoint_every is not None:
            should = "a positive number of steps, or None"
            checks.check_counts(should, checkpoint_every=checkpoint_every)
        self.connection, self.activation, self.rule = connection, activation, rule
        self.dt, self.time_dim, self.checkpoint_every = dt, time_dim, checkpoint_every
        tensors = {k: v for k, v in vars(rule).items() if isinstance(v, Tensor)}
        for name, value in {"alpha": alpha, "decay": decay, **tensors}.items():
            self._set(name, value)
        self._learned = [*tensors]
        self.reset()

    def _set(self, name: str, value: float | Tensor) -> None:
        """Sets a number, or a tensor for all synapses or for each, as parameter or buffer."""
        if not isinstance(value, Tensor):
            checks.check_finite(**{name: value})
            setattr(self, name, value)
            return
        if value.is_complex() or (value.device.type == "cpu" and not value.isfinite().all()):
            checks.check_value(False, name, value, "finite, real numbers")
        one, each = torch.Size([]), self.connection.weight.shape
        should = f"the shape [], or {[*each]}, a value for each synapse"
        checks.check_shape(value.shape in (one, each), name, value, should, "give one of these")
        kind = "parameter" if isinstance(value, nn.Parameter) else "buffer"
        getattr(self, f"register_{kind}")(name, value)

    def reset(self) -> None:
        """Forgets the fast weights and traces: the next call starts at zero."""
        self._state, self._graph, self._is_loaded = {}, None, False

    def check_extra_state(self, state: Any) -> None:
        """Raises a ``RuntimeError`` if this is not the extra state of such a module."""
        if isinstance(state, Mapping) and not state:  # at rest
            return
        super().check_extra_state(state)
        kept = {name: value for name, value in state.items() if value is not None}
        fast, slow, place = kept.pop("fast", None), self.connection.weight.shape, "`FastWeights`"
        if fast is not None:
            should = f"{FLOATS.should} of shape [B, {slow[0]}, {slow[1]}] as `fast`"
            check_that(FLOATS.fits(fast) and fast.shape[1:] == slow, place, should, fast)
        for name, value in kept.items():
            fits = fast is not None and FLOATS.fits(value) and value.shape[:1] == fast.shape[:1]
            should = f"{FLOATS.should} with as many samples as `fast` as `{name}`"
            check_that(fits, place, should, value)

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Loads copies of the fast weights and traces, or none from a state at rest."""
        self.check_extra_state(state)
        if not state:
            self.reset()
            return
        super().set_extra_state(state)
        self._is_loaded = True

    def forward(self, x: Tensor, current: Tensor | None = None, **inputs: Any) -> Tensor:
        """Transmits a batch, and changes the fast weights after each step.

        Args:
            x: input of any dtype, ``[B, in]``, or ``[T, B, in]`` with ``time_dim=0``.
            current: what is added before the activation, such as the external input of neurons that
                ``x`` is the earlier output of, ``[B, out]`` or ``[T, B, out]``.
            **inputs: what the rule is called with, such as a ``reward`` ``[B]`` or an ``error``
                ``[B, out]``, or with time first, as ``x``; a number counts for all.

        Returns:
            ``[B, out]``, or ``[T, B, out]``.

        Raises:
            ValueError: if a shape does not fit.
        """
        given = {k: v for k, v in inputs.items() if isinstance(v, Tensor) and v.ndim}
        others = {k: v for k, v in inputs.items() if k not in given}
        if current is not None:
            given["current"] = current
        x = self._checked(x, given)
        if self.time_dim is None:
            x, given = x[None], {k: v[None] for k, v in given.items()}
        run: Callable[..., Any] = self._run
        if self.checkpoint_every is not None and torch.is_grad_enabled():
            run = partial(checkpoint, self._run, use_reentrant=False)
        state, found = self._before(x, given, others), []
        is_new, length = not state, self.checkpoint_every or max(1, len(x))
        for at in range(0, len(x), length):
            piece = slice(at, at + length)
            y, state = run(x[piece], {k: v[piece] for k, v in given.items()}, others, state)
            found.append(y)
        if is_new:  # and only now, so that a call that is refused leaves the state
            self.reset()
        y = self._keep(torch.cat(found) if found else self.connection(x), **state)
        return y if self.time_dim == 0 else y[0]

    def _checked(self, x: Tensor, given: Mapping[str, Tensor]) -> Tensor:
        """Returns the input as numbers, if it, the current and the rule's inputs fit, or raises."""
        dims, slow = ["T", "B"] if self.time_dim == 0 else ["B"], self.connection
        lasts, n = {"x": slow.in_features, "current": slow.out_features}, len(dims)
        for name, value in {"x": x, **given}.items():
            checks.check_tensors(**{name: value})
            lead, last = value.shape[:n], lasts.get(name, "...")
            alike = len(lead) == n and lead == x.shape[:n]
            if alike and (name not in lasts or value.shape[n:] == (last,)):
                continue
            should = f"the shape [{', '.join([*dims, str(last)])}]"
            if alike and value.ndim == n + 1:
                mend = f"the last dimension should be {last}, as in `connection`"
            elif name == "x":
                is_sequence = n == 1 and x.ndim == 3
                mend = "pass `time_dim=0` for a sequence" if is_sequence else "give all dimensions"
            else:
                should += f", with those of `x`, {list(x.shape[:n])}"
                mend = "give a value to each sample and step"
            checks.check_shape(False, name, value, should, mend)
        is_number = x.is_floating_point() or x.is_complex()
        return x if is_number else as_numbers(x, self.connection.weight.dtype)

    def _before(self, x: Tensor, given: _Tensors, others: Any) -> dict[str, Tensor]:
        """Returns the state before the first step, in which an input ``[T, B, in]`` finds it."""
        state = {name: value for name, value in self._state.items() if value is not None}
        if "fast" in state and len(state["fast"]) == x.shape[1]:
            if self._graph is not None and self._graph.is_freed():
                self.detach()
            if self._is_loaded and len(x):
                self._check_loaded(x, given, others, state)
            return state
        return {}

    @torch.no_grad()
    def _check_loaded(self, x: Tensor, given: _Tensors, others: Any, state: _Tensors) -> None:
        """Raises a ``RuntimeError`` unless loaded traces are named and shaped as a step's."""
        own = {k: v[:1] for k, v in given.items() if k != "current"}
        slow = self.connection.weight
        signals = {"pre": x[:1], "post": x.new_zeros(1, x.shape[1], len(slow))}
        weight = slow.expand(x.shape[1], *slow.shape)
        traces = self._changed(others, False)(signals, weight, own, {})[1]
        # A trace's name has its time constant. A trace may be missing: inputs may decide on terms.
        foreign = not state.keys() <= {"fast", *traces}
        for name, trace in traces.items():
            found = state.get(name)
            if foreign if found is None else found.shape != trace.shape:
                raise RuntimeError(
                    "The loaded state of `FastWeights` should hold a tensor of shape"
                    f" {tuple(trace.shape)} as `{name}`. Found {shown(found)}: load the state of"
                    " this rule, or call `reset()` to begin at zero."
                )
        self._is_loaded = False

    def _run(self, steps: Tensor, *more: Any) -> tuple[Tensor, _Tensors]:
        """Returns the outputs of some steps, and the state after them."""
        slow = self.connection.weight
        few = all(torch.as_tensor(each).ndim == 0 for each in (self.alpha, self.decay))
        few = few and len(steps) * sum(slow.shape) <= 2 * slow.numel()
        if few and not torch.compiler.is_compiling():  # which would be for each number of factors
            with suppress(NeedsData):  # of a rule that reads the weight
                return self._stepped(_Factors, steps, *more)
        return self._stepped(_Dense, steps, *more)

    def _stepped(
        self, kind: type[_Dense], steps: Tensor, given: _Tensors, others: Any, state: _Tensors
    ) -> tuple[Tensor, _Tensors]:
        """Returns the same, with fast weights of a kind."""
        changed = self._changed(others, kind is _Factors)
        carried = {name: value for name, value in state.items() if name != "fast"}
        fast, found = kind(self, state.get("fast"), steps), []
        for t, x in enumerate(steps.unbind(0)):
            y = self.connection(x) + fast.transmit(x)
            y = y + given["current"][t] if "current" in given else y
            y = y if self.activation is None else self._activated(y)
            own = {k: v[t].unsqueeze(0) for k, v in given.items() if k != "current"}
            change, carried = changed({"pre": x[None], "post": y[None]}, fast.weight, own, carried)
            fast.add(change)
            found.append(y)
        return torch.stack(found), {"fast": fast.total(), **carried}

    def _activated(self, y: Tensor) -> Tensor:
        """Returns what the activation makes of a step, or raises if that is no such tensor."""
        assert self.activation is not None
        found = self.activation(y)
        if not isinstance(found, Tensor) or found.shape != y.shape:
            what = [*found.shape] if isinstance(found, Tensor) else f"a `{type(found).__name__}`"
            raise TypeError(
                f"Argument `activation` should return a tensor {[*y.shape]}, as it takes. Found"
                f" {what}: wrap it in a module that returns its output only, and keeps no state."
            )
        return found

    def _changed(self, others: Mapping[str, Any], factors: bool) -> Callable[..., Any]:
        """Returns a function of a step, whose result is its changes and what passes on."""
        rule: Any = self.rule
        if self._learned:
            rule = dataclasses.replace(rule, **{k: getattr(self, k) for k in self._learned})

        def ask(signals: Any, weight: Tensor, own: Any, carried: Any) -> Any:
            inputs = {**others, **own}
            return change_and_left(rule, signals, weight, self.dt, inputs, carried, factors=factors)

        # what a rule reads of a sample, or averages over samples, belongs to that sample
        return ask if is_named(rule, self.dt) else _by_sample(ask)


class _Dense:
    """Fast weights of each sample, ``[B, out, in]``."""

    def __init__(self, module: FastWeights, before: Tensor | None, steps: Tensor) -> None:
        self.alpha, self.decay, slow = module.alpha, module.decay, module.connection.weight
        zero = slow.new_zeros((), dtype=torch.promote_types(slow.dtype, torch.float32))
        self.slow = self.weight = slow.expand(steps.shape[1], *slow.shape)
        self.fast = zero.expand(self.slow.shape) if before is None else before
        self.at_rest, self.factors = before is None, list[Tensor]()

    def transmit(self, x: Tensor) -> Tensor:
        """Returns what the fast weights add to the output of an input."""
        share = self.alpha * self.fast
        self.weight = self.slow + share
        return torch.einsum("boi,bi->bo", share, x.to(share.dtype))

    def add(self, change: Tensor) -> None:
        """Adds the change of a step."""
        self.fast = self.decay * self.fast + change

    def total(self) -> Tensor:
        """Returns the fast weights."""
        return self.fast


class _Factors(_Dense):
    """Fast weights before some steps, and the factors of the change in each since."""

    def transmit(self, x: Tensor) -> Tensor:
        """Returns what the fast weights add to the output of an input."""
        y, x = x.new_zeros(()), x.to(self.fast.dtype)
        if not self.at_rest:
            y = self.decay ** len(self.factors) * torch.einsum("boi,bi->bo", self.fast, x)
        if self.factors:
            left, post, pre = self._since()
            alike = torch.einsum("sbki,bi->sbk", pre, x.to(pre.dtype)) * left[:, None, None]
            y = y + torch.einsum("sbk,sbko->bo", alike, post)
        return self.alpha * y

    def add(self, change: Tensor) -> None:
        """Keeps the factors of a step."""
        self.factors.append(change)

    def total(self) -> Tensor:
        """Returns the fast weights."""
        left, post, pre = self._since()
        change = torch.einsum("sbko,sbki->boi", post * left[:, None, None, None], pre)
        return self.decay ** len(self.factors) * self.fast + change

    def _since(self) -> tuple[Tensor, ...]:
        """Returns what is left of each step's change ``[S]``, and the factors of all steps."""
        every = torch.stack(self.factors)
        ages = torch.arange(len(every) - 1, -1, -1, device=every.device)
        left = torch.as_tensor(self.decay, dtype=every.dtype, device=every.device) ** ages
        return left, *every.split([*self.slow.shape[1:]], -1)


def _by_sample(changed: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function of all samples that calls another for each, as if it were the only one."""

    def one(signals: Any, weight: Tensor, own: Any, carried: Any) -> Any:
        steps = ({k: v.unsqueeze(1) for k, v in each.items()} for each in (signals, own))
        change, left = changed(next(steps), weight, next(steps), carried)
        return change[0], left

    return torch.func.vmap(one, in_dims=(1, 0, 1, 0))
