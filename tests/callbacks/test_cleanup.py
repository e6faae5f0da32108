"""A model is the same in a fit, and nothing stays behind however it ends."""

import callback_helpers as cb
import pytest
import torch
from test_three_ways import OwnOptimizer

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


# Lightning says so where a checkpoint holds the state of a callback that is not there.
@pytest.mark.filterwarnings("ignore:.*callbacks used to create the checkpoint:UserWarning")
def test_modules_state_dict_and_checkpoint_are_those_of_the_plain_module(tmp_path):
    def plain(_, module):
        assert list(module.named_modules()) == modules
        assert list(module.state_dict()) == list(cb.Net().state_dict())

    moments = "fit_start", "sanity_check_start", "train_batch_start", "validation_start"
    probes = [cb.Probe(f"on_{moment}", plain) for moment in moments]
    net, path = cb.Validated(), tmp_path / "net.ckpt"
    modules = list(net.named_modules())
    run = cb.trainer(tmp_path, cb.callback(), *probes)
    run.fit(net, cb.loader(2), cb.loader(2, seed=9))
    plain(run, net)
    assert all(probe.found for probe in probes)
    run.save_checkpoint(path)
    loaded = cb.Net.load_from_checkpoint(path)
    # and a trainer that knows nothing of the callback takes it too
    other = cb.Validated()
    cb.trainer(tmp_path).validate(other, cb.loader(1), ckpt_path=path, verbose=False)
    assert all(torch.equal(each.fc.weight, net.fc.weight) for each in (loaded, other))


def test_torchscript_is_refused_with_the_reason_in_a_fit_and_works_after_it(tmp_path):
    def script(_, module):
        with pytest.raises(AttributeError, match=r"Linear` that a monitor watches .* `eval"):
            torch.jit.script(module.fc)

    net, scripts = cb.Net(), cb.Probe("on_train_epoch_end", script)
    cb.trainer(tmp_path, cb.callback(), scripts).fit(net, cb.loader(1))
    assert len(scripts.found) == 1
    torch.jit.script(net.fc)


def test_what_runs_when_a_batch_is_over_for_one_is_recorded_by_none(tmp_path):
    rules, data = [cb.Noting(), cb.Noting(lr_post=0.5)], cb.loader(4)
    one, two = (cb.callback(rule, name=name) for rule, name in zip(rules, "ab", strict=True))
    between = cb.Probe("on_train_batch_end", lambda _, module: module(data.dataset[0][0][None]))
    cb.trainer(tmp_path, one, between, two).fit(cb.Net(), data)
    for rule in rules:
        assert cb.same_windows(rule.windows, list(data))
