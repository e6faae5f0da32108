"""What is wrong is told, with what was found and how to mend it; and all can be used afterwards."""

import copy
import warnings

import pytest
import torch
from callback_helpers import (
    INPUTS,
    OUTPUTS,
    RULE,
    Net,
    callback,
    clean,
    close,
    fit_by_hand,
    hooks,
    loader,
    trainer,
    warning_of,
)
from torch import nn

from lightning_accum import STDP, CellSpec, CellTrainer, NonFiniteUpdateError
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.engine.terms import Term
from lightning_accum.nn import LIF
from lightning_accum.optim import UpdateOptimizer


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        (CellSpec("fx", "lif"), AttributeError, "`connection` should be .*'fc', 'lif'.*'fx'"),
        (CellSpec("fc", "lif.x"), AttributeError, "`neuron` should be .*'lif.x'"),
        (CellSpec("fc", "lif", ("wait",)), AttributeError, r"with \['weight'\]. Found `wait`"),
        (CellSpec("fc", "lif", ("bias",)), AttributeError, r"with \['weight'\]. Found `bias`"),
        (CellSpec("fc", "lif", overrides={"time_dim": None}), ValueError, "`time_dim`"),
        (CellSpec("fc", "lif", overrides={"lr": 1}), TypeError, "hyperparameters of `STDP`"),
        (CellSpec("lif", "fc", ("weight",)), AttributeError, "Found `weight`"),
    ],
)
def test_a_wrong_cell(spec, error, message, tmp_path):
    net, rule = Net(), STDP(**RULE, time_dim=0)
    with pytest.raises(error, match=message):
        trainer(tmp_path, callback(rule, cells={"enc": spec})).fit(net, loader(2))
    assert clean(net)
    expected = fit_by_hand(net, list(loader(2)))[-1]
    trainer(tmp_path, callback(rule)).fit(net, loader(2))  # the same rule, spelled right
    assert close(net.fc.weight, expected)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"apply_every_n_batches": 0},
            ValueError,
            "positive number of batches, or None. Found .* = 0",
        ),
        ({"apply_every_n_batches": 1.5}, ValueError, "Found .* = 1.5"),
        ({"log": "all"}, TypeError, "`log` should be a bool. Found `str`"),
        ({"lr": -1.0}, ValueError, "`lr` should be a non-negative factor"),
        ({"nonfinite": "drop"}, ValueError, "`nonfinite` should be one of"),
        ({"cells": {"enc": ("fc", "lif")}}, TypeError, "Found `tuple` for `enc`"),
        ({"rule": nn.ReLU()}, TypeError, r"should be a CellTrainer.*Found `ReLU"),
        ({"rule": CellTrainer()}, TypeError, "`cells` should be None"),
        ({"rule": STDP(0.1, -0.1, carry=False), "carry": True}, ValueError, "for a `STDP`"),
    ],
)
def test_a_wrong_argument(options, error, message):
    with pytest.raises(error, match=message):
        callback(**options)


class Poisoned(STDP):
    """Gives NaN in the calls that are named."""

    def __init__(self, calls):
        super().__init__(**RULE, time_dim=0)
        self.calls, self.called = calls, 0

    def terms(self, window, h):
        self.called += 1
        if self.called in self.calls:
            return [Term(1.0, window.post.values() * torch.nan, window.pre)]
        return super().terms(window, h)


def test_nan_raises_and_the_next_fit_is_free_of_it(tmp_path):
    net, use = Net(), callback(Poisoned({2}), nonfinite="raise")
    first, *rest = list(loader(3))
    with pytest.raises(NonFiniteUpdateError, match=r"weight.*cell enc.*NaN or Inf"):
        trainer(tmp_path, use).fit(net, loader(3))
    assert close(net.fc.weight, fit_by_hand(Net(), [first])[-1])
    assert clean(net)
    expected = fit_by_hand(net, [first, *rest])[-1]
    trainer(tmp_path, use).fit(net, loader(3))
    assert close(net.fc.weight, expected)


def test_nan_is_skipped_and_counted_for_each_fit(tmp_path):
    net, use = Net(), callback(Poisoned({2, 3}))
    batches = list(loader(4))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        run = trainer(tmp_path, use)
        run.fit(net, loader(4))
    (told,) = [str(w.message) for w in found if issubclass(w.category, RuntimeWarning)]
    assert "NaN or Inf in 2 of 4 updates of `weight` of cell `enc`, which were dropped" in told
    assert run.global_step == 4
    assert close(net.fc.weight, fit_by_hand(Net(), [batches[0], batches[3]])[-1])
    trainer(tmp_path, use).fit(net, loader(4))  # nothing more to tell: a warning would raise


def test_nan_may_be_ignored(tmp_path):
    net = Net()
    with warning_of("Found NaN or Inf in `enc.weight`, which came"):
        trainer(tmp_path, callback(Poisoned({2}), nonfinite="ignore")).fit(net, loader(3))
    assert torch.isnan(net.fc.weight).any()
    assert hooks(net) == 0


