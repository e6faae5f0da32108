"""Accumulates the changes that a rule makes of what one cell recorded."""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import attrgetter
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from lightning_accum.engine.activity_window import Window
from lightning_accum.engine.evaluate import evaluate
from lightning_accum.engine.product_sums import add_per_sample, add_products, add_step
from lightning_accum.engine.rule import Rule
from lightning_accum.engine.rule_inputs import BOTH_SIDES, Prepared, Recording, Target
from lightning_accum.engine.state_keys import Carried, StateKey
from lightning_accum.engine.summation_forms import Form, forms_of, unmoved_side
from lightning_accum.engine.term_operands import Activity, Changes, Computed, Product
from lightning_accum.engine.terms import Change, listed
from lightning_accum.engine.vjp import WeightVJP
from lightning_accum.functional.dtypes import in_full_precision
from lightning_accum.functional.reductions import Reduction
from lightning_accum.updates.pending import Pending

Backend: TypeAlias = Literal["auto", "plain"]
"""How a rule's terms are evaluated: in the cheapest form, or by the equation, sample by sample."""

# Elements of all signals that are converted to numbers at a time: 40 MB in float32.
_PIECE_ELEMENTS = 10 << 20


class Evaluation(NamedTuple):
    """How the terms of a cell are evaluated in all its windows."""

    rule: Rule
    named: Mapping[str, Sequence[Change] | None]  # terms by parameter; None if they need data
    batch: Reduction
    backend: Backend


class Piece(NamedTuple):
    """A piece of a window: its signals by name, and the changes of each parameter."""

    sources: dict[str, Activity]
    changes: list[Changes]


