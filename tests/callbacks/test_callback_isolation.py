"""Several fits, several callbacks and copies; and nothing stays behind however a fit ends."""

import copy
import functools
import pickle

import callback_helpers as cb
import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from round_trips import by_file, by_pickle
from test_optimization_modes import OwnOptimizer
from torch.optim.lr_scheduler import StepLR
from torch.optim.swa_utils import AveragedModel

from lightning_accum import STDP, CellSpec, attach_updater, get_updater
from lightning_accum.callbacks import UpdateMonitor, UpdatePictures
from lightning_accum.optim import UpdateOptimizer

# Lightning says so where a checkpoint holds the state of a callback that is not there.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*callbacks used to create the checkpoint:UserWarning"
)


def test_one_trainer_validates_fits_and_goes_on(tmp_path):
    rule, net, data, other = cb.Noting(), cb.Validated(), cb.loader(4), cb.loader(2, seed=9)
    expected = cb.fit_by_hand(net, list(data), epochs=2)
    run = cb.trainer(tmp_path, cb.callback(rule))
    run.validate(net, other, verbose=False)  # in inference mode
    assert cb.clean(net)
    run.fit(net, data, other)
    run.validate(net, other, verbose=False)
    assert cb.clean(net)
    run.fit_loop.max_epochs = 2
    run.fit(net, data, other)
    assert run.global_step == 8
    assert cb.close(net.fc.weight, expected[-1])
    assert cb.same_windows(rule.windows, [*data, *data])
    kept = net.fc.weight.clone()  # nor does a fit of another model change it
    cb.fit_as_by_hand(cb.trainer(tmp_path, run.callbacks[0]), cb.Net(outputs=3), data)
    assert torch.equal(net.fc.weight, kept)


class TwoCells(cb.Net):
    def __init__(self):
        super().__init__()
        self.fc2, self.lif2 = cb.Net(outputs=3).fc, cb.Net(outputs=3).lif

    def forward(self, x):
        self.lif2.reset()
        self.lif2(self.fc2(x.transpose(0, 1)))
        return super().forward(x)


by_torch = functools.partial(by_file, weights_only=False)


@pytest.mark.parametrize("copied", [copy.deepcopy, by_pickle, by_torch])
def test_copies_in_every_phase_leave_out_model_and_trainer(copied, tmp_path):
    def take(phase):
        return lambda *_: copies.setdefault(phase, copied(use))

    class InStep(cb.Validated):
        def training_step(self, batch, batch_idx):
            self(batch[0])
            take("step")()

    use, data, net = cb.callback(apply_every_n_batches=2), cb.loader(3), InStep()
    copies, expected = {"new": copied(use)}, cb.fit_by_hand(net, list(data), every=2)[-1]
    probes = [cb.Probe(hook, take(hook)) for hook in cb.HOOKS]
    cb.trainer(tmp_path, use, *probes, val_check_interval=2).fit(net, data, cb.loader(2, seed=9))
    assert cb.close(net.fc.weight, expected)  # the original does not notice
    take("after")()
    assert set(copies) == {"new", *cb.HOOKS, "step", "after"}
    for phase, other in copies.items():
        held = [type(value) for value in vars(other).values()]
        assert not any(issubclass(kind, (pl.Trainer, pl.LightningModule)) for kind in held)
        assert len(pickle.dumps(other)) < 20_000
        fresh = cb.Net()
        cb.trainer(tmp_path, other).fit(fresh, data)
        assert cb.close(fresh.fc.weight, expected), phase
        assert cb.clean(fresh)
    assert cb.close(net.fc.weight, expected)  # nor do the copies change what it trained


@pytest.mark.parametrize("make", [
    lambda: UpdateMonitor("module", ["fc.*"], True),
    lambda: UpdatePictures(3, {"enc": (2, 3)}, 5),
])  # fmt: skip
def test_copies_of_a_callback_that_looks_on(make, tmp_path):
    look, made = make(), []
    twins = lambda *_: made.extend((by_pickle(look), copy.deepcopy(look)))  # noqa: E731
    copies = cb.Probe("on_train_batch_end", twins)
    board = TensorBoardLogger(tmp_path)
    cb.trainer(tmp_path, cb.callback(), look, copies, logger=board).fit(cb.Net(), cb.loader(2))
    assert len(made) == 4
    assert all(vars(twin) == vars(look) == vars(make()) for twin in made)


