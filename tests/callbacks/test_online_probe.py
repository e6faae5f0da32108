import copy
import functools
from pathlib import Path

import callback_helpers as cb
import lightning.pytorch as pl
import pytest
import torch
from subtests import turns
from torch.utils.data import DataLoader, TensorDataset

from lightning_accum.callbacks import OnlineProbe
from lightning_accum.metrics import MaxRateClassifier

READOUTS = ("linear", "nearest", "bayes")


class WithTest(cb.Validated):
    test_step = cb.Validated.validation_step


def probe(readout="linear", **options):
    return OnlineProbe("lif", cb.OUTPUTS, readout, **{"time_dim": 0, **options})


def other():
    x = cb.spikes(13, seed=7)
    return DataLoader(TensorDataset(x, torch.arange(13) % cb.OUTPUTS), batch_size=4)


def predict(readout, x, labels, unseen, ridge=1e-2):
    """What each readout says of unseen activity, written out."""
    classes = range(cb.OUTPUTS)
    if readout == "bayes":
        known = MaxRateClassifier(x.shape[1], cb.OUTPUTS, vote="bayes")
        known.update(x, labels)
        return known.predict(unseen)
    if readout == "nearest":
        means = [x[labels == c].mean(0) for c in classes]
        return torch.stack([(unseen - m).norm(dim=1) for m in means], 1).argmin(1)
    mean, goals = x.mean(0), torch.stack([(labels == c).double() for c in classes], 1)
    a = x - mean
    products = a.T @ a
    penalty = ridge * products.diagonal().mean() * torch.eye(x.shape[1], dtype=x.dtype)
    weights = torch.linalg.inv(products + penalty) @ a.T @ (goals - goals.mean(0))
    return ((unseen - mean) @ weights + goals.mean(0)).argmax(1)


def share(found, labels):
    return (found == labels).double().mean().item()


@turns("readout", READOUTS)
def test_the_accuracies_are_those_of_a_readout_written_out(readout, tmp_path):
    """In training by the epoch before, in validation by this one, in tests by the last."""
    net, seen = WithTest(), cb.Probe("on_train_batch_end", lambda *_: net.shown.sum(0).clone())
    net.lif.register_forward_hook(lambda module, args, output: setattr(net, "shown", output))
    run = cb.trainer(tmp_path, cb.callback(), probe(readout), seen, max_epochs=3)
    run.fit(net, cb.loader(8), other())
    labels = torch.arange(8 * 5) % cb.OUTPUTS
    before, last = torch.cat(seen.found[8:16]), torch.cat(seen.found[16:])
    unseen = net(other().dataset.tensors[0]).sum(0)
    found = {
        name.split("/")[-1]: v.item() for name, v in run.callback_metrics.items() if "be/" in name
    }
    found |= {"test": run.test(net, other(), verbose=False)[0][f"{readout}_probe/lif/test"]}
    after = share(predict(readout, last, labels, unseen), torch.arange(13) % cb.OUTPUTS)
    known = share(predict(readout, before, labels, last), labels)
    assert found == pytest.approx({"train": known, "val": after, "test": after}, abs=1e-6)
    assert 0 < known < 1
    net.lif._forward_hooks.clear()
    assert cb.clean(net)


def test_the_model_trains_bit_for_bit_as_without_it(tmp_path):
    found = []
    for probes in ([], [probe("linear"), probe("nearest")]):
        pl.seed_everything(0, verbose=False)
        run, net = cb.trainer(tmp_path, cb.callback(), *probes, max_epochs=2), cb.Validated()
        shuffled = DataLoader(cb.loader().dataset, batch_size=5, shuffle=True)
        run.fit(net, shuffled, other())
        found.append([*net.state_dict().values(), run.global_step, torch.get_rng_state()])
    torch.testing.assert_close(*found, rtol=0, atol=0)


def test_a_call_for_each_step_is_read_as_a_sequence(tmp_path):
    class Steps(cb.Validated):
        def forward(self, x):
            return torch.stack([self.relay(step) for step in super().forward(x)])

    accuracies = []
    for layer, time_dim in (("lif", 0), ("relay", None)):
        net = Steps()
        net.relay = torch.nn.Identity()
        run = cb.trainer(tmp_path, OnlineProbe(layer, cb.OUTPUTS, time_dim=time_dim), max_epochs=2)
        run.fit(net, cb.loader(), other())
        accuracies.append([*run.callback_metrics.values()])
    assert len(accuracies[0]) == 2
    assert accuracies[0] == accuracies[1]


