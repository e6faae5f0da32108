"""The chain from activity to weights: the first broken link returns the finding and a remedy."""

from collections.abc import Callable, Collection
from itertools import chain

import torch
from torch import Tensor

from lightning_accum._checks import name_of, quoted
from lightning_accum.distributed.world import processes
from lightning_accum.engine.neuromodulator import Neuromodulator
from lightning_accum.health.facts import ENOUGH, CellFacts, Context, ParamFacts, first, number
from lightning_accum.health.rule_facts import weak_kernel, why_zero

TURN = 100  # calls that found other cells
_FEW = 3  # batches of a fit, which may be a trial
_LEFT = 32  # contributions of many rules to one connection
_TRIAL = 6  # batches of a fit that fails
_MANY = 100  # windows without a reward
_STALE = 3  # exports in a row to a gradient that was stepped before
_BACK = 2  # updates that found the weights set back
_STEPS = 1000  # single steps, so few of which need not have paired any spikes


_Link = Callable[[CellFacts, Context], str | None]


def broken_link(c: CellFacts, x: Context, off: Collection[str]) -> tuple[str, str] | None:
    """Returns the name of a cell's first broken link, and the message; waits for the device."""
    found = ((key, link(c, x)) for key, link in LINKS.items() if key not in off)
    return next(((key, text) for key, text in found if text), None)


# ---------------------------------------------------------------------- recorded, evaluated
def recorded(c: CellFacts, x: Context) -> str | None:
    """Whether anything was recorded."""
    if not (_is_empty_by_hand(c, x) if x.by == "hand" else _is_empty(c, x)):
        return None
    calls = x.calls(c.empty) if c.empty else number(x.updates, "step")
    if elsewhere(c):
        changed = quoted(p.name for p in c.params.values() if not p.unmoved)
        return (
            f"Cell `{c.name}` should record activity in each process of a fit. Found none here in"
            f" {calls}, and {changed} changed by what other processes, or other cells of"
            f" the connection, recorded. {_why_nothing(c, x)}"
        )
    latest = "the latest " if c.windows else ""
    others = c.others and x.by == "hand"
    other = ", which found that of other cells" if others else ""
    until = " Until its turn comes, call `eval()` on them." if others else ""
    return (
        f"Cell `{c.name}` should record activity for `{x.title}` to learn from. Found none"
        f" in {latest}{calls}{other}. {_why_nothing(c, x)}{until}"
    )


def _is_empty_by_hand(c: CellFacts, x: Context) -> bool:
    """Returns whether calls by hand find nothing, or nothing more, of a cell that should learn."""
    stopped = not c.windows or (c.empty >= 2 * c.windows and (x.asleep or not x.records))
    # otherwise it is frozen, or its turn may come
    turn = not c.others or (not c.asleep and (x.ended or c.empty >= TURN))
    return c.empty >= ENOUGH and stopped and turn


def _is_empty(c: CellFacts, x: Context) -> bool:
    """Returns whether nothing of a cell was recorded in a fit or a loop."""
    only_steps = x.by == "loop" and not c.calls and x.updates >= _FEW and not c.recorded
    meant = x.learns and x.asleep  # perhaps; it has a line of advice
    return not c.windows and not meant and (c.empty > 0 or only_steps)


def elsewhere(c: CellFacts, link: str = "recorded") -> bool:
    """Returns whether weights moved of a cell of which nothing was recorded here; waits."""
    return link == "recorded" and any(p.applied and not p.unmoved for p in c.params.values())


