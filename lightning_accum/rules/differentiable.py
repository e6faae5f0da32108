"""The change that a rule makes of a weight, as a function that torch differentiates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from lightning_accum._checks import check_choice, check_shape, check_tensors, check_type, quoted
from lightning_accum._compat.torch_internals import values_under_vmap
from lightning_accum.engine.activity_window import Outline, Window
from lightning_accum.engine.neuromodulator import modulators_of
from lightning_accum.engine.rule import Rule
from lightning_accum.engine.rule_inputs import Given, Recorded, Recording, given_value
from lightning_accum.engine.signal import NeedsData, Signal, values_of
from lightning_accum.engine.term_operands import check_sides
from lightning_accum.engine.terms import Change, Term, listed
from lightning_accum.functional.traces import TraceMode, decay_factor
from lightning_accum.rules.reward_modulation import Modulated, reward_of


@dataclass(frozen=True)
class _Matrix:
    """A weight, as a window has it: what a rule asks of it, and how its products are summed."""

    summed: bool  # over samples, too
    alone: bool  # so that nothing passes on, and rules may share products
    shape: torch.Size  # [out, in]
    is_matrix = True


def change_of(
    rule: Rule,
    pre: Tensor,
    post: Tensor,
    weight: Tensor,
    *,
    dt: float = 1.0,
    batch_reduction: Literal["sum", "mean"] | None = None,
    states: Mapping[str, Tensor] | None = None,
    **inputs: Any,
) -> Tensor:
    r"""Returns the change that a rule makes of each sample's weight, with a graph.

    .. math:: \Delta w[b] = \sum_k \text{rate}_k \, L_k\left(\sum_t \mathrm{post}_k[t, b] \otimes
              \mathrm{pre}_k[t, b]\right)

    Its mean over the samples is what a :class:`~lightning_accum.RuleTrainer` accumulates of a first
    window of a ``Linear``, ``pos - neg``. It is differentiable in activity, weight, inputs and the
    rule's rates and time constants, which may be tensors here: scalars, or a rate for each synapse,
    ``[out, in]``. Rules on spikes take real values too: they count as graded spikes. It works under
    :mod:`torch.func`; under ``vmap`` rules share products, unless these are of two traces.

    Args:
        rule: whose terms are products, at once or modulated by a reward.
        pre: presynaptic activity, ``[T, B, in]``.
        post: postsynaptic activity, ``[T, B, out]``.
        weight: ``[out, in]``, which is constant in the window.
        dt: step, in ms.
        batch_reduction: ``"sum"`` or ``"mean"`` over samples, in less memory and time than that
            of the result; none when ``None``.
        states: other signals that the rule records, ``[T, B, out]``, by name.
        **inputs: what a trainer's call takes for the rule, such as a ``reward`` or an ``error``.

    Returns:
        ``[B, out, in]``, or ``[out, in]`` with a ``batch_reduction``.

    Raises:
        TypeError: if a change of the rule is not a product.
        ValueError: if shapes do not fit.

    Example:
        >>> import torch
        >>> from lightning_accum import Hebb, change_of
        >>> lr = torch.tensor(0.5, requires_grad=True)
        >>> pre, post = torch.ones(3, 1, 2), torch.ones(3, 1, 1)
        >>> change = change_of(Hebb(lr), pre, post, torch.zeros(1, 2))
        >>> change.tolist()
        [[[1.5, 1.5]]]
        >>> torch.autograd.grad(change.sum(), lr)
        (tensor(6.),)
    """
    check_type(isinstance(rule, Rule), "rule", rule, "a rule, such as `STDP(0.01, -0.01)`")
    check_tensors(pre=pre, post=post, weight=weight)
    lead, ends = [*pre.shape[:2]], [*post.shape[-1:], *pre.shape[-1:]]
    mend = "give all steps of the same samples, as `x[None]` for one step"
    check_shape(pre.ndim == 3, "pre", pre, "the shape [T, B, in]", mend)
    fits = post.ndim == 3 and [*post.shape[:2]] == lead
    check_shape(fits, "post", post, f"the shape [T, B, out], with T and B of `pre`, {lead}", mend)
    mend = "for a convolution, `unfold` its input, and give places as samples"
    mend = mend if weight.ndim > 2 else "give that from `pre` to `post`"
    check_shape([*weight.shape] == ends, "weight", weight, f"the shape [out, in] = {ends}", mend)
    if batch_reduction is not None:
        check_choice("batch_reduction", batch_reduction, ("sum", "mean"))
    signals, summed = {"pre": pre, "post": post, **(states or {})}, batch_reduction is not None
    change = change_and_left(rule, signals, weight, dt, inputs, summed=summed)[0]
    return change / max(1, pre.shape[1]) if batch_reduction == "mean" else change


def change_and_left(
    rule: Rule,
    signals: Mapping[str, Tensor],
    weight: Tensor,
    dt: float,
    inputs: Mapping[str, Any],
    carried: Mapping[str, Tensor] | None = None,
    summed: bool = False,
    factors: bool = False,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Returns the change of each sample, or their sum or factors, and what passes on."""
    memory, given = _Passed(carried or {}, {}), Given(inputs, direct=True)
    matrix, post = _Matrix(summed, carried is None, weight.shape[-2:]), signals["post"]
    dtype = torch.promote_types(weight.dtype, torch.float32)
    sources = {name: Graphed(each, dt, name, memory, dtype) for name, each in signals.items()}
    levels = {}
    for name, each in modulators_of(rule).items():
        released = _released(given.every.get(name), post, name, dtype)
        source = Graphed(released, dt, f"released {name}", memory, dtype)
        trace = source.values(decay_factor(each.tc, dt))
        levels[name] = each.baseline + each.gain * trace
    recorded = {name: Recorded(each) for name, each in signals.items()}
    prepared = rule.prepare(Recording(recorded, dt, -1, len(post), {}, given, True, levels))
    window = (_Unweighted if factors else Window)(
        sources, "weight", dt, weight, given, 0, len(post), matrix, {}, {}, levels, prepared
    )
    parts = _parts(rule, window)
    change = _factors(parts) if factors else _changed(parts, window, memory)
    if given.unread:
        raise TypeError(
            f"The inputs of `{type(rule).__name__}` should be those that it reads. Found"
            f" {quoted(given.unread)}, which it does not: leave it out, or mend its name."
        )
    return change, memory.left


