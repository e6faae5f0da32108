"""Advice: lines of the summary on cells that learn, and whose numbers are unusual."""

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from lightning_accum._checks import is_number, quoted
from lightning_accum.functional.dtypes import widened
from lightning_accum.health.chain import silence
from lightning_accum.health.facts import CellFacts, Context, ParamFacts, first, number, sample_of
from lightning_accum.health.rule_facts import has_both_signs, held_rate, rule_of
from lightning_accum.nn.linear import step_of_delays

_BUSY = 0.5  # share of steps with a spike
_ENOUGH = 1000  # values from which a share is computed
_NEGATIVE = 0.1  # share of outputs
_MANY, _FEW = 16, 3  # windows without a negative value of an input; windows or updates of one kind
_AWAY = 1.25  # times as far from the target at the end of a fit as at its beginning
_SIGMA = 3.0  # times the deviation of counts that are as random as a Poisson process
_SPARSE, _FACTOR = 1.0, 100.0  # Hz, and times the target, of a target in another unit
_GROWN, _STILL = 10.0, 1.002  # times the norm when the fit began, and an epoch before
_OUTSIDE = 0.1  # share of weights outside the range that the rule assumes
_NARROW = 0.01  # share of that range in which all weights are
_NEAR, _SLOW = 1e-4, 1e-6  # distance of a whole fit, if it is also less than that for each update
_LOSERS = 0.1  # share of neurons that never won
_ALIKE = 0.95  # share of the weights' variance that all neurons have in common
_EQUAL = 1e-3  # spread of weights that are practically equal, relative to the largest
_IDLE = 8  # batches in a row
_MOST = 0.9  # share of silent neurons, or of weights at a limit
_LARGE = 0.1  # ratio of an update to its weights
_TRACES = frozenset(
    {"tc_pre", "tc_post", "tc_potential_pre", "tc_potential_post", "tc"}
    | {f"tc_{side}_{speed}" for side in ("pre", "post") for speed in ("fast", "slow")}
)
_Settings = Mapping[str, object]  # the fields of a cell's rule, and its options
_SIGNALS = {
    "reward": "a reward that is always the same does not tell good from bad; look at how"
    " it is computed, or take a rule without reward",
    "error": "weights learn nothing from it; look at how it is computed",
}
_NEVER_NEGATIVE = {
    "reward": "on average the rule then learns what happens, whether it is good or bad; subtract"
    " the reward that was expected, as a `RewardBaseline` in training mode does, unless the reward"
    " only says when to learn",
    "error": "outputs can then only fall; it should be the gradient of the loss by the outputs, as"
    " `y - target` is, and not its size, its square, or a target or an output by itself",
}


def advice(c: CellFacts, x: Context) -> Iterator[str]:
    """Yields all lines on a cell; waits for the device."""
    params = c.params.values()
    finite = [(p, p.now.sample) for p in params if p.now is not None and p.now.finite]
    for p, _ in finite:
        yield from growth(c, p)  # then neurons spike in most steps, and so on
    yield from stopped(c, x)
    yield from busy(c)
    yield from negative(c, x)
    yield from single_steps(c)
    yield from off_target(c)
    yield from inputs(c)
    for p, value in finite:
        yield from began_beyond(c, p)
        yield from out_of_range(c, p, value, x)
        yield from unchanged(c, p)
        yield from hardly_moved(c, p)
        yield from same_steps(c, p, value, x)
        yield from never_won(c, p)
        yield from alike(c, p, x)


# ---------------------------------------------------------------------- activity
def stopped(c: CellFacts, x: Context) -> Iterator[str]:
    """Finds cells that recorded nothing, or nothing more, and neurons that fell silent."""
    if x.learns and x.asleep and not c.windows:
        yield (
            f"`{c.name}` recorded nothing in {x.calls(c.empty)}, because its modules are in"
            " evaluation mode: call `train()` on them if they should learn."
        )
    elif c.windows and c.empty >= _IDLE and c.empty >= c.windows:
        yield (
            f"`{c.name}` recorded nothing in the last {x.calls(c.empty)}, after {c.windows}"
            " windows: look for what has put its modules in evaluation mode, or calls others."
        )
    since = c.silent_since() if c.spikes[1] else None
    if since is not None and 2 * since <= c.windows:
        yield silence(c)


def busy(c: CellFacts) -> Iterator[str]:
    """Finds inputs or neurons that spike in most steps, so that spike times tell little."""
    if not c.looks or sum(each.post_of for each in c.looks) < _ENOUGH:
        return
    of_input, of_neurons = c.share("pre") or 0.0, c.share("post") or 0.0
    so = "of the steps, so that spike times tell little"
    if c.spikes[0] and of_input > _BUSY:
        yield (
            f"The input of `{c.name}` spikes in {of_input:.0%} {so}: lower its rate, or encode"
            " values that stay the same for many steps as spikes (`PoissonEncoder`)."
        )
    if c.spikes[1] and of_neurons > _BUSY:
        yield (
            f"The neurons of `{c.name}` spike in {of_neurons:.0%} {so}: raise their threshold, or"
            " lower the rate of the input or the weights."
        )