def test_what_runs_beside_a_batch_is_recorded_by_nobody(tmp_path):
    """A copy of the model, and a model that runs when the batch is over for one of two."""

    class Copied(cb.Net):
        def training_step(self, batch, batch_idx):
            twin = copy.deepcopy(self)
            twin(batch[0])
            twin.eval()  # turns off nothing of the original's
            super().training_step(batch, batch_idx)
            self.__dict__["twin"] = twin

    rules, net, data = [cb.Noting(), cb.Noting(lr_post=0.5)], Copied(), cb.loader(4)
    one, two = (cb.callback(rule, name=name) for rule, name in zip(rules, "ab", strict=True))
    between = cb.Probe("on_train_batch_end", lambda _, module: module(data.dataset[0][0][None]))
    cb.trainer(tmp_path, one, between, two).fit(net, data)
    for rule in rules:
        assert cb.same_windows(rule.windows, list(data))
    fresh = cb.Noting()
    expected = cb.fit_by_hand(net.twin, list(data))[-1]
    net.twin.train()
    cb.trainer(tmp_path, cb.callback(fresh)).fit(net.twin, data)
    assert cb.same_windows(fresh.windows, list(data))
    assert cb.close(net.twin.fc.weight, expected)


@pytest.mark.skipif(
    not hasattr(pl.callbacks, "EMAWeightAveraging"), reason="came with Lightning 2.6"
)
@pytest.mark.parametrize("first", [True, False])
def test_weight_averaging(first, tmp_path):
    net, data = cb.Validated(), cb.loader(6)
    steps = cb.fit_by_hand(net, list(data))
    average = pl.callbacks.EMAWeightAveraging(decay=0.5)
    run = cb.trainer(tmp_path, *cb.in_order(first, average, cb.callback()), val_check_interval=2)
    run.fit(net, data, cb.loader(1, seed=9))
    # Lightning's callbacks come in the order given: the one before sees a step one batch later.
    seen = steps[:-1] if first else steps
    mean = cb.Net().fc.weight.detach().clone()
    for i, weight in enumerate(seen):
        mean = weight.clone() if i == 0 else 0.5 * mean + 0.5 * weight
    assert cb.close(net.fc.weight, mean)
    assert cb.clean(net)
    assert isinstance(average._average_model, AveragedModel)
    assert cb.clean(average._average_model)


def half(name, **options):
    """A learner whose rule has other rates than that of the others."""
    rule = STDP(**{**cb.RULE, "lr_post": 0.5})
    return cb.callback(rule, name=name, **options)


def test_each_has_its_own_rhythm_and_reduction(tmp_path):
    net, data = cb.Net(), cb.loader(4)
    expected = cb.Net()
    pending = torch.zeros_like(expected.fc.weight)
    with torch.no_grad():
        for i, (x, _) in enumerate(data):
            pos, neg = cb.parts_by_hand(expected, x)
            pending += 0.1 * (pos - neg)
            expected.fc.weight += 0.01 * len(x) * (pos - neg)
            if i % 2:
                expected.fc.weight += pending
                pending.zero_()
    one = cb.callback(batch_reduction="sum", name="sums", lr=0.01)
    two = cb.callback(name="means", lr=0.1, apply_every_n_batches=2)
    cb.trainer(tmp_path, one, two).fit(net, data)
    assert cb.close(net.fc.weight, expected.fc.weight)