def _parts(rule: Rule, window: Window) -> Sequence[Change]:
    """Returns the changes that a rule makes, whose sides are checked."""
    name = type(rule).__name__
    try:
        parts = listed(rule.terms(window), name, numbers=False)
    except RuntimeError as error:
        if not any(of in str(error) for of in ("vmap over calling .item()", "data-dependent")):
            raise
        raise TypeError(
            f"`terms` of `{name}` should take the same steps whatever the activity. Found that it"
            " branches on values of activity, or reads one in Python: use `torch.where`."
        ) from error
    terms = [t for each in parts for t in getattr(each, "terms", [each]) if isinstance(t, Term)]
    check_sides(name, [(t.post, t.pre) for t in terms], window.vjp.shape)
    return parts


class _Unweighted(Window):
    """A window whose weight is not known."""

    def __getattribute__(self, name: str) -> Any:
        if name == "param":
            raise NeedsData
        return super().__getattribute__(name)


def is_named(rule: Rule, dt: float) -> bool:
    """Returns whether the terms of a rule read no numbers, so that no sample sees another."""
    with suppress(NeedsData, Exception):  # an error is raised again with data
        outline = Outline("weight", dt, -1, [*rule.states()])
        return all(each.is_named for each in listed(rule.terms(outline), "", numbers=False))
    return False


class _Passed(NamedTuple):
    """Traces and eligibility of the previous window, and those left for the next one, by name."""

    carried: Mapping[str, Tensor]
    left: dict[str, Tensor]


class Graphed:
    """Activity of one side whose traces have a graph; signals of terms are of it."""

    def __init__(
        self, activity: Tensor, dt: float, side: str, memory: _Passed, dtype: torch.dtype
    ) -> None:
        self.activity, self.dt, self.side, self.unit_dim = activity, dt, side, -1
        self.shape, self.device = activity.shape, activity.device
        self.dtype = torch.promote_types(activity.dtype, dtype)
        self._memory = memory

    def values(
        self,
        decay: float | Tensor | None = None,
        mode: TraceMode = "cumulative",
        shifted: bool = False,
    ) -> Tensor:
        """Returns the activity as numbers, or a trace of it, which may be that before each step."""
        numbers = self.activity.to(self.dtype)
        if decay is None:
            return numbers
        values, first = self._trace(numbers, decay, mode)
        return decay * torch.cat((first.unsqueeze(0), values[:-1])) if shifted else values

    def _trace(
        self, numbers: Tensor, decay: float | Tensor, mode: TraceMode, what: str = ""
    ) -> tuple[Tensor, Tensor]:
        """Returns the trace of numbers, and its value before the first step."""
        if isinstance(decay, Tensor):  # which is of one shape with its time constant
            mend = "give a number that counts for all synapses"
            check_shape(decay.ndim == 0, "tc", decay, "the shape []", mend)
        of = f"{len(self._memory.left)}" if isinstance(decay, Tensor) else repr(decay)
        key = f"{self.side} {what}{mode} trace {of}"
        last = first = self._memory.carried.get(key, numbers.new_zeros(numbers.shape[1:]))
        values = []
        for now in numbers.unbind(0):
            kept = last if mode == "cumulative" else torch.where(now != 0, 0.0, last)
            last = now + decay * kept
            values.append(last)
        self._memory.left[key] = last
        return torch.stack(values) if values else numbers, first

    def ones(self) -> Graphed:
        """Returns ones of this shape."""
        return self.derived(f"{self.side} ones", torch.ones_like(self.values()))

    def constant_input(self, vjp: Any, pre: Graphed) -> Graphed:
        """Returns an input that is always one."""
        return pre.ones()

    def derived(self, name: str, values: Tensor) -> Graphed:
        """Returns values that are computed of this, whose traces pass on together with its own."""
        return Graphed(values, self.dt, name, self._memory, self.dtype)

    def age(self) -> Tensor:
        """Raises a ``TypeError``: time since a spike has no derivative."""
        raise _not_products("ages of spikes")

    def average(self, decay: float | Tensor, power: int) -> Tensor:
        """Returns the running average over samples and all earlier steps, of every neuron."""
        mean = (self.values() ** power).mean(1, keepdim=True)
        what = f"average of power {power}, "
        total, _ = self._trace(mean, decay, "cumulative", f"{what}sum, ")
        ones = torch.ones_like(mean[..., :1])
        return total / self._trace(ones, decay, "cumulative", f"{what}weight, ")[0]


