"""What is wrong is told, with what was found and how to mend it; and all can be used afterwards."""

import copy
import warnings

import callback_helpers as cb
import pytest
import torch
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
    net, rule = cb.Net(), STDP(**cb.RULE, time_dim=0)
    with pytest.raises(error, match=message):
        cb.trainer(tmp_path, cb.callback(rule, cells={"enc": spec})).fit(net, cb.loader(2))
    assert cb.clean(net)
    expected = cb.fit_by_hand(net, list(cb.loader(2)))[-1]
    cb.trainer(tmp_path, cb.callback(rule)).fit(net, cb.loader(2))  # the same rule, spelled right
    assert cb.close(net.fc.weight, expected)


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
        cb.callback(**options)


class Poisoned(STDP):
    """Gives NaN in the calls that are named."""

    def __init__(self, calls):
        super().__init__(**cb.RULE, time_dim=0)
        self.calls, self.called = calls, 0

    def terms(self, window, h):
        self.called += 1
        if self.called in self.calls:
            return [Term(1.0, window.post.values() * torch.nan, window.pre)]
        return super().terms(window, h)


def test_nan_raises_and_the_next_fit_is_free_of_it(tmp_path):
    net, use = cb.Net(), cb.callback(Poisoned({2}), nonfinite="raise")
    first, *rest = list(cb.loader(3))
    with pytest.raises(NonFiniteUpdateError, match=r"weight.*cell enc.*NaN or Inf"):
        cb.trainer(tmp_path, use).fit(net, cb.loader(3))
    assert cb.close(net.fc.weight, cb.fit_by_hand(cb.Net(), [first])[-1])
    assert cb.clean(net)
    expected = cb.fit_by_hand(net, [first, *rest])[-1]
    cb.trainer(tmp_path, use).fit(net, cb.loader(3))
    assert cb.close(net.fc.weight, expected)


def test_nan_is_skipped_and_counted_for_each_fit(tmp_path):
    net, use = cb.Net(), cb.callback(Poisoned({2, 3}))
    batches = list(cb.loader(4))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        run = cb.trainer(tmp_path, use)
        run.fit(net, cb.loader(4))
    (told,) = [str(w.message) for w in found if issubclass(w.category, RuntimeWarning)]
    assert "NaN or Inf in 2 of 4 updates of `weight` of cell `enc`, which were dropped" in told
    assert run.global_step == 4
    assert cb.close(net.fc.weight, cb.fit_by_hand(cb.Net(), [batches[0], batches[3]])[-1])
    cb.trainer(tmp_path, use).fit(net, cb.loader(4))  # nothing more to tell: a warning would raise


def test_nan_may_be_ignored(tmp_path):
    net = cb.Net()
    with cb.warning_of("Found NaN or Inf in `enc.weight`, which came"):
        cb.trainer(tmp_path, cb.callback(Poisoned({2}), nonfinite="ignore")).fit(net, cb.loader(3))
    assert torch.isnan(net.fc.weight).any()
    assert cb.hooks(net) == 0


class Rewarding(cb.Net):
    def training_step(self, batch, batch_idx):
        self(batch[0])
        return {"score": torch.tensor(0.5)}


class Transposed(cb.Net):
    """Hands the neuron another batch than the connection."""

    def training_step(self, batch, batch_idx):
        self.lif(self.fc(batch[0].transpose(0, 1))[:, :2])


class Own(cb.Net):
    """Returns an optimizer of its own for some of its parameters."""

    def configure_optimizers(self):
        return UpdateOptimizer(self.fc.parameters())


class HalfOwn(Own):
    def __init__(self):
        super().__init__()
        self.fc2, self.lif2 = cb.Net().fc, cb.Net().lif


class HalfEvaluated(cb.Net):
    def on_train_start(self):
        self.lif.eval()