def test_the_updater_that_a_fit_attached_goes_with_it_and_that_of_the_user_stays(tmp_path):
    net, use, other = cb.Net(), cb.callback(), half("b")
    there = cb.Probe("on_train_start", lambda _, module: get_updater(module.fc))
    cb.trainer(tmp_path, use, other, there).fit(net, cb.loader(2))
    assert there.found[0] is not None
    assert get_updater(net.fc) is None
    assert use.host.updaters["enc"].weight.empty
    torch.save(net.fc, tmp_path / "fc.pt")
    assert b"lightning_accum" not in (tmp_path / "fc.pt").read_bytes()
    # the next fit goes on with it, and so with what was set on it
    cb.trainer(tmp_path, use, there).fit(net, cb.loader(2))
    assert there.found[1] is there.found[0]
    weight = net.fc.weight.detach().clone()
    cb.trainer(tmp_path, other).fit(net, cb.loader(2))  # as does one that had another beside it
    assert not torch.equal(net.fc.weight, weight)
    own = attach_updater(net.fc, "weight")
    cb.trainer(tmp_path, use, other, there).fit(net, cb.loader(2))
    assert there.found[2] is own is get_updater(net.fc)
    assert own.weight.empty


def test_cells_of_one_name_are_logged_apart(tmp_path):
    up = cb.callback(STDP(**{**cb.RULE, "lr_pre": 0.0}), name="up")
    down = cb.callback(STDP(**{**cb.RULE, "lr_post": 0.0}), name="down")
    pictures = UpdatePictures(every_n_logs=1)
    run = cb.trainer(tmp_path, up, down, pictures, logger=TensorBoardLogger(tmp_path))
    run.fit(cb.Net(), cb.loader(2))
    found = run.callback_metrics
    for name, one, other in (("up", "pos", "neg"), ("down", "neg", "pos")):
        norms = [found[f"updates/{name}/enc/weight/{side}_norm"] for side in (one, other)]
        assert norms[0] > 0 == norms[1]
    assert not any(name.startswith(("updates/enc", "activity/enc")) for name in found)
    tags = cb.events_of(run).Tags()
    assert {"weights/up/enc/weight", "weights/down/enc/weight"} <= {*tags["histograms"]}
    assert {"spikes/up/enc", "spikes/down/enc"} <= {*tags["images"]}


def test_each_has_its_own_rate_in_any_order_on_resume(tmp_path):
    def learners():
        cells = {"two": CellSpec("fc2", "lif2")}
        schedule = functools.partial(StepLR, step_size=2, gamma=0.5)
        return [cb.callback(lr_scheduler=schedule), cb.callback(cells=cells, lr=0.1)]

    path = tmp_path / "net.ckpt"
    run = cb.trainer(tmp_path, *learners())
    run.fit(TwoCells(), cb.loader(2))
    run.save_checkpoint(path)
    found = {}
    for name, order in {"same": [0, 1], "other": [1, 0], "one": [1]}.items():
        net = TwoCells()
        use = [learners()[i] for i in order]
        run = cb.trainer(tmp_path, *use, max_epochs=2)
        run.fit(net, cb.loader(2), ckpt_path=path)
        found[name] = [net.fc.weight, net.fc2.weight]
        rates = {k: float(v) for k, v in run.callback_metrics.items() if k.endswith("/lr")}
        expected = {"updates/enc/weight/lr": 0.5, "updates/two/weight/lr": 0.1}
        if name == "one":
            del expected["updates/enc/weight/lr"]
        assert rates == pytest.approx(expected)
    assert all(torch.equal(a, b) for a, b in zip(found["same"], found["other"], strict=True))
    assert torch.equal(found["one"][1], found["same"][1])


# ---------------------------------------------------------------------- nothing stays behind
def fail(*_):
    raise OSError("on purpose")


class FailsInStep(cb.Validated):
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
    with pytest.raises(OSError, match="on purpose"):
        cb.trainer(tmp_path, *cb.in_order(first, other, use)).fit(
            net, cb.loader(2), cb.loader(1, seed=9)
        )
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
        with pytest.raises(AttributeError, match=r"Linear` that a monitor watches .* `deregister"):
            torch.jit.script(module.fc)

    net, scripts = cb.Net(), cb.Probe("on_train_epoch_end", script)
    cb.trainer(tmp_path, cb.callback(), scripts).fit(net, cb.loader(1))
    assert len(scripts.found) == 1
    torch.jit.script(net.fc)
