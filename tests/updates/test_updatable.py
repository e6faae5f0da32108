import copy

import pytest
import torch
from round_trips import by_pickle
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

import lightning_accum as la
from lightning_accum import Normalize, Updatable, Updater, attach_updater, get_updater
from lightning_accum.updates.updater import set_updater


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
    module, other = Scale(), Scale()
    assert not module.updatable
    assert module.updater is None
    module.update(), module.updatesome("gain"), module.clear()
    updater = Updater(other, "gain")  # serves the module that it is given to
    module.updater = updater
    assert module.updatable
    assert module.updater is updater
    module.updater.gain = torch.ones(2)
    module.update()
    assert (module.gain.tolist(), other.gain.tolist()) == ([2.0, 2.0], [1.0, 1.0])
    del module.updater
    assert module.updater is None
    module.updater = updater
    module.updater = None
    assert not module.updatable
    with pytest.raises(TypeError, match=r"should be an Updater or None\. Found `Scale`"):
        module.updater = module
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
    module.updater.gain = torch.full((2,), 0.5)
    module.to(torch.bfloat16).update()
    assert module.gain.dtype == torch.bfloat16
    assert module.gain.tolist() == [3.5, 3.5]


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
@pytest.mark.parametrize("through", [copy.deepcopy, by_pickle, copy.copy])
def test_a_copy_and_its_updater_belong_together(make, through):
    module = make()
    updater = get_updater(module)
    name = updater.names[0]
    updater.nonfinite = "skip"
    getattr(updater, name).fullbound("sharp", 5.0, -5.0)
    setattr(updater, name, torch.ones(2))
    before = getattr(module, name).clone()
    twin = through(module)
    own = get_updater(twin)
    assert own is get_updater(twin) is not updater is get_updater(module)
    assert (own.parent, updater.parent, own.nonfinite) == (twin, module, "skip")
    assert getattr(own, name).pending.bounds
    # of one of the same parameters nothing is pending, which would be applied twice
    assert getattr(own, name).empty == (through is copy.copy)
    own()
    assert torch.equal(getattr(twin, name), before + (through is not copy.copy))
    assert torch.equal(getattr(module, name), before)
    updater()
    assert torch.equal(getattr(module, name), before + 1)
    assert torch.equal(getattr(twin, name), before + 1)
    setattr(own, name, torch.ones(2))
    del module  # the copy outlives it
    own()
    assert torch.equal(getattr(twin, name), before + 1 + 1)


def test_attaching_to_any_module_once_and_again():
    conv = nn.Conv2d(1, 2, 3)
    updater = attach_updater(conv, "weight")  # as registering a cell does
    assert get_updater(conv) is updater
    for value in (torch.ones(2), (torch.ones(2), None)):
        with pytest.raises(AttributeError, match=r"call `add\('bias'\)`"):
            updater.bias = value
    assert updater.weight.empty
    assert attach_updater(conv, "bias", reduction="mean", nonfinite="skip") is updater
    assert (updater.nonfinite, updater.names) == ("skip", ("weight", "bias"))
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
    for module in (conv, other := nn.ReLU()):
        with pytest.raises(AttributeError, match="Found `gain`"):
            attach_updater(module, "gain")
    assert get_updater(other) is None
    made = attach_updater(nn.Conv2d(1, 2, 3), "weight", reduction="mean", nonfinite="skip")
    assert (made.nonfinite, made.weight.extra_repr().count("mean")) == ("skip", 1)
    for weight in (torch.ones(1, 2).expand(1, 2), torch.ones(2, 3).t()):  # of any order of memory
        conv.weight = nn.Parameter(weight)
        assert attach_updater(conv, "weight") is updater


# ---------------------------------------------------------------------------- targets
def linear():
    fc = nn.Linear(3, 2, bias=False)
    nn.init.ones_(fc.weight)
    return fc


def learned(module, weight=None):
    """Whether a rule trains the connection."""
    neuron = nn.Identity()
    rule = la.RuleTrainer(la.Hebb(0.1))
    rule.register_cell("cell", la.Cell(module, neuron))
    before = module.weight.detach().clone()
    neuron(module(torch.ones(2, 3)))
    rule()
    rule.update()
    return not torch.equal(module.weight, before)