TWO = {"enc": CellSpec("fc", "lif"), "two": CellSpec("fc2", "lif2")}
GAIN, KEYS = {"input_keys": {"reward": "gain"}}, "`input_keys` should hold keys .*'gain'.*and "
REFUSED = {
    "no cells": (cb.Net, {"cells": None}, ValueError, r"at least one cell\. Found none"),
    "half a cell in evaluation mode": (
        HalfEvaluated, {}, ValueError, r"7 steps of .* a LIF, is in evaluation mode"
    ),
    "another batch behind the connection": (
        Transposed, {}, ValueError, r"Cell `enc`.*same batch"
    ),
    "another reward": (Rewarding, GAIN, KeyError, KEYS + r"\['score'\]"),
    "no reward": (cb.Net, GAIN, KeyError, KEYS + r"\[\]"),
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
        cb.trainer(tmp_path, cb.callback(**options)).fit(net, cb.loader(1))
    assert cb.clean(net)


def test_two_of_a_name_are_told_by_lightning(tmp_path):
    with pytest.raises(RuntimeError, match="state_key"):
        cb.trainer(tmp_path, cb.callback(), cb.callback())
    rule = STDP(**cb.RULE, time_dim=0)
    assert CellTrainerCallback(rule, name="one").state_key != cb.callback(name="two").state_key


@pytest.mark.parametrize("hook", ["on_fit_start", "on_train_start"])
def test_a_callback_that_is_added_during_a_fit(hook, tmp_path):
    net = cb.Net()
    setattr(net, hook, lambda: net.trainer.callbacks.append(cb.callback()))
    with pytest.raises(RuntimeError, match=r"added later: pass it to `Trainer\(callbacks"):
        cb.trainer(tmp_path).fit(net, cb.loader(2))


# ---------------------------------------------------------------------- one rule, one callback
def test_a_rule_of_two_callbacks(tmp_path):
    rule, net = STDP(**cb.RULE, time_dim=0), cb.Net()
    before = copy.deepcopy(net.state_dict())
    one, two = cb.callback(rule), cb.callback(rule, name="two")
    with pytest.raises(ValueError, match=r"Found the same STDP in `STDP,enc` and `two`"):
        cb.trainer(tmp_path, one, two).fit(net, cb.loader(2))
    assert cb.clean(net)
    assert torch.equal(net.fc.weight, before["fc.weight"])
    cb.trainer(tmp_path, one).fit(net, cb.loader(2))  # one after the other is fine
    cb.trainer(tmp_path, two).fit(net, cb.loader(2))
    assert not torch.equal(net.fc.weight, before["fc.weight"])


# ---------------------------------------------------------------------- modules that are replaced
def other(name):
    if name == "lif":
        return LIF(cb.OUTPUTS, time_dim=0)
    return nn.Linear(cb.INPUTS, cb.OUTPUTS, bias=False, dtype=torch.float64)


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("name", ["fc", "lif"])
@pytest.mark.parametrize("hook", ["on_fit_start", "on_train_start", "on_train_epoch_start"])
def test_a_module_that_is_replaced(hook, name, keep, tmp_path):
    net = cb.Net()
    kept = []

    def replace(*_):
        if keep:
            kept.append(getattr(net, name))
        setattr(net, name, other(name))

    setattr(net, hook, replace)
    with pytest.raises(RuntimeError, match=rf"Found another .*`{name}` (than|or) "):
        cb.trainer(tmp_path, cb.callback()).fit(net, cb.loader(2))
    assert cb.clean(net)


@pytest.mark.parametrize("hook", ["setup", "configure_model"])
def test_a_module_that_is_replaced_in_time(hook, tmp_path):
    net = cb.Net()
    setattr(net, hook, lambda *_, **__: setattr(net, "lif", other("lif")))
    cb.trainer(tmp_path, cb.callback()).fit(net, cb.loader(2))


def test_a_cell_that_is_deleted_in_a_fit(tmp_path):
    net, use = cb.Net(), cb.callback()

    def delete():
        if net.current_epoch == 1:
            use.cell_trainer.del_cell("enc")

    net.on_train_epoch_start = delete
    cb.trainer(tmp_path, use, max_epochs=2).fit(net, cb.loader(2))
