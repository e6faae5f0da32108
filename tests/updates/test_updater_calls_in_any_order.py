"""Calls in any order change parameters as lists of contributions do that nothing shortens."""

import copy
import math
import random

import numpy as np
import pytest
import torch
from contract_cases import middle
from round_trips import by_file, by_pickle
from subtests import turns
from torch import nn

from lightning_accum import Updater

SHAPES = {"weight": (6, 8), "bias": (6,)}  # products of up to three rows are smaller, and wait


def last(stacked, dim):
    return stacked.select(dim, -1)


def doubled(param, update, limit, /, share=1.0):
    return 2 * share * update


def taken(param, pos, neg, max, min, /):
    return pos  # which may be the memory of what is pending


NAMED = {"sum": torch.sum, "mean": torch.mean, "amax": torch.amax, "amin": torch.amin}
REDUCTIONS = {**NAMED, middle: middle, last: last}
LIMITS = {"full": (0.8, 0.1), "upper": (0.8,), "lower": (0.1,)}


class Naive:
    """The pending change of one parameter."""

    def __init__(self, value):
        self.value, self.reduction, self.bounds = value.detach().double().clone(), "sum", {}
        self.clear()

    def clear(self):
        self.parts = {"pos": [], "neg": []}

    def reduced(self, part):
        kept = [each.expand(self.value.shape) for each in self.parts[part]]
        return REDUCTIONS[self.reduction](torch.stack(kept), 0) if kept else None

    def bound(self, side, bound):
        for other in ("upper", "lower") if side == "full" else ("full",):
            self.bounds.pop(other, None)
        self.bounds.pop(side, None)
        if bound is not None:
            self.bounds[side] = bound

    def room(self, side):
        bound = self.bounds.get(side, self.bounds.get("full"))
        if bound in (None, doubled):
            return 1.0 if bound is None else 2.0
        room = 0.8 - self.value if side == "upper" else self.value - 0.1
        return room.clamp(min=0) ** (1 + (bound == "power"))

    def change(self):
        parts, nothing = map(self.reduced, ("pos", "neg")), torch.zeros_like(self.value)
        pos, neg = (nothing if each is None else each for each in parts)
        if self.bounds:  # what is negative in one part counts for the other
            pos, neg = (a.clamp(min=0) - b.clamp(max=0) for a, b in ((pos, neg), (neg, pos)))
        if self.bounds.get("full") is taken:
            return pos
        return self.room("upper") * pos - self.room("lower") * neg


def through_a_file(updater):
    made = Updater(updater.parent, nonfinite=updater.nonfinite)
    for name in SHAPES:
        made_of, known = getattr(made, name), getattr(updater, name)
        made_of.reduction(known.pending.pos.reduction.fn)
        for side, bound in known.pending.bounds.items():
            options = bound.options
            getattr(made_of, f"{side}bound")(bound.fn, *bound.limits, **options)
    made.load_state_dict(by_file(updater.state_dict()))
    return made


COPIES = [copy.deepcopy, by_pickle, through_a_file]
NAMES, PARTS = ("weight", "weight", "weight", "bias"), ("pos", "neg")
SCALES = (1.0, 0.5, -2.0, {"weight": 0.5, "bias": 2.0}, {"bias": 3.0})
# How often a call is made, and what each argument is one of.
CALLS = {
    "outer": (8, PARTS, ([1], [1], [2], [1, 2], [5], []), (False, True)),
    "apply": (6, SCALES, (True, True, True, False)), "read": (3, NAMES),
    "add": (2, NAMES, PARTS, ((), (1,), None)), "copy": (2, COPIES), "delete": (1, NAMES, PARTS),
    "clear": (1, NAMES), "reduce": (1, NAMES, ("sum", *REDUCTIONS)),
    "bound": (3, NAMES, tuple(LIMITS), ("multiplicative", "power", "own", None, None, None)),
}  # fmt: skip