def _released(given: object, post: Tensor, name: str, dtype: torch.dtype) -> Tensor:
    """Returns what a call released of a neuromodulator, ``[T, B]``."""
    zeros = torch.zeros_like(post[..., 0], dtype=dtype)
    given = 0.0 if given is None else given
    value = torch.as_tensor(given_value(name, given, len(post), post.shape[1], True), dtype=dtype)
    return value if value.ndim == 2 else torch.cat((zeros[1:], (zeros[0] + value).unsqueeze(0)))


def _changed(parts: Sequence[Change], window: Window, memory: _Passed) -> Tensor:
    """Returns the sum of changes, ``[B, out, in]``, or ``[out, in]`` if it is over samples too."""
    weight, dtype = window.param, torch.promote_types(window.param.dtype, torch.float32)
    terms = [each for each in parts if isinstance(each, Term)]
    change = _total(terms, window) if terms else weight.new_zeros((), dtype=dtype)
    for part in parts:
        if isinstance(part, Modulated):
            change = change + _modulated(part, window, memory)
        elif not isinstance(part, Term):
            raise _not_products(f"`{type(part).__name__}`")
    return change.expand(*window.post.shape[1 : 1 if window.vjp.summed else 2], *window.vjp.shape)


def _factors(parts: Sequence[Change]) -> Tensor:
    """Returns the factors of changes in one step, ``[B, terms, out + in]``."""
    terms = [each for each in parts if isinstance(each, Term)]
    one = all((t.transform or t.room) is None and not getattr(t.rate, "ndim", 0) for t in terms)
    if not (terms and one and len(terms) == len(parts)):  # one rate for all synapses
        raise NeedsData
    every = [(t.rate * values_of(t.post)[0], values_of(t.pre)[0]) for t in terms]
    return torch.stack([torch.cat(sides, -1) for sides in every], 1)


def _not_products(found: str) -> TypeError:
    return TypeError(
        "The changes of a rule should be products of activity and its traces to be differentiated."
        f" Found {found}: write it as terms of these, or take a `RuleTrainer`."
    )


def _total(terms: Sequence[Term], window: Window, factor: Tensor | None = None) -> Tensor:
    """Returns the sum of rates times products, whose steps and samples a factor multiplies."""
    totals: list[Tensor] = []
    products: list[tuple[Tensor, Tensor]] = []
    for term in terms:
        shares, each = _shared(term, window, factor)
        rate = torch.as_tensor(term.rate, dtype=each.dtype, device=each.device)
        if rate.ndim:  # of each synapse
            totals.append(rate * _mixed(shares, each))
        else:
            products.append((rate * shares, each))
    if products:
        totals.append(_mixed(*map(torch.cat, zip(*products, strict=True))))
    return sum(totals[1:], totals[0])


def _mixed(shares: Tensor, products: Tensor) -> Tensor:
    """Returns a weighted sum of products ``[k, ...]``, in one multiplication for all rules."""
    return (shares @ products.flatten(1)).view(products.shape[1:])


