"""Which modules and parameters an updater takes, and what it says of others."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

import lightning_accum as la
from lightning_accum import Normalize, Updater, attach_updater, get_updater
from lightning_accum.updates.attached import set_updater


def linear():
    fc = nn.Linear(3, 2, bias=False)
    nn.init.ones_(fc.weight)
    return fc


def learned(module, weight=None):
    """Whether a rule trains the connection."""
    neuron = nn.Identity()
    rule = la.Hebb(0.1)
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


@pytest.mark.parametrize("wrong", [0.5, None, "fc", [nn.Linear(2, 2)]])
def test_what_is_not_a_module_is_refused(wrong):
    for function in (attach_updater, get_updater, Updater, lambda m: set_updater(m, None)):
        with pytest.raises(TypeError, match=r"Argument `module` should be a torch.nn.Module"):
            function(wrong)


def test_an_assignment_to_what_is_not_updated_is_refused():
    updater = Updater(nn.Linear(3, 2), "weight")
    for value in (torch.ones(2), (torch.ones(2), None)):
        with pytest.raises(AttributeError, match=r"call `add\('bias'\)`"):
            updater.bias = value
    assert updater.weight.empty


# ---------------------------------------------------------------------------- keywords
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda updater: Updater(linear(), nonfinit="skip"), "`nonfinit`, .*: did you mean"),
        (lambda updater: Updater(linear(), lr=1e-3), "`lr`, which nothing takes: leave it out"),
        (lambda updater: updater(clera=False), "`clera`, .*: did you mean `clear`"),
        (lambda updater: updater("weight", lr=1e-3), "`lr`, .*: pass `scale`, a factor"),
        (lambda updater: updater.weight.update(torch.ones(2, 3), lr=1e-3), "`lr`, .*: leave it"),
    ],
)
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
    rule, layers, neuron = la.Hebb(0.1), [linear(), linear()], nn.Identity()
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


# ---------------------------------------------------------------------------- copies
def test_a_shallow_copy_has_an_updater_of_its_own():
    fc = linear()
    updater = attach_updater(fc, "weight", nonfinite="skip")
    updater.weight.fullbound("sharp", 5.0, 0.0)
    updater.weight = torch.ones(2, 3)
    twin = copy.copy(fc)
    own = get_updater(twin)
    assert own is not updater
    assert own is get_updater(twin)
    assert get_updater(fc) is updater
    assert updater.parent is fc
    assert own.parent is twin
    assert own.nonfinite == "skip"
    assert own.weight.bounded
    assert own.weight.empty  # which would be applied twice, for the parameters are the same ones
    own()
    updater()
    assert (fc.weight == 2).all()
    assert twin.weight is fc.weight


@pytest.mark.parametrize("weight", [torch.ones(1, 2).expand(1, 2), torch.ones(2, 3).t()])
def test_a_parameter_in_another_order_of_memory_is_not_refused(weight):
    fc = nn.Linear(2, 1)
    fc.weight = nn.Parameter(weight)
    assert attach_updater(fc, "weight").names == ("weight",)
