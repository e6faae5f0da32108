"""What is wrong is told, with what was found and how to mend it; and all can be used afterwards."""

import copy
import itertools
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import field

import callback_helpers as cb
import pytest
import torch
from lightning.pytorch.callbacks import ModelPruning
from test_callback_isolation import TwoCells
from test_optimization_modes import AutomaticHead, OwnOptimizer
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR

import lightning_accum as la
from lightning_accum import STDP, CellSpec, RuleTrainer
from lightning_accum.engine.terms import Term
from lightning_accum.optim import UpdateOptimizer


@pytest.mark.parametrize(("spec", "error", "message"), [
    (CellSpec("fx", "lif"), AttributeError, "`connection` should be .*'fc', 'lif'.*'fx'"),
    (CellSpec("fc", "lif.x"), AttributeError, "`neuron` should be .*'lif.x'"),
    (CellSpec("fc", "lif", ("wait",)), AttributeError, r"with \['weight'\]. Found `wait`"),
    (CellSpec("fc", "lif", ("bias",)), AttributeError, r"with \['weight'\]. Found `bias`"),
    (CellSpec("fc", "lif", overrides={"time_dim": None}), ValueError, "`time_dim`"),
    (CellSpec("fc", "lif", overrides={"lr": 1}), TypeError, "hyperparameters of `STDP`"),
    (CellSpec("lif", "fc", ("weight",)), AttributeError, "Found `weight`"),
])  # fmt: skip
def test_a_wrong_cell(spec, error, message, tmp_path):
    net, rule = cb.Net(), RuleTrainer(STDP(**cb.RULE), time_dim=0)
    with pytest.raises(error, match=message):
        cb.trainer(tmp_path, cb.callback(rule, cells={"enc": spec})).fit(net, cb.loader(2))
    assert cb.clean(net)
    # the same rule, spelled right
    cb.fit_as_by_hand(cb.trainer(tmp_path, cb.callback(rule)), net, cb.loader(2))


@pytest.mark.parametrize(("options", "error", "message"), [
    ({"apply_every_n_batches": 0}, ValueError, "positive number of batches, or None. Found .* = 0"),
    ({"apply_every_n_batches": 1.5}, ValueError, "Found .* = 1.5"),
    ({"log": "all"}, TypeError, "`log` should be a bool. Found `str`"),
    ({"carry": "yes"}, TypeError, "`carry` should be a bool. Found `str`"),
    ({"name": 3}, TypeError, "`name` should be a string, or None. Found `name = 3`"),
    ({"cells": {1: CellSpec("fc", "lif")}}, TypeError, "named by strings. Found `cells = 1`"),
    ({"lr": -1.0}, ValueError, "`lr` should be a non-negative factor"),
    ({"nonfinite": "drop"}, ValueError, "`nonfinite` should be one of"),
    ({"cells": {"enc": ("fc", "lif")}}, TypeError, "Found `tuple` for `enc`"),
    ({"rule": nn.ReLU()}, TypeError, r"should be a rule, .*, or a CellTrainer\. Found `ReLU"),
    ({"rule": la.CellTrainer()}, TypeError, "`cells` should be None"),
    ({"lr_scheduler": 0.5}, TypeError, "`lr_scheduler` should be a callable"),
    ({"lr_scheduler": StepLR, "lr_interval": "step"}, ValueError, "`lr_interval` should be"),
    ({"rule": RuleTrainer(STDP(0.1, -0.1), carry=False), "carry": True}, ValueError, "`STDP`"),
    ({"rule": RuleTrainer(STDP(0.1, -0.1)), "dt": 2.0}, TypeError, r"\['dt'\], .*with a rule"),
    ({"tme_dim": 0}, TypeError, "`tme_dim`: did you mean `time_dim`"),
    ({"progbar": True}, TypeError, "`progbar`: did you mean `prog_bar`"),
    ({"time_dim": 1}, ValueError, "`time_dim`"),
])  # fmt: skip
def test_a_wrong_argument(options, error, message):
    with pytest.raises(error, match=message):
        cb.callback(**options)


