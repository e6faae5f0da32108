"""Attributes that are assigned at once are those that are assigned one by one."""

import copy

import torch
from torch import nn

from lightning_accum.sparse.attribute_assignment import assign


def test_assign_equals_one_setattr_for_each():
    values = {"total": torch.ones(2), "count": 3, "values": [1.0], "nothing": None}
    fast, plain = nn.Linear(2, 1), None
    fast.total = torch.zeros(2)
    plain = copy.deepcopy(fast)
    assign(fast, **values)
    for name, value in values.items():
        setattr(plain, name, value)
    assert {n: v for n, v in vars(fast).items() if n in values} == values
    assert list(vars(fast)) == list(vars(plain))
    assert {n for n in vars(plain) if vars(plain)[n] is values.get(n, ())} == {*values}
    assert fast.state_dict().keys() == plain.state_dict().keys()
