"""Steps are those of plain operations, whichever way they go and whatever happens in between."""

import copy
import random

import pytest
import torch
from optimizer_cases import ADAM, CASES, close, give_gradients, parameters
from torch import nn
from values import by_file, by_pickle

from lightning_accum.optim import WeightDecay

DECAYS = [
    WeightDecay(*options).defaults()
    for options in ((0.0,), (0.1,), (0.1, False), (0.1, True, True))
]
WAYS = [{"foreach": None}, {"foreach": True}, {"foreach": False}]
OPTIONS = [
    {"lr": 0.02},
    {"lr": torch.tensor(0.01, dtype=torch.float64)},
    {"maximize": True},
    {"maximize": False},
    *DECAYS,
]


def turned(tensor):
    """The same values in memory in the other order of axes."""
    axes = list(range(tensor.ndim))[::-1]
    return tensor.permute(axes).contiguous().permute(axes)


class Pair:
    """An optimizer, and one that steps copies of its parameters one at a time, without autograd."""

    def __init__(self, name, draw):
        self.draw, self.time = draw, 0
        self.make = CASES[name]
        self.params = parameters()
        self.optimizer = self.make(self.params[:3])
        # What autograd may follow is stepped by plain operations; none of these requires grad.
        self.plain = [param.detach().clone() for param in self.params]
        self.other = self.make(self.plain[:3], differentiable=True)
        self.fused, self.beside = name in ADAM, []

    def groups(self):
        """The same group of both."""
        at = self.draw.randrange(len(self.optimizer.param_groups))
        return self.optimizer.param_groups[at], self.other.param_groups[at]

    # ------------------------------------------------------------------ what may happen
    def step(self):
        known = sum(len(group["params"]) for group in self.optimizer.param_groups)
        absent = self.draw.sample(range(5), self.draw.choice([0, 0, 1, 2]))
        for each in (self.params, self.plain):
            give_gradients(each, self.time, absent)
        for param in self.params:
            if param.grad is not None and param.ndim > 1 and self.draw.random() < 0.3:
                param.grad = turned(param.grad)
        kept = [None if p.grad is None else p.grad.clone() for p in self.params]
        before = [(p.detach().clone(), p._version) for p in self.params]
        self.optimizer.step()
        self.other.step()
        self.time += 1
        for i, (param, (value, version)) in enumerate(zip(self.params, before, strict=True)):
            assert (param.grad is None) == (kept[i] is None)
            assert kept[i] is None or torch.equal(param.grad, kept[i])
            assert param._version > version or torch.equal(param, value)
            assert not (kept[i] is None or i >= known) or torch.equal(param, value)

    def change(self):
        option = self.draw.choice(OPTIONS)
        for group in self.groups():
            group.update(option)

    def way(self):
        for group in self.optimizer.param_groups:
            group.update({"capturable": False, **self.draw.choice(WAYS)})
            if self.fused:
                group["fused"] = self.draw.choice([None, False])

    def capture(self):
        group, _ = self.groups()
        group.update({"capturable": not group["capturable"], "foreach": None})

    def maximum(self):
        for group in self.groups():
            group["amsgrad"] = True

    def copy(self):
        copied = self.draw.choice([copy.deepcopy, by_pickle])
        originals, original = self.params, self.optimizer
        self.params, self.optimizer = copied((originals, original))
        give_gradients(originals, 99)
        original.step()  # goes on apart

    def forget(self):
        for each in (self.optimizer, self.other):
            each.state.clear()

    def load(self):
        for each, params in ((self.optimizer, self.params), (self.other, self.plain)):
            for gone in {*each.state} - {*params}:
                del each.state[gone]
        saved = by_file({"params": self.params, "optimizer": self.optimizer.state_dict()})
        self.params, counts = saved["params"], [len(g["params"]) for g in self.other.param_groups]
        splits = iter(self.params)
        self.optimizer = self.make([{"params": [next(splits) for _ in range(n)]} for n in counts])
        self.optimizer.load_state_dict(saved["optimizer"])

    def replace_states(self):
        """As Lightning moves states after a checkpoint was loaded."""
        for param, state in self.optimizer.state.items():
            self.optimizer.state[param] = {
                k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in state.items()
            }

    def replace_memory(self):
        """Moves a parameter or its moment to memory of another layout."""
        param = self.draw.choice(self.params)
        moved = [param, *(v for k, v in self.optimizer.state.get(param, {}).items() if k != "step")]
        tensor = self.draw.choice(moved)
        values, wide = tensor.detach().clone(), tensor.detach().new_zeros(*tensor.shape, 2)
        wide[..., 0] = values
        self.beside.append(wide[..., 1])
        tensor.data = self.draw.choice([values, turned(values), wide[..., 0]])

    def exchange(self):
        """Puts another parameter in the place of one."""
        own, other = self.optimizer.param_groups[0], self.other.param_groups[0]
        at = self.draw.randrange(len(own["params"]))
        self.params[at] = own["params"][at] = nn.Parameter(self.params[at].detach() + 1.0)
        self.plain[at] = other["params"][at] = self.plain[at] + 1.0

    def grow(self):
        if len(self.optimizer.param_groups) == 1:
            decay = WeightDecay(0.05)
            self.optimizer.add_param_group({"params": self.params[3:], "weight_decay": decay})
            self.other.add_param_group({"params": self.plain[3:], "weight_decay": decay})

    def check(self):
        close([p.detach() for p in self.params], self.plain, 1e-10)
        assert not any(each.any() for each in self.beside)  # memory that is nobody's
        for param, plain in zip(self.params, self.plain, strict=True):
            state, other = self.optimizer.state.get(param, {}), self.other.state.get(plain, {})
            assert state.keys() == other.keys()
            mine, its = (
                [torch.as_tensor(each[k]).double() for k in other] for each in (state, other)
            )
            close(mine, its, 1e-10)


TWICE = ["change", "way", "capture", "replace_memory"]  # as often as the others
CALLS = [*2 * TWICE, "maximum", "copy", "load", "forget", "replace_states", "exchange", "grow"]


@pytest.mark.parametrize("name", CASES)
def test_steps_are_the_plain_ones_whatever_happens_between_them(name):
    for seed in range(6):
        draw = random.Random(seed)
        pair = Pair(name, draw)
        for call in draw.choices(CALLS, k=25):
            print(call)  # which a failure shows
            getattr(pair, call)()
            pair.step()
            pair.check()
