"""What a compiled loop needs of a cell that it trains, and what it leaves there."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import Parameter, signature
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from lightning_accum._checks import quoted
from lightning_accum._compat.torch import hook_count, is_traced
from lightning_accum.cells.state import CellState
from lightning_accum.engine.state import StateKey, trace_key
from lightning_accum.rules.base import Rule
from lightning_accum.rules.reward_modulated import eligibility_key
from lightning_accum.sparse.neurons import PairSTDP
from lightning_accum.updates import Accumulator, Clamp, Updater


@dataclass(frozen=True)
class Learner:
    """A cell of a rule that suits a loop."""

    name: str
    state: CellState
    updater: Updater
    pairs: PairSTDP
    limits: tuple[float, float]  # of the weight

    @cached_property
    def _traces(self) -> dict[str, tuple[StateKey, bool]]:
        """The keys of what passes on, by name, and whether the rule uses it."""
        pairs = self.pairs
        mode, tc = "nearest" if pairs.nearest else "cumulative", pairs.tc_eligibility
        rates = pairs.rate_post, pairs.rate_pre
        pre = trace_key("pre", pairs.decay_pre, mode), any((tc, rates[0], pairs.triplet_post))
        post = trace_key("post", pairs.decay_post, mode), any((tc, rates[1], pairs.triplet_pre))
        keys = {"pre": pre, "post": post}
        for name, slow in ("pre", pairs.slow_pre), ("post", pairs.slow_post):
            if slow is not None:
                keys[f"{name}_slow"] = trace_key(name, slow, mode), True
        if tc is not None:
            for part, used in ("pos", max(rates) >= 0), ("neg", min(rates) < 0):
                keys[part] = eligibility_key("weight", part, tc), used
        return keys

    def left(self, batch: int, inputs: int, outputs: int, like: Tensor) -> dict[str, Tensor]:
        """Returns what the last window left, by name; zeros for nothing, or of other samples."""
        sides, found = {"pre": (batch, inputs), "post": (batch, outputs)}, {}
        for name, (key, _) in self._traces.items():
            value = self.state.carried.get(key)
            shape = sides.get(name.removesuffix("_slow"), (batch, outputs, inputs))
            fits = value is not None and value.shape == shape
            found[name] = value if value is not None and fits else like.new_zeros(shape)
        return found

    def finish(
        self,
        rule: Rule,
        pre: Tensor,
        post: Tensor,
        given: Mapping[str, Any],
        left: Mapping[str, Any],
    ) -> None:
        """Tells of changes that were made, and keeps what is left for the next window."""
        state = self.state
        self.updater.events.applied(self.updater, ("weight",), {})
        rule.events.evaluated(self.name, pre, post, given)
        rule.unread = []
        state.carried = {key: left[name] for name, (key, used) in self._traces.items() if used}
        if state.loaded:
            state.check_loaded(state.carried, self.name)
        state.samples["weight"] = state.samples.get("weight", 0) + post.shape[:2].numel()


def learner_of(rule: Rule, name: str, batch: int) -> Learner | str:
    """Returns what a loop needs of a cell of the rule, or why it does not suit."""
    (cell, _), state, updater = rule.get_cell(name), rule.state_of(name), rule.updater_of(name)
    h, weight = state.hyperparameters, cell.connection.weight
    pairs = rule.loop_constants(h, batch)
    if not rule.reduction_of(name).adds:
        return (
            "the loop knows no reduction but the sum and the mean over the batch, and"
            f" `batch_reduction = {h.batch_reduction!r}`"
        )
    if pairs is None:
        return f"the loop knows no `{type(rule).__name__}`{_option(rule, vars(h), batch)}"
    if h.params != ("weight",):
        return "the loop changes the weight only"
    pending: Accumulator = getattr(updater, "weight")  # noqa: B009
    constraints = updater.constraints_of("weight")
    if [type(fn) for fn in constraints] not in ([], [Clamp]):
        return "the loop knows no constraint but `Clamp`"
    if type(weight) is not nn.Parameter or not weight.is_cpu:
        return "the loop changes a parameter on the CPU"
    if hook_count(updater) or not pending.empty:
        return "the updater has hooks, or changes that are not applied"
    low, high = -math.inf, math.inf
    for fn in constraints:
        least, most = getattr(fn, "weight_limits")  # noqa: B009
        low, high = low if least is None else least, high if most is None else most
    least, most = weight.aminmax() if weight.numel() else (low, high)
    if not (least >= low and most <= high):  # nor are they if one is not a number
        return "weights are outside the limits of `Clamp`, or not numbers"
    if pending.rooms is None:
        return "the loop knows the bounds of this package only"
    if any(pending.rooms):
        if pairs.rise or pairs.fall:
            return "the loop knows no bound on changes that depend on the weight already"
        pairs = pairs._replace(rise=pending.rooms[0], fall=pending.rooms[1])
    return Learner(name, state, updater, pairs, (low, high))


def _option(rule: Rule, h: Mapping[str, Any], batch: int) -> str:
    """Returns the option, with its value, without which there would be a loop, if there is one."""
    known = signature(type(rule)).parameters
    for name, value in h.items():
        default = known[name].default if name in known else value
        other = SimpleNamespace(**{**h, name: default})
        if default is Parameter.empty or value == default:
            continue
        if rule.loop_constants(other, batch) is not None:  # type: ignore[arg-type]
            return f" with `{name} = {value!r}`"
    rates = [name for name in h if name.startswith("lr_")]
    zero = bool(rates) and not any(h[name] for name in rates)
    return f" with {quoted(f'{name} = 0' for name in rates)}" if zero else ""


WATCHED = (
    "something else watches the layer, or steps are recorded that were not evaluated, or modules"
    " are in evaluation mode"
)


def only_rule_watches(rule: Rule, modules: Sequence[nn.Module]) -> bool:
    """Returns whether modules train, only the rule watches, and no recorded step is waiting."""
    own = list(rule.monitors)
    return (
        rule.recording
        and all(monitor.registered for monitor in own)
        and all(module.training for module in modules)
        and sum(map(hook_count, modules)) == len(own)
        and not any(rule.recorded_steps(name) for name, _ in rule.named_cells)
        and not (torch.is_autocast_enabled("cpu") or is_traced())
    )
