import copy
import gc
import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from subtests import turns
from torch import nn
from torch.nn.utils import parametrizations, prune

from lightning_accum import Accumulator, Clamp, Normalize, Updater
from lightning_accum._training_events import SILENT, Observer
from lightning_accum.nn import SparseLinear
from lightning_accum.optim import updates_as_gradients
from lightning_accum.updates.updatable import attach_updater
from lightning_accum.updates.updater import claim, release


def linear():
    fc = nn.Linear(3, 2)
    for param in fc.parameters():
        nn.init.zeros_(param)
    return fc


def test_not_finite_is_skipped_and_counted_or_ignored():
    fc = linear()
    updater = Updater(fc, nonfinite="skip")
    for _ in range(2):
        updater.weight, updater.bias = torch.full((2, 3), torch.nan), torch.ones(2)
        updater()
    assert updater.skipped == {"weight": 2, "bias": 0}
    assert fc.weight.count_nonzero() == 0
    assert fc.bias.tolist() == [2.0, 2.0]
    assert updater.weight.empty
    for other in (copy.deepcopy(updater), pickle.loads(pickle.dumps(updater)), Updater(fc)):
        other.load_state_dict(updater.state_dict())
        assert other.skipped == updater.skipped
    updater.nonfinite = "ignore"
    updater.weight = torch.full((2, 3), torch.nan)
    updater()
    assert fc.weight.isnan().all()
    with pytest.raises(ValueError, match=r"Argument `nonfinite`.*'drop'"):
        updater.nonfinite = "drop"
    with pytest.raises(ValueError, match="Argument `nonfinite`"):
        Updater(fc, nonfinite="drop")


def test_a_parent_that_is_gone_and_a_copy_apart_from_it():
    fc = linear()
    updater = Updater(fc)
    updater.weight = torch.ones(2, 3)
    for apart in (copy.deepcopy(updater), pickle.loads(pickle.dumps(updater))):
        with pytest.raises(RuntimeError, match=r"copy that was made apart.*bind\(module\)"):
            apart()
        other = linear()
        apart.bind(other)
        apart()
        assert other.weight.tolist() == [[1.0] * 3] * 2
        assert apart.parent is other
    assert updater.parent is fc
    del fc
    gc.collect()
    with pytest.raises(RuntimeError, match="`Linear` of this updater no longer exists"):
        updater()


RESERVED = ["names", "parent", "nonfinite", "skipped", "add", "_reduction", "changes"]


def test_names_that_do_not_exist_or_collide_are_refused():
    with pytest.raises(AttributeError, match=r"`Linear`, which has \['weight', 'bias'\].*`gain`"):
        Updater(linear(), "weight", "gain")
    with pytest.raises(AttributeError, match=r"has \['weight'\]\. Found `bias`\.$"):
        Updater(nn.Linear(2, 2, bias=False), "bias")
    with pytest.raises(AttributeError, match="Found `weight`, which is computed"):
        Updater(parametrizations.weight_norm(linear()), "weight")
    with pytest.raises(AttributeError, match=r"\('weight', 'bias'\).*Found `gain`"):
        Updater(linear())("gain")
    for name in RESERVED:
        module = nn.Module()
        module.register_parameter(name, nn.Parameter(torch.ones(1)))
        with pytest.raises(ValueError, match=f"Found `{name}`: rename the parameter of `Module`"):
            Updater(module, name)


def test_a_second_user_has_another_updater_with_the_same_bounds_and_constraints():
    class User: ...

    fc = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(fc.weight)
    updater, one, two = Updater(fc, reduction="mean"), User(), User()
    updater.register_constraint(Clamp(max=0.5))
    assert claim(updater, one) is updater
    assert claim(updater, one) is updater
    other = claim(updater, two)
    updater.weight.upperbound("sharp", 0.25)  # afterwards: it holds for both
    for value in (1.0, 3.0):
        other.weight = torch.full((1, 1), value)
    assert updater.weight.empty
    assert other.weight.pos == 2.0
    other()
    assert fc.weight.item() == 0.5
    nn.init.constant_(fc.weight, 0.375)
    other.weight = torch.ones(1, 1)
    other()
    assert fc.weight.item() == 0.375
    release(updater, two)
    assert claim(updater, two) is not updater
    release(updater, one)
    assert claim(updater, two) is updater
    del two
    gc.collect()
    assert claim(updater, one) is updater