class Rewarding(Net):
    def training_step(self, batch, batch_idx):
        self(batch[0])
        return {"score": torch.tensor(0.5)}


class Transposed(Net):
    """Hands the neuron another batch than the connection."""

    def training_step(self, batch, batch_idx):
        self.lif(self.fc(batch[0].transpose(0, 1))[:, :2])


class Own(Net):
    """Returns an optimizer of its own for some of its parameters."""

    def configure_optimizers(self):
        return UpdateOptimizer(self.fc.parameters())


class HalfOwn(Own):
    def __init__(self):
        super().__init__()
        self.fc2, self.lif2 = Net().fc, Net().lif


class HalfEvaluated(Net):
    def on_train_start(self):
        self.lif.eval()


TWO = {"enc": CellSpec("fc", "lif"), "two": CellSpec("fc2", "lif2")}
GAIN, KEYS = {"input_keys": {"reward": "gain"}}, "`input_keys` should hold keys .*'gain'.*and "
REFUSED = {
    "no cells": (Net, {"cells": None}, ValueError, r"at least one cell\. Found none"),
    "half a cell in evaluation mode": (
        HalfEvaluated, {}, ValueError, r"7 steps of .* a LIF, is in evaluation mode"
    ),
    "another batch behind the connection": (
        Transposed, {}, ValueError, r"Cell `enc`.*same batch"
    ),
    "another reward": (Rewarding, GAIN, KeyError, KEYS + r"\['score'\]"),
    "no reward": (Net, GAIN, KeyError, KEYS + r"\[\]"),
    "an optimizer that is stepped before the reward is there": (
        Own, {"input_keys": {"reward": "score"}}, ValueError, "`input_keys` should be empty"
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
        trainer(tmp_path, callback(**options)).fit(net, loader(1))
    assert clean(net)


def test_two_of_a_name_are_told_by_lightning(tmp_path):
    with pytest.raises(RuntimeError, match="state_key"):
        trainer(tmp_path, callback(), callback())
    rule = STDP(**RULE, time_dim=0)
    assert CellTrainerCallback(rule, name="one").state_key != callback(name="two").state_key


@pytest.mark.parametrize("hook", ["on_fit_start", "on_train_start"])
def test_a_callback_that_is_added_during_a_fit(hook, tmp_path):
    net = Net()
    setattr(net, hook, lambda: net.trainer.callbacks.append(callback()))
    with pytest.raises(RuntimeError, match=r"added later: pass it to `Trainer\(callbacks"):
        trainer(tmp_path).fit(net, loader(2))


# ---------------------------------------------------------------------- one rule, one callback
def test_a_rule_of_two_callbacks(tmp_path):
    rule, net = STDP(**RULE, time_dim=0), Net()
    before = copy.deepcopy(net.state_dict())
    one, two = callback(rule), callback(rule, name="two")
    with pytest.raises(ValueError, match=r"Found the same STDP in `STDP,enc` and `two`"):
        trainer(tmp_path, one, two).fit(net, loader(2))
    assert clean(net)
    assert torch.equal(net.fc.weight, before["fc.weight"])
    trainer(tmp_path, one).fit(net, loader(2))  # one after the other is fine
    trainer(tmp_path, two).fit(net, loader(2))
    assert not torch.equal(net.fc.weight, before["fc.weight"])


# ---------------------------------------------------------------------- modules that are replaced
def other(name):
    if name == "lif":
        return LIF(OUTPUTS, time_dim=0)
    return nn.Linear(INPUTS, OUTPUTS, bias=False, dtype=torch.float64)


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("name", ["fc", "lif"])
@pytest.mark.parametrize("hook", ["on_fit_start", "on_train_start", "on_train_epoch_start"])
def test_a_module_that_is_replaced(hook, name, keep, tmp_path):
    net = Net()
    kept = []

    def replace(*_):
        if keep:
            kept.append(getattr(net, name))
        setattr(net, name, other(name))

    setattr(net, hook, replace)
    with pytest.raises(RuntimeError, match=rf"Found another .*`{name}` (than|or) "):
        trainer(tmp_path, callback()).fit(net, loader(2))
    assert clean(net)


@pytest.mark.parametrize("hook", ["setup", "configure_model"])
def test_a_module_that_is_replaced_in_time(hook, tmp_path):
    net = Net()
    setattr(net, hook, lambda *_, **__: setattr(net, "lif", other("lif")))
    trainer(tmp_path, callback()).fit(net, loader(2))


def test_a_cell_that_is_deleted_in_a_fit(tmp_path):
    net, use = Net(), callback()

    def delete():
        if net.current_epoch == 1:
            use.cell_trainer.del_cell("enc")

    net.on_train_epoch_start = delete
    trainer(tmp_path, use, max_epochs=2).fit(net, loader(2))