def negative(c: CellFacts, x: Context) -> Iterator[str]:
    """Finds negative outputs under a rule that assumes none."""
    below = c.share("below") or 0.0
    if below >= _NEGATIVE and getattr(rule_of(x.trainer), "rectified", False):
        yield (
            f"{below:.0%} of the outputs of `{c.name}` are negative, and the rule assumes none: end"
            " the layer with a function such as `nn.ReLU()` or `nn.Sigmoid()`."
        )


def single_steps(c: CellFacts) -> Iterator[str]:
    """Finds windows of one step, between which no trace passes."""
    if c.longest == 1 and not c.joined and c.windows > _FEW and not _TRACES.isdisjoint(c.h):
        how = (
            "Modules get time as their first dimension (`time_dim=0`), which had one entry: call"
            " `x.transpose(0, 1)` if a loader gives the batch first,"
            if c.h.get("time_dim") == 0
            else "Run all steps of a sample in one batch, pass `time_dim=0` to it if modules"
            " are called once per sequence,"
        )
        yield (
            f"Every window of `{c.name}` was a single step, and traces begin at zero in each"
            f" window: only spikes of the same step were paired. {how} or pass `carry=True` if"
            " batches are pieces of one stream."
        )


def off_target(c: CellFacts) -> Iterator[str]:
    """Finds a rate that moves away from the rule's target, or a target in another unit."""
    target, dt = held_rate(c.h), c.h.get("dt")
    if target is None or not is_number(dt) or not c.spikes[1] or len(c.looks) < 6:
        return
    hz, thirds = 1000.0 / dt, c.thirds()
    begin, middle, end = (hz * n / size for n, size in thirds)
    noise = hz * math.sqrt(sum(n / size**2 for n, size in (thirds[0], thirds[-1])))
    went = f"The neurons of `{c.name}` fired at {begin:.3g} Hz at first and at {end:.3g} Hz at last"
    begun, passed, left = (abs(rate - target) for rate in (begin, middle, end))
    reached = target / 3 < end < target * 3
    per_step = 0 < target < min(_SPARSE, begin / _FACTOR) and not reached
    away = begun < passed and _AWAY * begun < left and abs(end - begin) > _SIGMA * noise
    if per_step:
        yield (
            f"{went}, and their target is {target:g} Hz: give it in spikes per second, not per ms"
            " or per step."
        )
    elif away:
        yield (
            f"{went}, away from their target of {target:g} Hz: look at the sign of the rate, which"
            " depends on whether the connection excites or inhibits, and whether its output is"
            " subtracted, as `InhibitorySTDP` assumes; or look at what else moves their rate."
        )


def inputs(c: CellFacts) -> Iterator[str]:
    """Finds a reward or an error that is always the same, or never negative."""
    for name in c.inputs.keys() & _SIGNALS.keys():
        count, low, high = c.extremes(name)
        if low == high and count >= _FEW:
            found = f"was {low:g}, in all {count} windows that were looked at"
            yield f"Each value of `{name}` {found}: {_SIGNALS[name]}."
        elif low >= 0 and low != high and count >= _MANY:
            found = f"No value of `{name}` was below 0, in {count} windows that were looked at"
            yield f"{found}: {_NEVER_NEGATIVE[name]}."


# ---------------------------------------------------------------------- measured updates
def of_updates(place: str, u: Mapping[str, float], rates: str, h: _Settings) -> Iterator[str]:
    """Finds updates that are too large, and weights at a limit."""
    # Weights that began near zero had large ratios at first. What a bias should be compared with is
    # the input of its neurons: its own norm may well stay near zero.
    sign, much = sign_first(h), u["update_norm"] >= _LARGE * u["weight_norm"] * u["updates"]
    if u["ratio"] >= _LARGE and much and not place.endswith(".bias"):
        yield f"An update changes `{place}` by {u['ratio']:.0%}, on average: {sign}lower {rates}."
    for side, mend in (("lower", "weaken depression"), ("upper", f"{sign}weaken potentiation")):
        if (share := u[f"at_{side}"]) >= _MOST:
            yield (
                f"{share:.0%} of the weights of `{place}` sit at the {side} limit: {mend}, or bound"
                ' it softly, as with `fullbound("power", 1.0, 0.0)`.'
            )