@pytest.mark.filterwarnings("ignore:Using ModelCheckpoint with manual optimization:UserWarning")
@turns("when", ["on_train_batch_end", "on_validation_end", "on_train_end"])
def test_a_resumed_fit_goes_on_with_its_readout(when, tmp_path):
    """From an epoch's last batch on, as from its end."""
    path = Path(tmp_path) / f"{when}.ckpt"
    whole = cb.trainer(tmp_path, cb.callback(), last := probe(), max_epochs=3)
    whole.fit(cb.Validated(), cb.loader(), other())
    saver = cb.Probe(when, lambda trainer, _: trainer.save_checkpoint(path))
    run = cb.trainer(tmp_path, cb.callback(), probe(), saver, max_epochs=1)
    run.fit(net := cb.Validated(), cb.loader(), other())
    again = cb.trainer(tmp_path, cb.callback(), copy.deepcopy(resumed := probe()), max_epochs=3)
    again.fit(net, cb.loader(), other(), ckpt_path=path)
    assert resumed.state_key == last.state_key
    torch.testing.assert_close(dict(again.callback_metrics), dict(whole.callback_metrics))


@turns("options, error, words", [
    ({"readout": "svm"}, ValueError, "`readout` should be one of"),
    ({"num_classes": 2.5}, TypeError, "`num_classes`"),
    ({"num_classes": 3}, ValueError, "between 0 and 2. Found values from 0 to 3"),
    ({"layers": "lf"}, AttributeError, "Found `lf`: did you mean `lif`"),
    ({"layers": "spare"}, RuntimeError, "`spare` .* no call"),
    ({"labels": 2}, TypeError, r"Found `labels = 2` of a list"),
    ({"labels": 0}, TypeError, "Found `labels = 0`"),
    ({"time_dim": None}, ValueError, "Found 7 for 5 labels, `time_dim = None`"),
    ({"layers": "fc", "readout": "bayes"}, ValueError, "negative values: take"),
    ({"layers": "wide"}, ValueError, "at most 8192 features. Found 10000: probe a pooled"),
])  # fmt: skip
def test_what_is_refused(options, error, words, tmp_path):
    class Other(cb.Net):
        def forward(self, x):
            self.wide(torch.zeros(1, len(x), 10_000))
            return super().forward(x)

    net = Other()
    net.spare, net.wide = torch.nn.Identity(), torch.nn.Identity()
    net.fc.weight.data.neg_()
    given = {"layers": "lif", "num_classes": cb.OUTPUTS, "time_dim": 0}
    with pytest.raises(error, match=words):
        cb.trainer(tmp_path, OnlineProbe(**{**given, **options})).fit(net, cb.loader())
    assert cb.clean(net)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The state of a probe in the middle of an epoch, with its readout of the one before."""
    use = probe()
    states = cb.Probe("on_train_batch_end", lambda *_: copy.deepcopy(use.state_dict()))
    folder = tmp_path_factory.mktemp("saved")
    cb.trainer(folder, use, states, max_epochs=2).fit(cb.Net(), cb.loader(2))
    return states.found[2]


def changed(state, *path, to):
    state = copy.deepcopy(state)
    *outer, last = path
    functools.reduce(dict.__getitem__, outer, state)[last] = to
    return state


@turns("path, to, words", [
    (["sums"], None, "`sums`. Found `None`"),
    (["sums"], {"other": {}}, "as `sums`"),
    (["sums", "lif"], 3, "`sums` of `lif`, should have the keys"),
    (["sums", "lif"], {}, "`sums` of `lif`, should have the keys"),
    (["sums", "lif", "counts"], "x", "as `counts`"),
    (["sums", "lif", "counts"], torch.ones(3), r"a tensor \(4,\) as `counts`"),
    (["sums", "lif", "sums"], torch.ones(()), r"as `sums`"),
    (["sums", "lif", "products"], torch.ones(4, 5), r"a tensor \(4, 4\) as `products`"),
    (["scores", "lif", "weights"], torch.ones(4, 4, dtype=torch.long), "as `weights`"),
    (["scores", "lif", "biases"], torch.ones(2, 2), r"a tensor \(4,\) as `biases`"),
])  # fmt: skip
def test_a_spoilt_state_is_refused_and_changes_nothing(path, to, words, saved):
    use = probe()
    use.load_state_dict(saved)
    for state in (changed(saved, *path, to=to), {}, []):
        with pytest.raises(RuntimeError, match=words if state else "should have the keys"):
            use.load_state_dict(state)
        torch.testing.assert_close(use.state_dict(), saved)