def _why_nothing(c: CellFacts, x: Context) -> str:
    """Returns why a cell has recorded nothing, and how to mend it."""
    if c.dropped:
        return (
            f"`clear()` dropped {c.dropped} recorded steps before the rule was called: call it"
            " after the rule, when the reward or the error of these steps is known, or leave it"
            " out, for a call empties the window itself."
        )
    if not x.records:
        return (
            "The trainer is in evaluation mode, in which nothing is recorded: leave out `eval()`,"
            " or call its `train()` before the batches that should be learned; to freeze a cell,"
            " call `eval()` on its modules instead."
        )
    for side, module in zip(("connection", "neuron"), x.modules or (), strict=False):
        if x.model is not None and all(each is not module for each in x.model.modules()):
            return (
                f"Its {side}, a `{type(module).__name__}`, is not a module of the model that is"
                " trained, which may be a copy or another instance: register the cells with the"
                " modules of that model, or give the callback their paths (`cells`)."
            )
    if x.asleep:
        return (
            "Its modules are in evaluation mode, in which nothing is recorded: call `train()` on"
            " the model before it is trained."
        )
    place = {"hand": "", "loop": "inside `with learner.batch():`"}.get(x.by, "in `training_step`")
    where = f" {place}, the only place that is recorded" if place else ""
    return (
        f"Its modules are in training mode, and were not called{where}, or without samples, or"
        " inside `unobserved()`, or between `eval()` and `train()`: call them as `fc(x)`, for hooks"
        " do not see `fc.forward(x)` or `F.linear(x, fc.weight)`. If a copy of them runs, register"
        " the cell with the modules of the copy."
    )


def evaluated(c: CellFacts, x: Context) -> str | None:
    """Whether the rule was called for what was recorded."""
    steps = c.recorded + c.dropped
    if c.windows or c.calls or not steps or not x.ended or (x.by == "hand" and steps < ENOUGH):
        return None
    how = (
        "call `step()` on the FabricCellTrainer after each batch"
        if x.by == "loop"
        else "call `trainer()` after each batch, or add a CellTrainerCallback to the Trainer"
    )
    return (
        f"`{x.title}` should be called to learn from cell `{c.name}`. Found"
        f" {number(steps, 'step')} recorded, and no call: {how}."
    )


# ---------------------------------------------------------------------- finite, active
def finite(c: CellFacts, p: ParamFacts, x: Context) -> str | None:
    """Whether weights are numbers."""
    if p.now is None or p.now.finite or c.windows < x.least(0):
        return None
    when = (
        "which came during training: lower the rates, and look at what else changes it"
        if p.first is not None and p.first.finite
        else "which it held when training began: look at how it is initialized or loaded"
    )
    return f"Weights should be finite. Found NaN or Inf in `{c.name}.{p.name}`, {when}."


def active(c: CellFacts, x: Context) -> str | None:
    """Whether both sides, and what changes are multiplied by, were active, if nothing has moved."""
    should, params = _should_have_moved(c, x), c.params.values()
    soon = c.may_move and c.asked and not int(c.fired)
    if not (should or soon) or not all(p.stays and not p.exported for p in params):
        return None
    why = _why_inactive(c, x, should)
    return why and f"Cell `{c.name}` should change {quoted(c.params)}. Found that {why}"


def _why_inactive(c: CellFacts, x: Context, should: bool) -> str | None:
    """Returns what was not active; a cell that should not have moved yet may have no input."""
    undriven = c.share("pre") == 0
    mute = c.share("post") == 0 and not undriven
    quiet = silence(c) if all(p.rests and not p.at_limits() for p in c.params.values()) else ""
    zero = "" if _may_be_rare(c, x) else _zero_input(c)
    since = f"in all {len(c.looks)} windows that were looked at, of {c.windows}"
    since = since if c.windows > 1 else f"in {number(c.steps, 'step')}"
    return first(
        (
            should and undriven,
            f"its input was always 0, {since}: look at the data, and at the encoder or the"
            " neurons that it comes from.",
        ),
        (
            mute and bool(c.undefined),
            "its neurons never fired, for their membrane potential is NaN: look for"
            " NaN in the data, in the weights, and in what else enters the current.",
        ),
        (
            mute,
            f"its neurons never fired {since}: lower their threshold, or raise the rate of"
            " the input or the weights.",
        ),
        (should and quiet, f"it is unchanged since the first update. {quiet}"),
        (should and zero, why_zero(zero)),
    )


def _zero_input(c: CellFacts) -> str:
    """Returns the name of an input that was always 0, if any; waits for the device."""
    return next((name for name in c.inputs if c.extremes(name)[1:] == (0, 0)), "")


def _may_be_rare(c: CellFacts, x: Context) -> bool:
    """Returns whether an input, such as a reward, may still come."""
    return not x.ended and c.windows < _MANY