NORMS, ROW = ("weight_norm", "spectral_norm"), torch.full((1, 3), 0.5).expand(2, 3)
MENDED = [
    *((getattr(parametrizations, name), AttributeError,
       r"computed .*remove_parametrizations\(module, 'wei", parametrize.remove_parametrizations)
      for name in NORMS),
    *((getattr(nn.utils, name), AttributeError, rf"`torch.nn.utils.remove_{name}\(module, 'weight'",
       getattr(nn.utils, f"remove_{name}")) for name in NORMS),
    (lambda _: nn.LazyLinear(2, bias=False), ValueError,
     "Found `weight` of `LazyLinear`, which waits for its fir", lambda fc, _: fc(torch.ones(1, 3))),
    (lambda fc: setattr(fc, "weight", nn.Parameter(ROW)) or fc, ValueError,
     r"Found `weight` of `Linear`.* `expand`.* `clone\(\)`",
     lambda fc, _: setattr(fc, "weight", nn.Parameter(ROW.clone()))),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated:FutureWarning")
@pytest.mark.parametrize(("make", "error", "words", "mend"), MENDED)
def test_a_weight_that_cannot_be_updated_is_trained_by_what_the_message_says(
    make, error, words, mend
):
    fc = make(linear())
    with pytest.raises(error, match=words):
        attach_updater(fc, "weight")
    assert get_updater(fc) is None
    mend(fc, "weight")
    attach_updater(fc, "weight").register_constraint(Normalize(2.0, order=2.0))
    assert learned(fc)
    torch.testing.assert_close(fc.weight.norm(dim=1), torch.full((2,), 2.0))


def test_of_what_is_pruned_the_original_is_updated():
    fc = linear()
    prune.l1_unstructured(fc, "weight", 2)
    attach_updater(fc, "weight").weight = torch.ones(2, 3)
    get_updater(fc)()
    fc(torch.ones(1, 3))
    assert (fc.weight == 2 * fc.weight_mask).all()


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_script_is_refused():
    for fc in (torch.jit.script(linear()), torch.jit.trace(linear(), torch.ones(1, 3))):
        with pytest.raises(TypeError, match=r"torch.jit` made of a `Linear`: train the module its"):
            attach_updater(fc, "weight")


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_what_is_compiled_is_the_module_itself():
    fc = linear()
    compiled = torch.compile(fc, backend="eager")
    updater = attach_updater(compiled, "weight")
    assert get_updater(fc) is get_updater(compiled) is updater
    set_updater(compiled, None)
    assert get_updater(fc) is None
    assert learned(compiled)


@pytest.mark.parametrize("dtype", [torch.long, torch.uint8, torch.bool])
def test_a_buffer_of_integers_is_refused_and_one_of_floats_is_not(dtype):
    module = nn.Module()
    module.register_buffer("n", torch.zeros(2, dtype=dtype))
    module.register_buffer("x", torch.zeros(2))
    with pytest.raises(TypeError, match="Found `n` of `Module`, torch"):
        attach_updater(module, "x", "n")
    updater = attach_updater(module, "x")
    updater.x = torch.ones(2)
    updater()
    assert module.x.tolist() == [1.0, 1.0]
    with pytest.raises(TypeError, match="Found `n`"):
        updater.add("x", "n")
    assert updater.names == ("x",)


# ---------------------------------------------------------------------------- keywords
@pytest.mark.parametrize(("call", "words"), [
    (lambda updater: Updater(linear(), nonfinit="skip"), "`nonfinit`, .*: did you mean"),
    (lambda updater: Updater(linear(), lr=1e-3), "`lr`, which nothing takes: leave it out"),
    (lambda updater: updater(clera=False), "`clera`, .*: did you mean `clear`"),
    (lambda updater: updater("weight", lr=1e-3), "`lr`, .*: pass `scale`, a factor"),
    (lambda updater: updater.weight.update(torch.ones(2, 3), lr=1e-3), "`lr`, .*: leave it"),
])  # fmt: skip
def test_keywords_that_nothing_takes_are_rejected_and_change_nothing(call, words):
    fc = linear()
    updater = attach_updater(fc, "weight")
    updater.weight = torch.ones(2, 3)
    with pytest.raises(TypeError, match=f"Found {words}"):
        call(updater)
    assert (fc.weight == 1).all()
    updater("weight", scale=0.5)
    assert (fc.weight == 1.5).all()


def test_a_trainer_rejects_a_keyword_only_if_none_of_its_updaters_takes_it():
    rule, layers, neuron = la.RuleTrainer(la.Hebb(0.1)), [linear(), linear()], nn.Identity()
    for i, fc in enumerate(layers):
        rule.register_cell(f"cell{i}", la.Cell(fc, neuron))
    updaters = [get_updater(fc) for fc in layers]
    updaters[0].weight.fullbound("power", 3.0, 0.0, power=1.0)
    for updater in updaters:
        updater.weight = torch.ones(2, 3)
    with pytest.raises(TypeError, match="Found `lr`, which nothing takes: pass `scale`"):
        rule.update(lr=1e-3, power=2.0)
    assert all((fc.weight == 1).all() for fc in layers)
    rule.update(power=2.0, scale=0.5)
    assert (layers[0].weight == 1 + 0.5 * (3 - 1) ** 2).all()
    assert (layers[1].weight == 1.5).all()
    updaters[0].weight = torch.ones(2, 3)
    with pytest.raises(ValueError, match="power"):
        rule.update(power=-1.0)
    assert (layers[0].weight == 3).all()
    rule.update()  # the bound is as it was set
    assert (layers[0].weight == 3).all()


def test_the_keywords_of_bounds_go_to_those_that_take_them():
    def gentle(param, update, limit, /, share=1.0):
        return share * update

    def greedy(param, update, limit, **kw):
        return update * kw.get("share", 1.0) + kw.get("other", 0.0)

    acc = la.Accumulator()
    acc.upperbound(gentle, 10.0)
    acc.pos, acc.neg = torch.full((1,), 4.0), torch.ones(1)
    assert acc.update(torch.zeros(1), share=0.5).item() == 1
    for name in ("update", "limit", "other"):
        with pytest.raises(TypeError, match=f"Found `{name}`"):
            acc.update(torch.zeros(1), **{name: 1.0})
    acc.lowerbound(greedy, 0.0)
    assert acc.update(torch.zeros(1), share=0.5, other=1.0).item() == 0.5
    assert acc(torch.ones(1), share=0.5).item() == 2.5
    assert acc.update(torch.zeros(1)).item() == 3