def test_plus_equals_on_a_part_is_rejected():
    updater = Updater(linear())
    updater.weight = torch.ones(2, 3), torch.ones(2, 3)
    for part in ("pos", "neg"):
        with pytest.raises(ValueError, match=rf"`weight.{part}` should be a new contribution"):
            exec(f"updater.weight.{part} += 0.5")
    read = updater.weight.pos
    updater.weight.neg = read  # another part
    updater.weight.pos = read.clone()
    assert (updater.weight.pos[0, 0].item(), updater.weight.neg[0, 0].item()) == (2.0, 2.0)
    copied = pickle.loads(pickle.dumps(updater.weight))
    copied.pos = updater.weight.pos  # of another accumulator
    assert copied.pos[0, 0].item() == 4.0


class Noted(Observer):
    def __init__(self, fc):
        self.fc, self.seen = fc, []

    def applying(self, updater, names):
        self.seen.append(("applying", *names, self.fc.bias[0].item()))

    def applied(self, updater, names, scale):
        self.seen.append(("applied", *names, self.fc.bias[0].item(), scale))

    def exported(self, updater, names):
        self.seen.append(("exported", *names, updater.bias.empty))


def test_an_observer_is_told_of_what_is_applied_and_exported():
    fc = linear()
    updater = Updater(fc, "weight", "bias")
    assert updater.changes.events is SILENT
    updater.register_constraint(Clamp(max=0.5), "bias")
    updater.changes.events = noted = Noted(fc)
    updater.bias = torch.ones(2)
    updater(scale=2.0)
    assert noted.seen == [("applying", "bias", 0.0), ("applied", "bias", 0.5, {"bias": 2.0})]
    updater.bias = torch.ones(2)
    words = r"Found `Clamp\(min=None, max=0.5\)` on `bias` of `Linear`"
    with pytest.raises(ValueError, match=words):
        updates_as_gradients(updater)
    assert fc.bias.grad is None
    assert not updater.bias.empty
    updater.clear()
    updater.weight = torch.ones(2, 3)
    updates_as_gradients(updater)
    assert noted.seen[2:] == [("exported", "weight", True)]
    updater()
    assert noted.seen[3:] == [("applying", 0.5), ("applied", 0.5, {})]
    assert claim(updater, noted) is updater
    for other in (copy.deepcopy(updater), pickle.loads(pickle.dumps(updater)), claim(updater, fc)):
        assert other.changes.events is SILENT


def test_subclasses_have_attributes_of_their_own_and_names_those_of_accumulators():
    class Named(Updater):
        def __init__(self, module):
            super().__init__(module)
            self.note = "mine"

    class Counted(Accumulator):
        def __init__(self):
            super().__init__()
            self.times = 0

    module, accumulator = nn.Module(), Counted()
    for name in ("pos", "neg", "update", "reduction"):
        module.register_parameter(name, nn.Parameter(torch.zeros(1)))
    updater = Named(module)
    updater.pos, updater.update = torch.ones(1), (None, torch.ones(1))
    updater()
    assert [p.item() for p in module.parameters()] == [1.0, 0.0, -1.0, 0.0]
    updater.note, accumulator.times = "yours", 1
    assert (updater.note, accumulator.times) == ("yours", 1)


# ---------------------------------------------------------------------------- constraints
@settings(deadline=None)
@given(
    shape=st.lists(st.integers(1, 4), min_size=2, max_size=4),
    order=st.sampled_from([1, 2, 3, 1.5, math.inf]),
    norm=st.floats(0.1, 100),
    seed=st.integers(0, 2**16),
)
def test_every_output_gets_the_norm_and_keeps_its_direction(shape, order, norm, seed):
    w = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    before = w.clone()
    Normalize(norm, order)(w)
    for row, old in zip(w.flatten(1).tolist(), before.flatten(1).tolist(), strict=True):
        size = [abs(x) for x in old]
        p_norm = max(size) if order == math.inf else sum(x**order for x in size) ** (1 / order)
        assert row == pytest.approx([x / p_norm * norm for x in old], rel=1e-10)


