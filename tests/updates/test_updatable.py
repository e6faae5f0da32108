import copy

import pytest
import torch
from torch import nn
from values import by_pickle

from lightning_accum import Updatable, Updater, attach_updater, get_updater


class Scale(Updatable, nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(2))
        self.shift = nn.Parameter(torch.zeros(2))


def scale():
    module = Scale()
    module.updater = module.defaultupdater()
    return module


def plain():
    module = nn.Linear(2, 2, bias=False)
    attach_updater(module, "weight")
    return module


def test_an_updater_is_set_got_and_taken_away():
    module = Scale()
    assert not module.updatable
    assert module.updater is None
    module.update(), module.updatesome("gain"), module.clear()
    updater = Updater(module, "gain")
    module.updater = updater
    assert module.updatable
    assert module.updater is updater
    del module.updater
    assert module.updater is None
    module.updater = updater
    module.updater = None
    assert not module.updatable
    with pytest.raises(TypeError, match=r"should be an Updater or None\. Found `Scale`"):
        module.updater = module


def test_the_default_updater():
    module = Scale()
    assert module.defaultupdater().names == ("gain", "shift")
    assert module.defaultupdater("shift").names == ("shift",)
    assert module.defaultupdater().parent is module
    assert module.updater is None


def test_update_updatesome_and_clear():
    module = scale()
    module.updater.gain, module.updater.shift = torch.ones(2), torch.ones(2)
    module.updatesome()
    assert module.gain.tolist() == [1.0, 1.0]
    module.updatesome("gain", clear=False)
    module.updatesome("gain")
    assert (module.gain.tolist(), module.shift.tolist()) == ([3.0, 3.0], [0.0, 0.0])
    module.update(clear=False)
    assert module.shift.tolist() == [1.0, 1.0]
    module.update(scale=2.0)
    assert module.shift.tolist() == [3.0, 3.0]
    module.updater.gain = torch.ones(2)
    module.clear()
    module.update()
    assert module.gain.tolist() == [3.0, 3.0]


def test_the_order_of_the_bases_is_checked():
    with pytest.raises(TypeError, match=r"class Behind\(Updatable, \.\.\.\)"):

        class Behind(nn.Module, Updatable):
            pass


@pytest.mark.parametrize("make", [scale, plain])
def test_the_state_dict_and_the_modules_do_not_show_it(make):
    bare = Scale() if make is scale else nn.Linear(2, 2, bias=False)
    module = make()
    next(iter(get_updater(module).children())).pos = torch.ones(2)
    assert set(module.state_dict()) == set(bare.state_dict())
    assert [n for n, _ in module.named_parameters()] == [n for n, _ in bare.named_parameters()]
    assert len(list(module.modules())) == 1
    bare.load_state_dict(module.state_dict())


@pytest.mark.parametrize("make", [scale, plain])
@pytest.mark.parametrize("through", [copy.deepcopy, by_pickle])
def test_a_copy_and_its_updater_belong_together(make, through):
    module = make()
    name = get_updater(module).names[0]
    setattr(get_updater(module), name, torch.ones(2))
    before = getattr(module, name).clone()
    twin = through(module)
    assert get_updater(twin) is not get_updater(module)
    assert get_updater(twin).parent is twin
    assert get_updater(module).parent is module
    get_updater(twin)()
    assert torch.equal(getattr(twin, name), before + 1)
    assert torch.equal(getattr(module, name), before)
    get_updater(module)()
    assert torch.equal(getattr(module, name), before + 1)
    assert get_updater(twin).nonfinite == get_updater(module).nonfinite
    setattr(get_updater(twin), name, torch.ones(2))
    del module  # the copy outlives it
    get_updater(twin)()
    assert torch.equal(getattr(twin, name), before + 1 + 1)


def test_attaching_to_any_module_once_and_again():
    conv = nn.Conv2d(1, 2, 3)
    updater = attach_updater(conv, "weight", reduction="mean", nonfinite="skip")
    assert get_updater(conv) is updater
    assert updater.nonfinite == "skip"
    updater.weight, updater.weight = torch.ones(2, 1, 3, 3), torch.zeros(2, 1, 3, 3)
    assert attach_updater(conv, "bias") is updater
    assert updater.names == ("weight", "bias")
    before = conv.weight.detach().clone()
    updater()
    torch.testing.assert_close(conv.weight.detach(), before + 0.5)
    with pytest.raises(AttributeError, match="Found `gain`"):
        attach_updater(conv, "gain")
    with pytest.raises(AttributeError, match="Found `gain`"):
        attach_updater(other := nn.ReLU(), "gain")
    assert get_updater(other) is None


def test_an_updater_made_for_one_module_serves_the_one_it_is_given_to():
    one, two = Scale(), Scale()
    two.updater = Updater(one)
    two.updater.gain = torch.ones(2)
    two.update()
    assert two.gain.tolist() == [2.0, 2.0]
    assert one.gain.tolist() == [1.0, 1.0]


def test_moving_a_module_with_something_pending():
    module = scale()
    module.updater.gain = torch.full((2,), 0.5)
    module.to(torch.bfloat16)
    module.update()
    assert module.gain.dtype == torch.bfloat16
    assert module.gain.tolist() == [1.5, 1.5]


def test_options_given_for_an_updater_that_is_there():
    conv = nn.Conv2d(1, 2, 3)
    updater = attach_updater(conv, "weight")  # as registering a cell does
    assert attach_updater(conv, "bias", reduction="mean", nonfinite="skip") is updater
    assert updater.nonfinite == "skip"
    for name in ("weight", "bias"):
        like = getattr(conv, name).detach()
        setattr(updater, name, torch.ones_like(like))
        setattr(updater, name, torch.zeros_like(like))
        assert getattr(updater, name).pos.unique().item() == 0.5
    attach_updater(conv, "weight")
    assert (updater.nonfinite, updater.weight.extra_repr().count("mean")) == ("skip", 1)
    with pytest.raises(RuntimeError, match="cannot change while contributions are pending"):
        attach_updater(conv, reduction="sum", nonfinite="raise")
    updater.weight.clear()
    with pytest.raises(RuntimeError, match="`bias` cannot change while"):
        attach_updater(conv, reduction="sum", nonfinite="raise")
    with pytest.raises(ValueError, match="Found `nonfinite = 'drop'`"):
        attach_updater(conv, nonfinite="drop")
    assert (updater.nonfinite, updater.weight.extra_repr().count("mean")) == ("skip", 1)
