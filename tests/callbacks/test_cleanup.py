"""A model is the same in a fit, and nothing stays behind however it ends."""

import callback_helpers as cb
import pytest
import torch
from test_three_ways import OwnOptimizer
from torch import nn

from lightning_accum import CellSpec, Hebb
from lightning_accum.optim import UpdateOptimizer


def fail(*_):
    raise OSError("on purpose")


class FailsInStep(cb.Validated):
    """Raises at the end of the second training step."""

    def training_step(self, batch, batch_idx):
        super().training_step(batch, batch_idx)
        if self.fails and batch_idx == 1:
            fail()


@pytest.mark.parametrize("hook", [*cb.HOOKS, "training_step"])
@pytest.mark.parametrize("first", [True, False])
def test_after_something_fails_the_next_fit_begins_with_nothing(hook, first, tmp_path):
    """Another callback, or the second training step, with an update pending."""
    net, use, other = FailsInStep(), cb.callback(apply_every_n_batches=2), cb.Probe(hook, fail)
    net.fails = hook == "training_step"
    order = [other, use] if first else [use, other]
    with pytest.raises(OSError, match="on purpose"):
        cb.trainer(tmp_path, *order).fit(net, cb.loader(2), cb.loader(1, seed=9))
    assert cb.clean(net)
    net.fails = False
    net.train()  # Lightning does not, after a failure in validation
    cb.fit_as_by_hand(cb.trainer(tmp_path, use), net, cb.loader(3), cb.loader(1, seed=9), every=2)


def test_the_modules_own_optimizer_is_let_go(tmp_path):
    net = OwnOptimizer()
    kept = UpdateOptimizer(net.parameters())
    net.configure_optimizers = lambda: kept
    expected = cb.fit_by_hand(cb.Net(), list(cb.loader(3)), epochs=2)[-1]
    for _ in range(2):
        cb.trainer(tmp_path, cb.callback()).fit(net, cb.loader(3))
        assert not kept._updaters
        assert not kept._prepare
    assert cb.close(net.fc.weight, expected)


class TwoLayers(cb.Validated):
    """The second layer is left in evaluation mode."""

    def __init__(self):
        super().__init__()
        self.other = nn.Linear(4, 4, bias=False, dtype=torch.float64)
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.relu(self.other(super().forward(x)))

    def on_train_start(self):
        self.other.eval()
        self.relu.eval()


def test_a_layer_in_evaluation_mode_rests_and_the_others_learn(tmp_path):
    rule, data, net = cb.Noting(), cb.loader(5), TwoLayers()
    cells = {"enc": CellSpec("fc", "lif"), "rests": CellSpec("other", "relu")}
    before = net.other.weight.clone()
    cb.trainer(tmp_path, cb.callback(rule, cells=cells), val_check_interval=2).fit(
        net, data, cb.loader(2, seed=9)
    )
    assert cb.same_windows(rule.windows, list(data))
    assert torch.equal(net.other.weight, before)


def test_the_model_has_the_same_modules_at_every_moment(tmp_path):
    moments = ["on_fit_start", "on_sanity_check_start", "on_train_batch_start"]
    moments += ["on_validation_start"]
    probes = [cb.Probe(hook, lambda _, module: list(module.named_modules())) for hook in moments]
    net = cb.Validated()
    expected = list(net.named_modules())
    cb.trainer(tmp_path, cb.callback(), *probes).fit(net, cb.loader(2), cb.loader(2, seed=9))
    assert all(found == expected for probe in probes for found in probe.found)


def test_torchscript_is_refused_with_the_reason_in_a_fit_and_works_after_it(tmp_path):
    class Rates(cb.Net):
        def __init__(self):
            super().__init__()
            self.lif = nn.Threshold(0.5, 0.0)  # which torch can script

        def forward(self, x):
            return self.lif(self.fc(x.transpose(0, 1)))

    def script(_, module):
        with pytest.raises(AttributeError, match=r"Linear` that a monitor watches .* `eval"):
            torch.jit.script(module.fc)

    net, rule = Rates(), Hebb(0.01, time_dim=0)
    cb.trainer(tmp_path, cb.callback(rule), cb.Probe("on_train_epoch_end", script)).fit(
        net, cb.loader(1)
    )
    torch.jit.script(net.fc)


def test_what_runs_when_a_batch_is_over_for_one_is_recorded_by_none(tmp_path):
    rules, data = [cb.Noting(), cb.Noting(lr_post=0.5)], cb.loader(4)
    one, two = (cb.callback(rule, name=name) for rule, name in zip(rules, "ab", strict=True))
    between = cb.Probe("on_train_batch_end", lambda _, module: module(data.dataset[0][0][None]))
    cb.trainer(tmp_path, one, between, two).fit(cb.Net(), data)
    for rule in rules:
        assert cb.same_windows(rule.windows, list(data))


# Lightning says so where a checkpoint holds the state of a callback that is not there.
@pytest.mark.filterwarnings("ignore:.*callbacks used to create the checkpoint:UserWarning")
def test_state_dict_and_checkpoint_are_those_of_the_plain_module(tmp_path):
    keys = cb.Probe("on_train_batch_start", lambda _, module: list(module.state_dict()))
    run = cb.trainer(tmp_path, cb.callback(), keys)
    net = cb.Net()
    run.fit(net, cb.loader(2))
    run.save_checkpoint(tmp_path / "net.ckpt")
    assert keys.found == [list(cb.Net().state_dict())] * 2
    assert list(net.state_dict()) == list(cb.Net().state_dict())
    loaded = cb.Net.load_from_checkpoint(tmp_path / "net.ckpt")
    assert torch.equal(loaded.fc.weight, net.fc.weight)
    # and a trainer that knows nothing of the callback takes it too
    other = cb.Validated()
    cb.trainer(tmp_path).validate(
        other, cb.loader(1), ckpt_path=tmp_path / "net.ckpt", verbose=False
    )
    assert torch.equal(other.fc.weight, net.fc.weight)
