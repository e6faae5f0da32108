"""Accumulates the changes that a rule makes of what one cell recorded."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import reduce
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from lightning_accum.engine.activity import Activity
from lightning_accum.engine.evaluate import evaluate
from lightning_accum.engine.forms import Form, forms_of, unmoved_side
from lightning_accum.engine.product_sums import add_per_sample, add_products, add_step
from lightning_accum.engine.products import Changes, Computed, Product
from lightning_accum.engine.recording import BOTH_SIDES, Prepared, Recording, Target
from lightning_accum.engine.rule import Rule
from lightning_accum.engine.signal import NeedsData, Signal
from lightning_accum.engine.state import Carried, StateKey, of_neurons
from lightning_accum.engine.terms import Change, listed
from lightning_accum.engine.vjp import WeightVJP
from lightning_accum.engine.window import Outline, Window
from lightning_accum.functional.dtypes import in_full_precision
from lightning_accum.functional.reductions import Reduction
from lightning_accum.updates.pending import Pending

Backend: TypeAlias = Literal["auto", "plain"]
"""How a rule's terms are evaluated: in the cheapest form, or by the equation, sample by sample."""

Terms: TypeAlias = Callable[[Window], Sequence[Change]]
"""Returns a rule's terms for the window of one parameter."""

# Elements of all signals that are converted to numbers at a time: 40 MB in float32.
_PIECE_ELEMENTS = 10 << 20
_CHOSEN_FOR = 32  # windows, after which spikes are counted again

Known: TypeAlias = dict[tuple[object, ...], tuple[Sequence[Form], int]]
"""The forms that were chosen, by the kind of a window, and for how many more of them."""


class Evaluation(NamedTuple):
    """How the terms of a cell are evaluated in all its windows."""

    batch: Reduction
    backend: Backend
    forms: dict[str, Known] | None = None  # by parameter; of terms that stay the same


class Piece(NamedTuple):
    """A piece of a window: its signals by name, and the changes of each parameter."""

    sources: dict[str, Activity]
    changes: list[Changes]


def terms_of(
    terms: Terms,
    recording: Recording,
    targets: Sequence[Target],
    carried: Carried,
    piece: slice | None = None,
) -> Piece:
    """Returns the changes that a rule makes of some steps; nothing has changed yet."""
    dtype, sources = dtype_of(targets), {}
    for name, recorded in recording.signals.items():
        activity, events = recorded if piece is None else recorded.part(piece)
        sources[name] = Activity(
            activity, recording.dt, carried, name, dtype, recording.unit_dim, events
        )
    for target in targets:
        if not target.vjp.reads_input:
            ones = target.vjp.constant_input(sources["post"].activity, sources["pre"].activity)
            sources["bias"] = Activity(ones, recording.dt, carried, "bias", dtype)
    windows = [
        Window(
            pre=Signal(sources["pre" if target.vjp.reads_input else "bias"]),
            post=Signal(sources["post"]),
            sources=sources if target.vjp.reads_input else {**sources, "pre": sources["bias"]},
            name=target.name,
            dt=recording.dt,
            param=target.param,
            inputs=recording.inputs,
            start=0 if piece is None else piece.start,
            total=recording.steps,
            vjp=target.vjp,
            tensors=recording.tensors,
            carried=carried,
            levels=recording.levels,
            prepared=recording.prepared,
        )
        for target in targets
    ]
    return Piece(sources, [Changes.of(terms(window), window) for window in windows])


def dtype_of(targets: Sequence[Target]) -> torch.dtype:
    """Returns the dtype in which changes of parameters are computed, float32 or wider."""
    return reduce(torch.promote_types, (each.param.dtype for each in targets), torch.float32)


def accumulate(
    first: Piece,
    pieces: Sequence[slice],
    terms: Terms,
    recording: Recording,
    targets: Sequence[Target],
    carried: Carried,
    how: Evaluation,
) -> dict[StateKey, Tensor]:
    """Accumulates the changes of a window, piece by piece; returns what passes to the next one."""
    sums = [each.pending for each in targets]
    if len(pieces) > 1:
        sums = [_one_contribution(each) for each in sums]
    for piece in pieces:
        ends = piece is pieces[-1]
        found = first if piece is pieces[0] else terms_of(terms, recording, targets, carried, piece)
        after: dict[StateKey, Tensor] = {}
        for target, total, changes in zip(targets, sums, found.changes, strict=True):
            forms = None if how.forms is None else how.forms.setdefault(target.name, {})
            accumulate_terms(total, changes, how.batch, target.vjp, how.backend, forms)
            for change in changes.others:
                if recording.carries or (change.follows_pieces and not ends):
                    after.update(change.carry(target.vjp))
        carried = of_neurons(carried)
        for source in found.sources.values():
            carried.update(source.carry(of_samples=recording.carries or not ends))
        carried.update(after)
    carried = {**carried, **recording.left} if recording.carries else carried
    for target, total in zip(targets, sums, strict=True):
        if total is not target.pending:
            target.pending.add(*total.parts())
    return dict(carried)