class Poisoned(STDP):
    calls: frozenset[int] = frozenset()
    call: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def terms(self, window):
        post = window.post.values()  # which makes it a rule that is asked in every call
        if next(self.call) in self.calls:
            return [Term(1.0, post * torch.nan, window.pre)]
        return super().terms(window)


def poisoned(*calls, **options):
    return cb.callback(Poisoned(**cb.RULE, calls=frozenset(calls)), **options)


def test_nan_raises_and_the_next_fit_is_free_of_it(tmp_path):
    net, use = cb.Net(), poisoned(2, nonfinite="raise")
    first, *_ = cb.loader(3)
    with pytest.raises(la.NonFiniteUpdateError, match=r"weight.*cell enc.*NaN or Inf"):
        cb.trainer(tmp_path, use).fit(net, cb.loader(3))
    assert cb.close(net.fc.weight, cb.fit_by_hand(cb.Net(), [first])[-1])
    assert cb.clean(net)
    cb.fit_as_by_hand(cb.trainer(tmp_path, use), net, cb.loader(3))


def test_nan_is_skipped_and_counted_for_each_fit_or_ignored(tmp_path):
    net, use = cb.Net(), poisoned(2, 3)
    batches = list(cb.loader(4))
    run = cb.trainer(tmp_path, use)
    told = "NaN or Inf in 2 of 4 updates of `weight` of cell `enc`, which were dropped"
    with cb.warning_of(told):
        run.fit(net, cb.loader(4))
    assert run.global_step == 4
    assert cb.close(net.fc.weight, cb.fit_by_hand(cb.Net(), [batches[0], batches[3]])[-1])
    cb.trainer(tmp_path, use).fit(net, cb.loader(4))  # nothing more to tell: a warning would raise
    with cb.warning_of("Found NaN or Inf in `enc.weight`, which came"):
        cb.trainer(tmp_path, poisoned(2, nonfinite="ignore")).fit(net, cb.loader(3))
    assert torch.isnan(net.fc.weight).any()
    assert cb.clean(net)


class Rewarding(cb.Net):
    def training_step(self, batch, batch_idx):
        self(batch[0])
        return {"score": torch.tensor(0.5)}


class HalfOwn(TwoCells):
    def configure_optimizers(self):
        return UpdateOptimizer(self.fc.parameters())