class WindowChanges:
    """The changes that a rule makes of what one cell recorded; at first, nothing has changed."""

    def __init__(
        self,
        how: Evaluation,
        recording: Recording,
        targets: Sequence[Target],
        carried: Carried,
    ) -> None:
        self._how, self._recording, self._targets = how, recording, targets
        self._carried, self._dtype = carried, dtype_of(targets)
        self._pieces = pieces_of(recording, how)
        self.first = self._piece(self._pieces[0], carried)

    def _piece(self, steps: slice, carried: Carried) -> Piece:
        """Returns the changes that the rule makes of some steps."""
        recording, dtype, sources = self._recording, self._dtype, dict[str, Activity]()
        whole = len(self._pieces) == 1
        for name, recorded in recording.signals.items():
            activity, events = recorded if whole else recorded.part(steps)
            own = recording.dt, carried, name, dtype, recording.unit_dim
            sources[name] = Activity(activity, *own, events)
        found = []
        for target in self._targets:
            own_sources = sources
            if not target.vjp.reads_input:
                ones = target.vjp.constant_input(sources["post"].activity, sources["pre"].activity)
                sources["bias"] = Activity(ones, recording.dt, carried, "bias", dtype)
                own_sources = {**sources, "pre": sources["bias"]}
            window = Window(
                sources=own_sources,
                name=target.name,
                dt=recording.dt,
                param=target.param,
                inputs=recording.inputs,
                start=steps.start,
                total=recording.steps,
                vjp=target.vjp,
                tensors=recording.tensors,
                carried=carried,
                levels=recording.levels,
                prepared=recording.prepared,
            )
            changes = self._how.named[target.name]
            if changes is None:
                rule = self._how.rule
                changes = listed(rule.terms(window), type(rule).__name__)
            found.append(Changes.of(changes, window))
        return Piece(sources, found)

    def accumulate(self) -> dict[StateKey, Tensor]:
        """Accumulates the changes, piece by piece; returns what passes to the next window."""
        pieces, targets, carried = self._pieces, self._targets, {**self._carried}
        sums = [each.pending for each in targets]
        if len(pieces) > 1:
            sums = [_one_contribution(each) for each in sums]
        for piece in pieces:
            found = self.first if piece is pieces[0] else self._piece(piece, carried)
            for target, total, changes in zip(targets, sums, found.changes, strict=True):
                self._add(total, changes, target)
            carried = self._passed(found, carried, ends=piece is pieces[-1])
        for target, total in zip(targets, sums, strict=True):
            if total is not target.pending:
                target.pending.add(*total.parts())
        return carried

    def _passed(self, piece: Piece, carried: Carried, ends: bool) -> dict[StateKey, Tensor]:
        """Returns what a piece passes to the next one, or the last one to the next window."""
        recording = self._recording
        passed = {key: left for key, left in carried.items() if key.scope == "neuron"}
        for target, changes in zip(self._targets, piece.changes, strict=True):
            for change in changes.others:
                if recording.carries or (change.follows_pieces and not ends):
                    passed.update(change.carry(target.vjp))
        for source in piece.sources.values():
            passed.update(source.carry(of_samples=recording.carries or not ends))
        return {**passed, **recording.left} if ends and recording.carries else passed

    def _add(self, pending: Pending, changes: Changes, target: Target) -> None:
        """Adds the changes of a piece to what is pending, as one contribution to each part."""
        if pending.record is not None:
            self._add(pending.record, changes, target)
        products = [each for each in changes.products if each.rate]
        others = [each for each in changes.others if each.rate]
        if not (products or others):
            return
        batch, backend, vjp = self._how.batch, self._how.backend, target.vjp
        device = products[0].operands[0].source.device.type if products else "cpu"
        with torch.no_grad(), in_full_precision(device):
            keeps = batch.merge is None  # all samples' changes, which blocks of a matrix bound
            if backend == "auto" and keeps and vjp.is_matrix and not others:
                add_per_sample(pending, products, batch)
            elif backend == "plain" or not batch.adds:
                how = vjp.plain if backend == "plain" else vjp
                pending.add(*evaluate([*products, *others], batch, how))
            else:
                self._add_sums(pending, products, others, target)

    def _add_sums(
        self,
        pending: Pending,
        products: Sequence[Product],
        others: Sequence[Computed],
        target: Target,
    ) -> None:
        """Adds sums or means over the batch."""
        averages, vjp = self._how.batch.averages, target.vjp
        combine = pending.combines and len({product.rate < 0 for product in products}) > 1
        forms = _forms_for(vjp, products, combine)
        several = len(forms) + len(others) > 1
        total = _one_contribution(pending) if several else pending
        for form in forms:
            some = [products[place] for place in form.places]
            scale = 1.0 / some[0].size if averages else 1.0
            if form.choice == "step":
                add_step(total, some, scale)
            else:
                add_products(total, some, scale, form.side, vjp, form.choice != "dense", combine)
        for change in others:
            parts = change.summed(vjp)
            size = change.size if averages else 1
            total.add(*(part if part is None else part / size for part in parts))
        if total is not pending:
            pending.add(*total.parts())


def _forms_for(vjp: WeightVJP, products: Sequence[Product], combine: bool) -> list[Form]:
    """Returns the forms of products, dense for other parameters than a matrix."""
    if products and not vjp.is_matrix:
        return [Form("dense", unmoved_side(products, combine), (*range(len(products)),))]
    return forms_of(products, combine) if products else []


def dtype_of(targets: Sequence[Target]) -> torch.dtype:
    """Returns the dtype in which changes of parameters are computed, float32 or wider."""
    return reduce(torch.promote_types, map(attrgetter("param.dtype"), targets), torch.float32)


def pieces_of(recording: Recording, how: Evaluation) -> list[slice]:
    """Returns spans of steps whose signals fit in bounded memory as numbers."""
    steps, prepared = recording.steps, recording.prepared
    names: Iterable[str] = recording.signals
    several = None in how.named.values()  # about two of each signal at a time, beyond one
    if isinstance(prepared, Prepared) and prepared.replaces_states:
        names, several = BOTH_SIDES, False
    values = (1 + several) * sum([recording.signals[name].activity.numel() for name in names])
    if steps == 1 or not how.batch.adds or values <= _PIECE_ELEMENTS:
        return [slice(0, steps)]
    length = max(1, _PIECE_ELEMENTS * steps // max(1, values))
    return [slice(at, min(at + length, steps)) for at in range(0, steps, length)]


def _one_contribution(pending: Pending) -> Pending:
    """Returns where several additions go that are to count as one contribution."""
    how = pending.pos.reduction
    return pending if how.adds and not how.averages else Pending()