def one_sided(place: str, u: Mapping[str, float], h: _Settings) -> Iterator[str]:
    """Finds a part that was always zero, although the rule has terms of it."""
    up, down = u["pos_norm"] > 0, u["neg_norm"] > 0
    if has_both_signs(h) and u["measured"] >= _FEW and up != down:
        never, only = ("depression", "potentiated") if up else ("potentiation", "depressed")
        yield (
            f"The rule only {only} `{place}` in the {u['measured']:.0f} updates that were measured,"
            f" of {u['updates']:.0f}, although it has terms of {never}: look at its thresholds, at"
            " its reward or its error, and at the activity of both sides."
        )


def silent(cell: str, share: float, batches: int) -> Iterator[str]:
    """Finds neurons that were silent in the latest epoch."""
    if share >= _MOST:
        yield (
            f"{share:.0%} of the neurons of `{cell}` did not fire in the {batches} batches of the"
            " last epoch that were looked at: lower their threshold, or raise the rate of the input"
            " or the weights."
        )


# ---------------------------------------------------------------------- weights
def began_beyond(c: CellFacts, p: ParamFacts) -> Iterator[str]:
    """Finds weights that the limits have moved, because they began beyond them."""
    low, high = p.updater.limits(p.name)
    if p.first is None or not p.applied or (low is None and high is None):
        return
    began = p.first.sample
    share = float((began != began.clamp(low, high)).float().mean())
    if share >= _OUTSIDE:
        known = {"at least": low, "at most": high}
        limits = " and ".join(f"{k} {v:g}" for k, v in known.items() if v is not None)
        yield (
            f"{share:.0%} of the weights of `{c.name}.{p.name}` began beyond the limits of its"
            f" updater, {limits}, so that the first update moved them there: begin with weights"
            " within the limits, or correct these (`Clamp(1.0)` is a lower limit, `Clamp(max=1.0)`"
            " an upper one)."
        )


def growth(c: CellFacts, p: ParamFacts) -> Iterator[str]:
    """Finds weights that grow without bound."""
    bounded = p.updater.limits(p.name)[1] is not None or bool(
        p.updater.changes.constraints.of(p.name)
    )
    if p.first is None or p.now is None or bounded:
        return
    began, now = float(p.first.norm), float(p.now.norm)
    before = float(p.norms[0]) if len(p.norms) > 1 else began
    if not began or now < _GROWN * began or now <= _STILL * before:
        return
    high = any(float(each) > 1 for each in p.ratios)
    mend = (
        f"lower {quoted(c.rates) or 'the rates'}"
        if high
        else "bound the weights (`fullbound`, `Clamp`), keep their norm (`Normalize`), or let"
        " depression balance potentiation"
    )
    times = f"{now / began:.0f}" if now < 1e6 * began else f"{now / began:.0e}"
    grew = f"The norm of `{c.name}.{p.name}` grew {times} times, and grows on"
    yield f"{grew}: {sign_first(c.h)}{mend}."


def sign_first(h: _Settings) -> str:
    """Returns how to begin a remedy if both orders of spikes strengthen, by the rates' signs."""
    rates = {n: v for n, v in h.items() if n.startswith(("lr_post", "lr_pre")) and is_number(v)}
    pre = [f"{name}={-v:g}" for name, v in rates.items() if name.startswith("lr_pre") and v > 0]
    if not pre or min(rates.values()) < 0 or sum(v > 0 for v in rates.values()) == len(pre):
        return ""
    return f"write {quoted(pre)} if it should depress (other libraries subtract it); otherwise "


def out_of_range(c: CellFacts, p: ParamFacts, value: Tensor, x: Context) -> Iterator[str]:
    """Finds weights outside the range that the rule assumes."""
    rule = rule_of(x.trainer)
    low, high = (c.h.get(name, getattr(rule, name, None)) for name in ("w_min", "w_max"))
    if low is None or p.unmoved or not value.numel():
        return
    share = float((value != value.clamp(low, high)).float().mean())
    largest = float(value.abs().max())
    if share >= _OUTSIDE:
        limits = f"at least {low:g}" if high is None else f"from {low:g} to {high:g}"
        how = (
            "begin with positive weights and keep them so (`Clamp(min=0)`), and subtract the"
            " connection's output from the neurons' input"
            if high is None
            else "give the rule the limits of the weights, or begin with weights between them"
        )
        yield (
            f"{share:.0%} of the weights of `{c.name}.{p.name}` are outside the range that the"
            f" rule assumes, {limits}: {how}."
        )
    elif high is not None and 0 < largest - low < _NARROW * (high - low):
        yield (
            f"The weights of `{c.name}.{p.name}` reach {largest:.2g}, and the rule assumes them"
            f" from {low:g} to {high:g}, so that the change hardly depends on them: give the rule a"
            " smaller `w_max`."
        )