TWO = {"enc": CellSpec("fc", "lif"), "two": CellSpec("fc2", "lif2")}
GAIN, KEYS = {"input_keys": {"reward": "gain"}}, "`input_keys` should hold keys .*'gain'.*and "
REFUSED = {
    "no cells": (cb.Net, {"cells": None}, ValueError, r"at least one cell\. Found none"),
    "another reward": (Rewarding, GAIN, KeyError, KEYS + r"\['score'\]"),
    "no reward": (cb.Net, GAIN, KeyError, KEYS + r"\[\]"),
    "an optimizer that is stepped before the reward is there": (
        OwnOptimizer, {"input_keys": {"reward": "score"}}, ValueError,
        "`input_keys` should be empty"
    ),
    **{
        f"`{name}` beside an optimizer of the module's own": (
            OwnOptimizer, {name: value}, ValueError, f"`{name}` should be .* if the module has its"
        )
        for name, value in (("lr_scheduler", StepLR), ("lr", 0.5), ("apply_every_n_batches", 3))
    },
    "a schedule that needs a metric": (
        AutomaticHead, {"lr_scheduler": ReduceLROnPlateau}, ValueError,
        r"takes no metric\. Found a `ReduceLROnPlateau`"
    ),
    "an optimizer that leaves out a cell": (
        HalfOwn, {"cells": TWO}, ValueError, r"every parameter.*cell two\): weight"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_fit_that_cannot_be(case, tmp_path):
    model, options, error, words = REFUSED[case]
    net = model()
    with pytest.raises(error, match=words):
        cb.trainer(tmp_path, cb.callback(**options)).fit(net, cb.loader(1))
    assert cb.clean(net)
    assert torch.equal(net.fc.weight, model().fc.weight)


@pytest.mark.parametrize("hook", ["on_fit_start", "on_train_start"])
def test_a_callback_that_is_added_during_a_fit(hook, tmp_path):
    net = cb.Net()
    setattr(net, hook, lambda: net.trainer.callbacks.append(cb.callback()))
    with pytest.raises(RuntimeError, match=r"added later: pass it to `Trainer\(callbacks"):
        cb.trainer(tmp_path).fit(net, cb.loader(2))


def test_a_rule_of_two_callbacks(tmp_path):
    rule, net = RuleTrainer(STDP(**cb.RULE), time_dim=0), cb.Net()
    before = copy.deepcopy(net.state_dict())
    one, two = cb.callback(rule), cb.callback(rule, name="two")
    named = r"Found two with `name = 'STDP,enc'`.*pass another to one of them"
    with pytest.raises(ValueError, match=named):  # before the Trainer is made
        cb.trainer(tmp_path, one, cb.callback())
    with pytest.raises(ValueError, match=named):
        cb.trainer(tmp_path, one, one)
    net.configure_callbacks = lambda: [cb.callback(), cb.callback()]
    with pytest.raises(ValueError, match=named):  # Lightning does not compare these
        cb.trainer(tmp_path).fit(net, cb.loader(2))
    del net.configure_callbacks
    assert one.state_key != two.state_key
    with pytest.raises(ValueError, match=r"Found the same STDP in `STDP,enc` and `two`"):
        cb.trainer(tmp_path, one, two).fit(net, cb.loader(2))
    assert cb.clean(net)
    assert torch.equal(net.fc.weight, before["fc.weight"])
    cb.trainer(tmp_path, one).fit(net, cb.loader(2))  # one after the other is fine
    cb.trainer(tmp_path, two).fit(net, cb.loader(2))
    assert not torch.equal(net.fc.weight, before["fc.weight"])


# ---------------------------------------------------------------------- modules that are replaced


LATE = ["on_fit_start", "on_train_start", "on_train_epoch_start"]
IN_TIME = ["setup", "configure_model"]


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("name", ["fc", "lif"])
@pytest.mark.parametrize("hook", LATE + IN_TIME)
def test_a_module_that_is_replaced(hook, name, keep, tmp_path):
    net, kept = cb.Net(), []

    def replace(*_, **__):
        if keep:
            kept.append(getattr(net, name))
        setattr(net, name, getattr(cb.Net(), name))

    setattr(net, hook, replace)
    words = rf"Found another .*`{name}` (than|or) "
    with nullcontext() if hook in IN_TIME else pytest.raises(RuntimeError, match=words):
        cb.trainer(tmp_path, cb.callback()).fit(net, cb.loader(2))
    assert cb.clean(net)


def test_a_cell_that_is_deleted_in_a_fit(tmp_path):
    net, use = cb.Net(), cb.callback()

    def delete():
        if net.current_epoch == 1:
            use.cell_trainer.del_cell("enc")

    net.on_train_epoch_start = delete
    cb.trainer(tmp_path, use, max_epochs=2).fit(net, cb.loader(2))


def test_a_parameter_pruned_in_a_fit_goes_on_learning(tmp_path):
    net = cb.Net()
    pruning = ModelPruning(
        "l1_unstructured", parameters_to_prune=[(net.fc, "weight")], amount=0.25,
        apply_pruning=lambda epoch: epoch == 0, make_pruning_permanent=False,
        use_lottery_ticket_hypothesis=False,
    )  # fmt: skip
    seen = cb.Probe("on_train_epoch_end", lambda _, module: module.fc.weight_orig.detach().clone())
    run = cb.trainer(tmp_path, cb.callback(), pruning, seen, max_epochs=4)
    run.fit(net, cb.loader(3))
    after = seen.found
    assert all(not torch.equal(a, b) for a, b in itertools.pairwise(after))
    assert int((net.fc.weight == 0).sum()) == net.fc.weight.numel() // 4
    assert "weight_orig" in dict(net.fc.named_parameters())