def _should_have_moved(c: CellFacts, x: Context) -> bool:
    """Returns whether a cell has had enough windows to have changed its parameters."""
    few = c.longest == 1 and c.windows < _STEPS and any(k.startswith("tc_") for k in c.h)
    enough = c.windows >= x.least(1 if x.ended else _FEW)
    return c.may_move and enough and not (few and x.by == "hand")


# ---------------------------------------------------------------------- applied, kept
def applied(c: CellFacts, p: ParamFacts, x: Context) -> str | None:
    """Whether changes were applied, or stepped by the optimizer that got them as gradients."""
    if p.stale >= _STALE:
        return (
            f"Gradients should be emptied after each step of their optimizer. Found updates of"
            f" earlier steps in the gradients of `{p.name}` of cell `{c.name}`, which the optimizer"
            " applies again and again: call its `zero_grad()` after each `step()`."
        )
    if never_stepped(p):
        return (
            f"An optimizer should step `{p.name}` of cell `{c.name}` by the updates that become its"
            f" gradients. Found it unchanged after {p.exported} exports: call"
            " `updates_as_gradients` after `zero_grad()` and before the `step()` of an optimizer"
            " that has the parameter."
        )
    unused = 0 if p.pending.noticed else len(p.pending) + p.pending.cleared
    if p.applied or p.exported or not unused or (how := _how_to_apply(c, p, x, unused)) is None:
        return None
    p.pending.noticed = True  # other rules of the connection need not say it
    lost = ", or cleared," if p.pending.cleared else ""
    return (
        f"The changes of cell `{c.name}` should be applied. Found {unused} of `{p.name}`"
        f" pending{lost} after {x.calls(c.windows)}, no update, and none applied. {how}"
    )


def never_stepped(p: ParamFacts) -> bool:
    """Returns whether exported changes have moved nothing; waits for the device."""
    return p.exported >= ENOUGH and not p.applied and p.unmoved


def _how_to_apply(c: CellFacts, p: ParamFacts, x: Context, unused: int) -> str | None:
    """Returns what applies changes; ``None`` if that may still come."""
    later = 1 << (17 if c.longest == 1 else 10)
    least, many = (ENOUGH, _LEFT) if x.ended else (later, later)
    clear = " before `updater.clear()` or `del`" if p.pending.cleared else ""
    over = x.ended or x.failed
    rows = {
        "hand": (
            unused >= many or min(unused, c.windows) >= least,
            f"Call `trainer.update()` after `trainer()`{clear}, one for all batches; or add a"
            " CellTrainerCallback to the Trainer.",
        ),
        "loop": (True, "Call `step()` on the FabricCellTrainer."),
        "module": (
            over,
            "The module's own UpdateOptimizer was not stepped: call `step()` on it at the end of"
            " `training_step`, or return none from `configure_optimizers`, and the callback"
            " applies updates itself.",
        ),
        "callback": (
            over and not (x.failed and c.windows < _TRIAL),
            "The fit ended before they were: apply more often, by a smaller"
            " `apply_every_n_batches` or `accumulate_grad_batches`.",
        ),
    }
    not_held = (
        x.by == "callback" and x.updates and not x.failed,
        "No optimizer of this fit holds the parameter, as when a cell is registered after the"
        " fit began: register it before, or name it in `cells`.",
    )
    return first(not_held, rows[x.by])


def kept(c: CellFacts, p: ParamFacts, x: Context) -> str | None:
    """Whether updates were not dropped for NaN or Inf."""
    dropped = p.updater.changes.guard.lately().get(p.name, 0) - p.skipped
    if dropped <= 0 or p.applied < x.least(1) or 10 * dropped < p.applied:
        return None
    return (
        f"Updates should be finite. Found NaN or Inf in {dropped} of {number(p.applied, 'update')}"
        f" of `{p.name}` of cell `{c.name}`, which were dropped: look at the activity, and at what"
        " the rule is given, such as a reward or a kernel; or lower the rates."
    )