@turns("make, x, unit", [
    (lambda: nn.Linear(3, 4), torch.rand(1, 3), -1),
    (lambda: SparseLinear(6, 4, density=0.5), torch.rand(1, 6), -1),
    (lambda: nn.Conv1d(4, 6, 2, groups=2), torch.rand(1, 4, 3), 1),
    (lambda: nn.ConvTranspose1d(3, 4, 2), torch.rand(1, 3, 3), 1),
    (lambda: nn.ConvTranspose2d(4, 6, 2, groups=2), torch.rand(1, 4, 3, 3), 1),
    (lambda: nn.ConvTranspose3d(2, 3, 2, bias=False), torch.rand(1, 2, 2, 2, 2), 1),
    (lambda: nn.Embedding(6, 4), torch.arange(6), -1),
    (lambda: nn.EmbeddingBag(6, 4, mode="sum"), torch.arange(6)[None], -1),
])  # fmt: skip
def test_the_weights_that_lead_to_an_output_have_the_norm(make, x, unit):
    pruned = prune.identity(make(), "weight")
    for connection, name in (make(), "weight"), (pruned, "weight_orig"):
        if name == "weight_orig" and isinstance(connection, SparseLinear):
            continue
        updater, weight = attach_updater(connection, name), getattr(connection, name)
        updater.register_constraint(Normalize(2.0, order=2), name)
        setattr(updater, name, torch.rand_like(weight))
        updater()
        for output in connection(x).unbind(unit):
            (by_weight,) = torch.autograd.grad(output.sum(), weight, retain_graph=True)
            torch.testing.assert_close(weight[by_weight != 0].norm(), torch.tensor(2.0))


@pytest.mark.parametrize("order", [1, 2, math.inf])
def test_rows_without_a_norm_stay_finite(order):
    for norm in (1.0, 1e3, 1e30):
        w = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
        Normalize(norm, order)(w)
        assert w[0].tolist() == [0.0, 0.0], norm
        assert w[1].isfinite().all(), norm
    for tiny in (1e-25, 1e-38, 1e-44):
        # The squares of 1e-25 are zero in float32, and 1e3 / 4e-38 is infinite.
        w = torch.full((1, 4), tiny)
        Normalize(1e3, order)(w)
        assert w.max() <= 1e3, tiny
    assert w.max() < 1e-40  # too small to be scaled


def test_weights_are_written_in_place_without_a_graph_and_rounded_once():
    p = nn.Parameter(torch.tensor([[2.0, -6.0]]))
    alias = p.data
    Normalize()(p), Clamp(min=-0.5)(p)
    assert alias.tolist() == [[0.25, -0.5]]
    assert p.is_leaf
    assert p.requires_grad
    w = torch.rand(8, 100, generator=torch.Generator().manual_seed(0)).bfloat16()
    wide = w.float()
    Normalize(78.4)(w), Normalize(78.4)(wide)
    assert torch.equal(w, wide.bfloat16())
    assert w.dtype == torch.bfloat16


NUMBERS = (0.0, -1.0, math.nan)
INFINITE = (math.nan, math.inf, -math.inf)
REFUSED = [
    *((Normalize, {"norm": each}, "`norm`") for each in (*NUMBERS, math.inf)),
    *((Normalize, {"order": each}, "`order`") for each in NUMBERS),
    (Clamp, {}, "both be None"),
    (Clamp, {"min": 1.0, "max": 0.0}, "`min` should be at most"),
    *((Clamp, {n: v}, f"`{n}` should be finite") for v in INFINITE for n in ("min", "max")),
    (Normalize(), {"param": torch.ones(2, 2, dtype=torch.long)}, "floating-point"),
    (Normalize(), {"param": torch.ones(3)}, "should have incoming dimensions"),
    *((Normalize(), {"param": each}, "`param` should be a tensor") for each in ([1.0], 1.0, None)),
    (Clamp(0.0), {"param": [1.0]}, "`param` should be a tensor"),
]


@turns("call, options, words", REFUSED)
def test_what_makes_no_sense_is_rejected(call, options, words):
    with pytest.raises((TypeError, ValueError), match=words):
        call(**options)