def unchanged(c: CellFacts, p: ParamFacts) -> Iterator[str]:
    """Finds weights that a whole fit has not moved, because there was no rate."""
    rates = f"{quoted(c.rates)} {'is' if len(c.rates) == 1 else 'are'} 0"
    why = first((p.zeroed, "its changes were applied with a factor of 0"), (not c.may_move, rates))
    if why and c.windows and not p.exported and p.unmoved:
        yield f"`{c.name}.{p.name}` is unchanged since the fit began, because {why}."


def hardly_moved(c: CellFacts, p: ParamFacts) -> Iterator[str]:
    """Finds weights that a whole fit has moved by next to nothing."""
    count = max(p.applied, p.exported)
    if not c.windows or not count or p.first is None or p.now is None or p.unmoved:
        return
    began = p.second if p.updater.changes.constraints.of(p.name) and p.second else p.first
    apart = float(p.now.apart(began))
    rates = "the learning rate of its optimizer" if p.exported else quoted(c.rates) or "the rates"
    if 0 < apart < min(_NEAR, _SLOW * count):
        yield (
            f"The fit changed `{c.name}.{p.name}` by a share of {apart:.0e}, in"
            f" {number(count, 'update')}: raise {rates}, unless the weights are pretrained."
        )


def same_steps(c: CellFacts, p: ParamFacts, value: Tensor, x: Context) -> Iterator[str]:
    """Finds delays that a whole fit has not moved to another step."""
    if p.first is None or x.modules is None or p.unmoved:
        return
    dt = step_of_delays(x.modules[0], p.name, p.first.sample, value)
    if dt is not None:
        yield (
            f"The fit changed the delays `{c.name}.{p.name}` in {number(p.applied, 'update')}, and"
            f" none of them to another step of `dt = {dt:g}`, to which the connection rounds them,"
            f" so that it works as before: raise {quoted(c.rates)}, or train for longer."
        )


def never_won(c: CellFacts, p: ParamFacts) -> Iterator[str]:
    """Finds neurons that never won, under a rule by which only winners learn."""
    value = _value(p)
    if "winners" not in c.h or p.first is None or p.unmoved or value is None or value.ndim < 2:
        return
    same = sample_of(value) == p.first.sample.to(value.device)
    share = _still(same, value.shape)
    if share >= _LOSERS:
        yield (
            f"{share:.0%} of the neurons of `{c.name}` never won in this fit, so that their"
            f" `{p.name}` is as it was: begin with weights that resemble the input, such as some"
            " samples of it, or take `SoftHebb`, by which all neurons learn."
        )


def alike(c: CellFacts, p: ParamFacts, x: Context) -> Iterator[str]:
    """Finds neurons whose weights are all alike."""
    value = _value(p)
    if p.unmoved or value is None or x.modules is None or p.at_limits():
        return
    if next(began_beyond(c, p), None):
        return
    share = in_common(value, x.modules[0])
    if share >= _ALIKE:
        native = type(x.modules[1]).__module__.startswith("lightning_accum")
        how = "`LateralInhibition` or `WinnerTakeAll`, `AdaptiveLIF`" if native else "`Competition`"
        yield (
            f"The neurons of `{c.name}` have nearly the same weights: {share:.1%} of the variance"
            f" of `{p.name}` is common to all. Let them compete, with {how} and `Normalize`, and"
            " begin with random weights."
        )


def in_common(value: Tensor, module: nn.Module) -> float:
    """Returns the share of the weights' variance that is the same for all neurons, or filters."""
    kinds = nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d
    if not isinstance(module, kinds) or getattr(module, "groups", 1) > 1 or value.ndim < 2:
        return 0.0
    wide = widened(value).flatten(1)
    if min(wide.shape) < 2:
        return 0.0
    of_each = float((wide - wide.mean(0)).square().mean())
    of_all = float((wide - wide.mean()).square().mean())
    return 1.0 - of_each / of_all if of_all > (_EQUAL * float(wide.abs().max())) ** 2 else 1.0


def _still(same: Tensor, shape: torch.Size) -> float:
    """Returns the share of neurons none of whose sampled weights has changed."""
    total, step = shape.numel(), -(-shape.numel() // max(len(same), 1))
    neuron = torch.arange(0, total, step, device=same.device) // (total // shape[0])
    changed, seen = torch.zeros(2, shape[0], device=same.device)
    changed.index_add_(0, neuron, (~same).float())
    seen.index_add_(0, neuron, torch.ones_like(same, dtype=torch.float32))
    return float(((changed == 0) & (seen > 0)).sum() / (seen > 0).sum())


def _value(p: ParamFacts) -> Tensor | None:
    """Returns the parameter, if its module exists and holds values here."""
    value = p.value
    if value is None or p.now is None:
        return None
    return value.detach() if value.numel() and len(sample_of(value)) == len(p.now.sample) else None
