import copy
import gc
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from lightning_accum import Accumulator, Clamp, Updater
from lightning_accum._training_events import SILENT, Observer
from lightning_accum.optim import updates_as_gradients
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