# ---------------------------------------------------------------------- moved, lasting
def moved(c: CellFacts, p: ParamFacts, x: Context) -> str | None:
    """Whether applied changes have moved the parameters."""
    if not _should_have_moved(c, x) or (_may_be_rare(c, x) and _zero_input(c)):
        return None
    begun = p.applied or p.exported or len(p.pending) or p.pending.cleared
    if x.ended and not begun:
        return (
            f"Cell `{c.name}` should change `{p.name}`. Found that the rule returned no change in"
            f" {x.calls(c.windows)}: look at its `terms`, and at what it is called with."
        )
    if p.exported or p.now is None or p.applied < x.least(1) or not _stays(p, x):
        return None
    on, since = ("", "training began") if p.unmoved else ("go on to ", "its first update")
    return (
        f"Cell `{c.name}` should {on}change `{p.name}`. Found it unchanged since {since}, after"
        f" {x.calls(c.windows)} and {number(p.applied, 'applied update')}."
        f" {_why_unmoved(c, p, p.now.sample)}"
    )


def _stays(p: ParamFacts, x: Context) -> bool:
    """Returns whether updates leave a parameter where it is, and that is not meant; waits."""
    learned = not p.unmoved and p.at_limits()
    meant = p.nulled and x.by in ("callback", "module")  # a fit with an `lr` of 0
    return p.stays and not (p.is_back or meant or learned)


def _why_unmoved(c: CellFacts, p: ParamFacts, value: Tensor) -> str:
    """Returns why applied changes have not moved a parameter."""
    if p.nulled:
        return (
            "Each change was multiplied by 0 when it was applied: look at `scale`, or at the `lr`"
            " of the UpdateOptimizer."
        )
    if why := weak_kernel(c.h, value.device):
        return why
    if p.at_limits():
        return "All weights are at a limit: weaken the part that moves them there."
    if p.rests and (quiet := silence(c)):
        return quiet
    largest = float(value.abs().max()) if value.numel() else 0.0
    floating = value.dtype.is_floating_point
    step = torch.finfo(value.dtype).eps * largest if floating else 1
    constraints = p.updater.changes.constraints.of(p.name)
    by = f", or undone by a constraint ({quoted(map(name_of, constraints))})" if constraints else ""
    return (
        f"Weights of up to {largest:.2g} in {str(value.dtype).removeprefix('torch.')} change in"
        f" steps of about {step:.0e}, and every update was smaller, or 0 due to the rule's"
        f" `terms`, the reward, the error, a reduction or a bound{by}: look at these, raise"
        f" {quoted(c.rates) or 'the rates'}, or keep the weights in a wider dtype."
    )


def silence(c: CellFacts) -> str:
    """Returns the text on neurons that fell silent; empty if they have not."""
    if (since := c.silent_since()) is None:
        return ""
    looks = sum(each.window >= since for each in c.looks)
    return (
        f"The neurons of `{c.name}` fired at first, and in none of the last {looks} of"
        f" {len(c.looks)} windows that were looked at: look for weights that a constraint or"
        " depression moves to zero, or a threshold that rises too far (`theta_plus`)."
    )


def lasting(c: CellFacts, p: ParamFacts, x: Context) -> str | None:
    """Whether nothing else sets back what is learned; by hand, that may be meant."""
    back = 0 if x.by == "hand" else sum(bool(each) for each in p.back)
    if back >= _BACK:
        found = f"back, or to other values, before {back} of the updates that were looked at"
    elif back and p.is_back:  # updates that cancel each other bring it there too
        found = "back to what it was when training began"
    else:
        return None
    return (
        f"Cell `{c.name}` should keep what it learns. Found that something set `{p.name}` {found}:"
        " look for what else writes to it, such as an initialization in `forward`, or a callback"
        " that loads or copies weights, or averages them. `ModelPruning` sets them back unless"
        " `use_lottery_ticket_hypothesis=False`."
    )


# ---------------------------------------------------------------------- shared
def shared(c: CellFacts, p: ParamFacts, x: Context) -> str | None:
    """Whether the weights of several processes stay the same."""
    if x.by != "hand" or processes() == 1 or c.split or not (p.applied or p.exported):
        return None
    became = "applied" if p.applied else "exported as gradients"
    call = "step()" if p.applied else "updates_as_gradients()"
    return (
        f"The changes of `{p.name}` of cell `{c.name}` should be summed over all {processes()}"
        f" processes before they are {became}. Found those of one process {became} without the"
        " others, so that their weights drift apart: train with a CellTrainerCallback, or call"
        f" `{call}` of a FabricCellTrainer in every process. If each process trains a network of"
        " its own, ignore this."
    )


