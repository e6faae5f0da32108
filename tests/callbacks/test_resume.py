"""A run that is stopped and resumed gives bit for bit what an uninterrupted one gives."""

import copy
import functools

import callback_helpers as cb
import pytest
import torch
from lightning.pytorch.callbacks import OnExceptionCheckpoint
from test_optimization_modes import SteppedMidway
from torch.utils.data import TensorDataset

from lightning_accum import STDP, CellSpec

# Lightning's own advice: on weights from before the step, on callbacks that are in a checkpoint
# alone, on resuming within an epoch, and on saving where nothing ran.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Using ModelCheckpoint with manual optimization:UserWarning",
    "ignore:.*callbacks used to create the checkpoint:UserWarning",
    "ignore:You're resuming from a checkpoint that ended before the epoch ended:UserWarning",
    "ignore:.*was called without a model:UserWarning",
    "ignore:.*there is no last checkpoint available:UserWarning",
)


def data(batches=7):
    return cb.Resumable(TensorDataset(cb.spikes(batches * cb.BATCH)), batch_size=cb.BATCH)


class Streaming(cb.Net):
    """Its neurons go on where they stopped; their state is in the checkpoint."""

    def forward(self, x):
        return self.lif(self.fc(x.transpose(0, 1)))


halve = functools.partial(torch.optim.lr_scheduler.ExponentialLR, gamma=0.5)


def two():
    """Other parts of their groups have passed when they stop."""
    rule = STDP(**{**cb.RULE, "lr_post": 0.5})
    other = cb.callback(rule, name="b", apply_every_n_batches=2, lr=0.5)
    return [cb.callback(name="a", apply_every_n_batches=4), other]


LEARNERS = {
    "scheduled": (cb.Net, lambda: [cb.callback(apply_every_n_batches=3, lr_scheduler=halve)]),
    "by_epoch": (cb.Net, lambda: [cb.callback(lr_scheduler=halve, lr_interval="epoch")]),
    "carried": (Streaming, lambda: [cb.callback(apply_every_n_batches=3, carry=True)]),
    "two": (cb.Net, two),
}


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("batches", [0, 1, 4, 7, 8])
def test_within_a_group_an_epoch_or_between(name, batches, tmp_path):
    (model, make), path = LEARNERS[name], tmp_path / "middle.ckpt"
    whole, begun = model(), make()
    straight = cb.trainer(tmp_path, *make(), max_epochs=2)
    straight.fit(whole, data())
    run = cb.trainer(tmp_path, *begun, cb.SaveAt(batches, path), max_epochs=2 if batches else 1)
    run.fit(model(), data())
    if not batches:
        run.save_checkpoint(path)  # when the fit is over
    for learners in (make(), begun):
        rest = model()
        resumed = cb.trainer(tmp_path, *learners, max_epochs=2)
        resumed.fit(rest, data(), ckpt_path=path)
        assert torch.equal(rest.fc.weight, whole.fc.weight)
        assert resumed.global_step == straight.global_step
        assert cb.clean(rest)


def test_a_checkpoint_for_validation_leaves_nothing_for_the_next_fit(tmp_path):
    path, use, net = tmp_path / "middle.ckpt", cb.callback(apply_every_n_batches=3), cb.Validated()
    run = cb.trainer(tmp_path, cb.callback(apply_every_n_batches=3), cb.SaveAt(4, path))
    run.fit(cb.Net(), data())
    cb.trainer(tmp_path, use).validate(net, cb.loader(1, seed=9), ckpt_path=path, verbose=False)
    cb.fit_as_by_hand(cb.trainer(tmp_path, use), net, data(), cb.loader(1, seed=9), every=3)


def test_a_checkpoint_from_before_any_fit(tmp_path):
    run = cb.trainer(tmp_path, cb.callback())
    run.validate(cb.Validated(), cb.loader(1), verbose=False)
    run.save_checkpoint(tmp_path / "new.ckpt")
    run, loaders = cb.trainer(tmp_path, cb.callback()), (cb.loader(2), cb.loader(1, seed=9))
    cb.fit_as_by_hand(run, cb.Validated(), *loaders, ckpt_path=tmp_path / "new.ckpt")


def saved(folder):
    """A checkpoint of a fit, and its callback."""
    run = cb.trainer(folder, cb.callback(name="rule"))
    run.fit(cb.Net(), cb.loader(1))
    run.save_checkpoint(folder / "whole.ckpt")
    return folder / "whole.ckpt", run.callbacks[0]


def test_a_checkpoint_of_other_cells_says_which(tmp_path):
    path, net = saved(tmp_path)[0], cb.Net()
    use = cb.callback(name="rule", cells={"dec": CellSpec("fc", "lif")})
    with pytest.raises(ValueError, match=r"Missing from it: \['dec'\]; not known here: \['enc'\]"):
        cb.trainer(tmp_path, use, max_epochs=2).fit(net, cb.loader(1), ckpt_path=path)
    assert cb.clean(net)
    # the state that did not fit is forgotten
    cb.fit_as_by_hand(cb.trainer(tmp_path, use), net, cb.loader(2))


@pytest.mark.parametrize("key", ["host", "batches", "schedule"])
def test_a_state_that_lacks_a_key_says_which(key, tmp_path):
    path, begun = saved(tmp_path)
    use, net, state = cb.callback(name="rule"), cb.Net(), torch.load(path, weights_only=True)
    del state["callbacks"][begun.state_key][key]
    torch.save(state, path)
    with pytest.raises(RuntimeError, match=r"keys \['batches', 'host', 'schedule'\].*load_from"):
        cb.trainer(tmp_path, use, max_epochs=2).fit(net, cb.loader(1), ckpt_path=path)
    assert cb.clean(net)
    use = cb.callback()
    with pytest.raises(RuntimeError, match=r"keys \['optimizer', 'scheduler'\]"):
        use.load_state_dict({**begun.state_dict(), "schedule": {}})
    use.load_state_dict({"host": {}, "batches": 0, "schedule": None})
    with pytest.raises(RuntimeError, match=r"keys \['rule', 'trainer', 'updaters'\]"):
        cb.trainer(tmp_path, use).fit(cb.Net(), cb.loader(1))