def pieces_of(recording: Recording, batch: Reduction, traces: int) -> list[slice]:
    """Returns spans of steps whose signals fit in bounded memory as numbers."""
    # `traces`: about how many of each signal the rule needs at a time, beyond one
    steps, signals = recording.steps, recording.signals
    prepared = recording.prepared
    if isinstance(prepared, Prepared) and prepared.replaces_states:
        signals, traces = {side: signals[side] for side in BOTH_SIDES}, 1
    values = traces * sum(each.activity.numel() for each in signals.values())
    if steps == 1 or not batch.adds or values <= _PIECE_ELEMENTS:
        return [slice(0, steps)]
    length = max(1, _PIECE_ELEMENTS * steps // max(1, values))
    return [slice(at, min(at + length, steps)) for at in range(0, steps, length)]


def named_terms(
    rule: Rule, dt: float, unit_dim: int, params: Sequence[str]
) -> dict[str, Sequence[Change] | None]:
    """Returns the terms of each parameter; ``None`` if the rule has to see numbers for them."""
    found: dict[str, Sequence[Change] | None] = {}
    for param in params:
        changes = None
        # what raises an error is asked again with data, in a call of the trainer
        with suppress(NeedsData, Exception):
            outline = Outline(param, dt, unit_dim, [*rule.states()])
            changes = listed(rule.terms(outline), type(rule).__name__)
        named = changes is not None and all(change.is_named for change in changes)
        found[param] = changes if named else None
    return found


def accumulate_terms(
    pending: Pending,
    changes: Changes,
    batch: Reduction,
    vjp: WeightVJP,
    backend: Backend = "auto",
    forms: Known | None = None,
) -> None:
    """Adds the changes of a window to what is pending, as one contribution to each part."""
    if pending.record is not None:
        accumulate_terms(pending.record, changes, batch, vjp, backend, forms)
    products = [each for each in changes.products if each.rate]
    others = [each for each in changes.others if each.rate]
    if not (products or others):
        return
    device = products[0].operands[0].device.type if products else "cpu"
    with torch.no_grad(), in_full_precision(device):
        keeps = batch.merge is None  # the changes of all samples, which blocks of a matrix bound
        if backend == "auto" and keeps and vjp.is_matrix and not others:
            add_per_sample(pending, products, batch)
        elif backend == "plain" or not batch.adds:
            how = vjp.plain if backend == "plain" else vjp
            pending.add(*evaluate([*products, *others], batch, how))
        else:
            _add_sums(pending, products, others, batch.averages, vjp, forms)


def _one_contribution(pending: Pending) -> Pending:
    """Returns where several additions go that are to count as one contribution."""
    how = pending.pos.reduction
    return pending if how.adds and not how.averages else Pending()


def _forms_of(products: Sequence[Product], combine: bool, known: Known | None) -> Sequence[Form]:
    """Returns the forms of products, which are chosen once for many windows of one kind."""
    if known is None:
        return forms_of(products, combine)
    post, pre = products[0].operands
    kind = len(products), combine, post.shape, pre.shape, post.dtype, post.is_raster, pre.is_raster
    forms, left = known.get(kind, ((), 0))
    if not left:
        forms, left = forms_of(products, combine), _CHOSEN_FOR
    known[kind] = forms, left - 1
    return forms


def _add_sums(
    pending: Pending,
    products: Sequence[Product],
    others: Sequence[Computed],
    averages: bool,
    vjp: WeightVJP,
    forms: Known | None,
) -> None:
    """Adds sums or means over the batch."""
    combine = pending.combines and len({product.rate < 0 for product in products}) > 1
    if products and vjp.is_matrix:
        every = _forms_of(products, combine, forms)
    else:
        places = tuple(range(len(products)))
        every = [Form("dense", unmoved_side(products, combine), places)] if products else []
    several = len(every) + len(others) > 1
    total = _one_contribution(pending) if several else pending
    for choice, side, places in every:
        some = [products[place] for place in places]
        scale = 1.0 / some[0].size if averages else 1.0
        if choice == "step":
            add_step(total, some, scale)
        else:
            add_products(total, some, scale, side, vjp, choice != "dense", combine)
        if combine and choice != "step":
            total.combined = True
    for change in others:
        parts = change.summed(vjp)
        size = change.size if averages else 1
        total.add(*(part if part is None else part / size for part in parts))
    if total is not pending:
        pending.add(*total.parts())