def reset(c: CellFacts, x: Context) -> str | None:
    """Whether traces and native neurons begin again at the same windows."""
    only_neuron, only_traces = c.resets_apart
    # what a reward releases lasts from trial to trial, and so do the traces
    only_neuron = only_neuron and not any(isinstance(v, Neuromodulator) for v in c.h.values())
    if not (only_neuron or only_traces):
        return None
    neuron = (
        "its neuron" if x.modules is None else f"its neuron, a `{type(x.modules[1]).__name__}`,"
    )
    if only_neuron:
        found = f"that traces do, and {neuron} reset in each"
        mend = (
            "leave `carry` out if windows are separate samples, or reset the neuron only where a"
            " stream begins"
            if x.carry
            else "call `clear()` on the rule wherever the neuron is reset"
        )
    else:
        found = f"that traces begin at zero in each, and {neuron} not reset"
        mend = (
            "call its `reset()` wherever the rule is cleared, or do neither if sequences are pieces"
            " of one stream"
            if x.by == "hand"
            else "call its `reset()` before each batch, or pass `carry=True` if batches are pieces"
            " of one stream"
        )
    return (
        f"The traces and the neuron of cell `{c.name}` should both pass from window to window, or"
        f" neither. Found {found}: {mend}."
    )


def placed(c: CellFacts, x: Context) -> str | None:
    """Whether the modules of a cell are part of the model, and so of its checkpoints."""
    if x.model is None or x.modules is None or x.failed or not c.windows:
        return None
    own = chain(x.model.modules(), x.model.parameters(), x.model.buffers())
    known, parts = {id(each) for each in own}, []
    for side, module in zip(("connection", "neuron"), x.modules, strict=True):
        tensors = [*module.parameters(), *module.buffers()]
        if tensors and not known & {id(module), *map(id, tensors)}:
            parts.append(f"{side}, a `{type(module).__name__}`,")
    if not parts:
        return None
    return (
        f"The modules of cell `{c.name}` should be part of the model, whose checkpoints and device"
        f" they share. Found another place for its {' and its '.join(parts)} so that no checkpoint"
        " holds what is learned: assign it to the LightningModule itself, or in an `nn.ModuleList`"
        " or `nn.ModuleDict` instead of a list or a dictionary."
    )


def delays(c: CellFacts, p: ParamFacts, x: Context) -> str | None:
    """Whether the connection can keep the delays that are trained."""
    if p.name != "delay" or c.max_delay is None or not p.applied or p.now is None:
        return None
    least, most = (float(each) for each in p.now.sample.aminmax())
    if least >= 0 and most <= c.max_delay:
        return None
    return (
        f"The delays of cell `{c.name}` should be from 0 to `max_delay = {c.max_delay:g}`, in ms."
        f" Found delays from {least:.3g} to {most:.3g}: the connection counts those beyond as the"
        " nearest bound, and the rule takes them as they are. Register a constraint,"
        f' `attach_updater(connection, "delay").register_constraint(Clamp(0.0, {c.max_delay:g}),'
        ' "delay")`.'
    )


def _of_params(link: Callable[[CellFacts, ParamFacts, Context], str | None]) -> _Link:
    """Returns the link of a cell that is broken where that of one of its parameters is."""
    return lambda c, x: next((t for p in c.params.values() if (t := link(c, p, x))), None)


LINKS: dict[str, _Link] = {
    "recorded": recorded,
    "evaluated": evaluated,
    "finite": _of_params(finite),
    "active": active,
    "applied": _of_params(applied),
    "kept": _of_params(kept),
    "moved": _of_params(moved),
    "lasting": _of_params(lasting),
    "shared": _of_params(shared),
    "probes": reset,
    "range": _of_params(delays),
    "setup": placed,
}
"""The links in order, by the name that ``health={"moved": False}`` leaves out."""