def test_a_spoilt_state_is_refused_within_a_fit_too_and_changes_nothing(tmp_path):
    def load(*_):
        before, found = str(use.state_dict()), []
        good = {**use.state_dict(), "batches": 7}
        optimizer = {"optimizer": {"state": {}, "param_groups": []}, "scheduler": None}
        for spoilt in ([], {**good, "others": 3}, {**good, "schedule": optimizer}):
            with pytest.raises((RuntimeError, ValueError), match="should h") as error:
                use.load_state_dict(spoilt)
            found.append(str(error.value))
            assert str(use.state_dict()) == before
        return found

    use, look = cb.callback(lr_scheduler=halve), cb.Probe("on_train_batch_end", load)
    cb.trainer(tmp_path, use, look).fit(cb.Net(), cb.loader(2))
    for said, words in zip(look.found[1], ("`list`", "`others`", "`param_groups`"), strict=True):
        assert words in said


def test_a_fit_that_does_not_resume_begins_with_its_own_rate(tmp_path):
    use, weights = cb.callback(lr=0.5, lr_scheduler=halve), []
    for _ in range(2):
        net = cb.Net()
        cb.trainer(tmp_path, use).fit(net, cb.loader(3))
        weights.append(net.fc.weight)
    assert torch.equal(*weights)


# ---------------------------------------------------------------------------- interrupted
class Interrupted(cb.Net):
    """Fails in one batch: before, between and behind the calls of connection and neuron."""

    def __init__(self, at, what):
        super().__init__()
        self.at, self.what = at, what

    def training_step(self, batch, batch_idx):
        self.lif.reset()
        for place in ("before", "between", "behind"):
            if place == "between":
                current = self.fc(batch[0].transpose(0, 1))
            elif place == "behind":
                self.lif(current)
            if batch_idx == 4 and place == self.at:
                raise self.what


class Again(cb.Resumable):
    def state_dict(self):
        return {"done": self.done - 1}


def again():
    return Again(TensorDataset(cb.spikes(40)), batch_size=5)


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("what", [OSError, KeyboardInterrupt])
@pytest.mark.parametrize("at", ["before", "between", "behind"])
def test_an_interrupted_batch_counts_for_nothing(at, what, every, tmp_path):
    make = functools.partial(cb.callback, apply_every_n_batches=every)
    whole, rest, use, failed = cb.Net(), cb.Net(), make(), Interrupted(at, what)
    cb.trainer(tmp_path, make()).fit(whole, again())
    saver, path = OnExceptionCheckpoint(tmp_path), tmp_path / "on_exception.ckpt"
    with pytest.raises((what, SystemExit)):
        cb.trainer(tmp_path, use, saver, enable_checkpointing=True).fit(failed, again())
    assert cb.clean(failed)
    host = torch.load(path, weights_only=True)["callbacks"][use.state_key]["host"]
    kept = [value for value in host["trainer"].values() if isinstance(value, dict)]
    assert all(value.get("buffer") is None for value in kept)
    cb.trainer(tmp_path, make()).fit(rest, again(), ckpt_path=path)
    assert torch.equal(rest.fc.weight, whole.fc.weight)


def test_a_checkpoint_from_within_a_batch_has_nothing_of_it(tmp_path):
    class Saves(cb.Net):
        def training_step(self, batch, batch_idx):
            super().training_step(batch, batch_idx)
            if batch_idx == 2:
                self.trainer.save_checkpoint(tmp_path / "within.ckpt")

    whole, rest = Saves(), cb.Net()
    cb.trainer(tmp_path, cb.callback()).fit(whole, again())
    cb.trainer(tmp_path, cb.callback()).fit(rest, again(), ckpt_path=tmp_path / "within.ckpt")
    assert torch.equal(rest.fc.weight, whole.fc.weight)


def test_what_was_carried_and_pending_outlives_an_interrupted_batch(tmp_path):
    """One learner with two cells, whose optimizers step one after the other."""

    class Fails(SteppedMidway):
        def training_step(self, batch, batch_idx):
            if batch_idx == 2:
                self.optimizers()[1].step = self.fail
            super().training_step(batch, batch_idx)

        def fail(self):
            raise OSError("on purpose")

    net, cells = Fails(), {"a": CellSpec("fc", "lif"), "b": CellSpec("fc2", "lif2")}
    use = cb.callback(cells=cells, carry=True)
    states = []
    look = cb.Probe("on_train_batch_end", lambda *_: states.append(copy.deepcopy(use.state_dict())))
    with pytest.raises(OSError, match="on purpose"):
        cb.trainer(tmp_path, use, look).fit(net, cb.loader(3))
    before, after = (str(state["host"]) for state in (states[-1], use.state_dict()))
    assert len(states) == 2
    assert before == after


def test_the_strategy_is_as_it_was(tmp_path):
    run = cb.trainer(tmp_path, cb.callback(), cb.callback(cb.Noting(), name="two"))
    inside = cb.Probe("on_train_batch_end", lambda run, _: sorted(vars(run.strategy)))
    run.callbacks.append(inside)
    before = sorted(vars(run.strategy))
    run.fit(cb.Net(), cb.loader(1))
    assert set(inside.found[0]) - set(before) == {"training_step", "optimizer_step"}
    assert sorted(vars(run.strategy)) == before
