"""The fast form of evaluation against the plain one, and what passes from window to window."""

import pytest
import torch
from forms import FORMS, evaluated_in
from rasters import layer, raster, show
from references import RULES
from turns import turns

from lightning_accum import BCM, STDP, Rule, Term, get_updater
from lightning_accum.engine.state import StateKey


@turns("reduction", ["mean", "sum", "amax"])
@turns("form", FORMS)
@pytest.mark.parametrize("name", RULES)
def test_every_rule_is_the_same_in_its_plain_form(name, form, reduction):
    case = RULES[name]
    pre, post = raster(7, 3, 5, seed=1), raster(7, 3, 4, seed=2)
    if not case.spikes:
        pre, post = torch.randn(7, 3, 5).double(), torch.randn(7, 3, 4).double()
    found = []
    for how in ("plain", form):
        torch.manual_seed(0)
        with evaluated_in(how) as backend:
            rule, model = case.make(backend=backend, batch_reduction=reduction), layer(5, 4)
            rule.register_cell("cell", model.cell)
            for x, y in zip(pre.split(4), post.split(4), strict=True):
                show(model, x, y)
                rewards = torch.linspace(-1, 1, len(x) * 3).reshape(len(x), 3).double()
                rule(**({"reward": rewards} if case.rewarded else {}))
        weight = get_updater(model.connection).weight
        found.append(weight.update(model.connection.weight))
    torch.testing.assert_close(found[1], found[0], rtol=1e-10, atol=1e-10)


def test_a_trace_passes_on_because_it_is_used_not_because_it_was_made():
    class Half(Rule):
        def terms(self, window, h):
            window.pre.trace(5.0)  # made, and left alone
            return [Term(1.0, window.post, window.pre.trace(9.0))]

    rule, model = Half(), layer(3, 2)
    unit = rule.register_cell("cell", model.cell)
    show(model, raster(4, 1, 3), raster(4, 1, 2))
    rule()
    (key,) = unit.state.carried
    assert (key.scope, key.kind) == ("sample", "pre cumulative trace")
    assert key.setting == pytest.approx(torch.tensor(-1 / 9.0).exp().item())


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda tc: STDP(0.1, -0.1, tc_pre=tc), "pre cumulative trace"),
        (lambda tc: BCM(0.1, tc_threshold=tc), "post average"),
    ],
)
def test_a_time_constant_that_changed_on_resuming_is_noticed(make, kind, recwarn):
    def run(rule, model):
        show(model, raster(4, 1, 3, seed=5), raster(4, 1, 2, seed=6))
        rule()

    first, model = make(20.0), layer(3, 2)
    first.register_cell("cell", model.cell)
    run(first, model)
    for tc in (20.0, 30.0):
        rule, model = make(tc), layer(3, 2)
        rule.register_cell("cell", model.cell)
        rule.load_state_dict(first.state_dict())
        if tc == 20.0:
            run(rule, model)
            assert not recwarn.list
            continue
        with pytest.warns(RuntimeWarning, match=f"cell `cell` has a {kind}.* setting of 0.95"):
            run(rule, model)
        run(rule, model)  # once is enough
    assert not recwarn.list


@turns("text", ["", "pre", "sample:1.0", "other:trace:1.0"])
def test_a_name_of_another_version_is_refused(text):
    with pytest.raises(RuntimeError, match="A name in a cell's state should be"):
        StateKey.parse(text)