def _shared(term: Term, window: Window, factor: Tensor | None) -> tuple[Tensor, Tensor]:
    """Returns shares ``[k]`` of products ``[k, ...]``, whose sum is the product of a term."""
    # If `vmap` maps over the time constant of only one trace, all rules share a few products.
    sides: dict[str, Any] = {"post": term.post, "pre": term.pre}
    for name, trace in sides.items() if window.vjp.alone else ():
        every = values_under_vmap(trace.decay) if isinstance(trace, Signal) else None
        if every is None:
            continue
        others = (factor, trace.activity, trace.weights, sides["pre" if name == "post" else "post"])
        if any(values_under_vmap(values_of(each)) is not None for each in others):
            continue
        few, shares = _few(trace.decay, every, len(window.post.activity), trace.dtype)
        if not 0 < 2 * len(few) < every.numel():
            continue

        def product(decay: Any, side: str = name, trace: Any = trace) -> Tensor:
            signal: Any = Signal(trace.source, decay, trace.mode, trace.weights, trace.shifted)
            return _product(replace(term, **{side: signal}), window, factor)

        products = torch.func.vmap(product)(few.to(trace.dtype))
        return shares.to(products.dtype), products
    only = _product(term, window, factor).unsqueeze(0)
    return only.new_ones(1), only


def _few(decay: Tensor, every: Tensor, steps: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Returns a few decays, and the shares of their traces in that of a decay."""
    # For a decay a, a^s = Σ_k c_k(a) a_k^s for all 0 <= s < T. The few are chosen for a range of
    # decays, so that shares have exact derivatives by a: from many within it, always the one whose
    # trace differs most from those chosen before.
    lags = torch.arange(steps, dtype=torch.float64, device=every.device)
    speeds = -every.detach().double().log()
    low, high = (speeds.min() / 1.5).log(), (speeds.max() * 1.5).log()
    places = 0.5 - 0.5 * torch.linspace(0, torch.pi, 96, dtype=torch.float64).cos().to(lags.device)
    many = torch.exp(-torch.exp(low + (high - low) * places))
    kernels = rest = many.unsqueeze(1) ** lags
    axes, chosen = kernels[:0], list[int]()
    least = (1e-15 if dtype == torch.float64 else 1e-9) * kernels.norm(dim=1).max()
    while len(chosen) < steps and (size := rest.norm(dim=1)).max() > least:
        chosen.append(int(size.argmax()))
        axis = rest[chosen[-1]] / size.max()
        axis = axis - (axis @ axes.T) @ axes  # of rounding
        axes = torch.cat((axes, (axis / axis.norm()).unsqueeze(0)))
        rest = rest - torch.outer(rest @ axes[-1], axes[-1])
    own, square = (decay.double() ** lags) @ axes.T, (kernels[chosen] @ axes.T).tril()
    shares = torch.linalg.solve_triangular(square, own.unsqueeze(0), upper=False, left=False)
    return many[chosen], shares.squeeze(0)


def _product(term: Term, window: Window, factor: Tensor | None = None) -> Tensor:
    """Returns the product of a term without its rate."""
    post, pre = values_of(term.post), values_of(term.pre)
    dtype = torch.promote_types(window.post.dtype, torch.promote_types(post.dtype, pre.dtype))
    post = post if factor is None else post * factor.unsqueeze(-1)
    summed, transform = window.vjp.summed, term.transform
    product = torch.einsum(f"tbo,tbi->{'oi' if summed else 'boi'}", post.to(dtype), pre.to(dtype))
    if transform is not None:
        product = transform(product) if summed else torch.func.vmap(transform)(product)
    if term.room is not None:
        up, down = (term.room.bounded(window.param, product, upper) for upper in (True, False))
        product = torch.where(torch.as_tensor(term.rate) > 0, up, down)
    return product


def _modulated(change: Modulated, window: Window, memory: _Passed) -> Tensor:
    """Returns the change of terms times a reward, at once or by their eligibility."""
    tc, terms, lead = change.tc, change.terms, window.post.shape[:2]
    reward = torch.as_tensor(reward_of(window, change.reward, change.modulator))
    reward = reward.to(window.post.source.device, window.post.dtype).expand(lead)
    if tc is None:
        return _total(terms, window, reward)
    decay, steps = decay_factor(tc, window.dt), range(len(reward))
    before = memory.carried.get(key := f"eligibility {len(memory.left)}")
    # the reward to come at each step, and what is left of a step's change at the end
    to_come = list(reward.unbind(0))
    for t in reversed(steps[:-1]):
        to_come[t] = to_come[t] + decay * to_come[t + 1]
    total = _total(terms, window, torch.stack(to_come) * (window.dt / tc))
    if window.vjp.alone:
        return total
    ago = torch.arange(len(reward) - 1, -1, -1, dtype=reward.dtype, device=reward.device)
    left = (decay**ago).unsqueeze(-1).expand_as(reward) / tc
    memory.left[key] = _total(terms, window, left)
    if before is not None:
        total = total + (to_come[0] * decay * window.dt)[:, None, None] * before
        memory.left[key] = memory.left[key] + decay ** len(reward) * before
    return total