class Run:
    """An updater, and the same calls by naive ones."""

    def __init__(self, dtype, policy):
        self.fc = nn.Linear(8, 6).to(dtype)
        self.updater = Updater(self.fc, nonfinite=policy)
        for param in self.fc.parameters():
            nn.init.uniform_(param, 0.0, 1.0, generator=self.random(0))
        self.naive = {name: Naive(param) for name, param in self.fc.named_parameters()}
        self.memory = [param.data_ptr() for param in self.fc.parameters()]
        self.dtype, self.near = dtype, 1e-12 if dtype == torch.float64 else 1e-4

    def random(self, seed):
        return torch.Generator().manual_seed(seed)

    def rand(self, *shape):
        self.seed = getattr(self, "seed", 0) + 1
        return torch.rand(shape, generator=self.random(self.seed), dtype=self.dtype) - 0.1

    def add(self, name, part, shape):
        value = self.rand(*SHAPES[name] if shape is None else shape).requires_grad_()
        self.naive[name].parts[part].append(value.detach().double().clone())
        if part == "pos":
            setattr(self.updater, name, value)
        else:
            getattr(self.updater, name).neg = value
        value.data.zero_()  # was copied

    def outer(self, part, rows, boolean):
        posts, pres = [self.rand(n, 6) for n in rows], [self.rand(n, 8) for n in rows]
        pres = [pre > 0.4 for pre in pres] if boolean else pres
        rates, acc = [np.float64(0.1 * (i + 1)) for i in range(len(rows))], self.updater.weight
        products = [*zip(posts, pres, rates, strict=True)]
        acc.pending.add_products(**{part: products})
        if rows:
            total = sum(rate * post.double().T @ pre.double() for post, pre, rate in products)
            self.naive["weight"].parts[part].append(total)
        for side in (*posts, *pres):
            side.zero_()

    def read(self, name):
        acc, naive = getattr(self.updater, name), self.naive[name]
        change = acc.update(getattr(self.fc, name))
        assert (change is None) == acc.empty == (naive.parts == {"pos": [], "neg": []})
        for found, expected in [
            *((getattr(acc, part), naive.reduced(part)) for part in ("pos", "neg")),
            (change, None if change is None else naive.change()),
            (acc(getattr(self.fc, name)), naive.value + (0 if change is None else naive.change())),
        ]:
            assert (found is None) == (expected is None)
            if found is not None:
                torch.testing.assert_close(found.double(), expected, rtol=self.near, atol=self.near)
                assert not found.requires_grad
                found.fill_(math.nan)  # is a copy

    def apply(self, scale, clear):
        self.updater(scale=scale, clear=clear)
        for name, naive in self.naive.items():
            factor = scale.get(name, 1.0) if isinstance(scale, dict) else scale
            naive.value += factor * naive.change()
            if clear:
                naive.clear()
            found = getattr(self.fc, name).detach().double()
            torch.testing.assert_close(found, naive.value, rtol=self.near, atol=self.near)

    def clear(self, name):
        getattr(self.updater, name).neg = torch.full(SHAPES[name], math.nan)
        getattr(self.updater, name).clear()
        self.naive[name].clear()

    def delete(self, name, part):
        acc = getattr(self.updater, name)
        delattr(acc, part)
        acc.pos = acc.neg = None  # adds nothing
        self.naive[name].parts[part] = []

    def reduce(self, name, how):
        acc, naive = getattr(self.updater, name), self.naive[name]
        if acc.empty or how == naive.reduction:
            acc.reduction(how)
            naive.reduction = how
        else:
            with pytest.raises(RuntimeError, match=r"while contributions are pending.*clear\(\)"):
                acc.reduction(how)

    def bound(self, name, side, bound):
        bound = (taken if side == "full" else doubled) if bound == "own" else bound
        options = {"power": 2.0} if bound == "power" else {}
        limits = () if bound is None else LIMITS[side]
        getattr(getattr(self.updater, name), f"{side}bound")(bound, *limits, **options)
        self.naive[name].bound(side, bound)

    def copy(self, copied):
        original, self.updater = self.updater, copied(self.updater)
        self.updater.bind(self.fc)
        original.weight.accumulate(self.rand(6, 8), self.rand(6, 8))  # goes on apart
        original.clear()


@turns("seed", range(60))
def test_calls_in_any_order(seed):
    draw = random.Random(seed)
    run = Run(draw.choice([torch.float32, torch.float64]), draw.choice(["raise", "skip", "ignore"]))
    often = [each[0] for each in CALLS.values()]
    for name in draw.choices(list(CALLS), often, k=60):
        arguments = [draw.choice(each) for each in CALLS[name][1:]]
        print(name, *arguments)  # which a failure shows
        with torch.inference_mode(draw.random() < 0.3):
            getattr(run, name)(*arguments)
    for param, memory in zip(run.fc.parameters(), run.memory, strict=True):
        assert param.data_ptr() == memory
        assert param.is_leaf
        assert param.requires_grad
        assert param.grad is None
    assert not any(run.updater.skipped.values())
