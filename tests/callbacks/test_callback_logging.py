"""What is logged is what was applied, on logging steps alone, and changes nothing."""

import csv
import gc
from pathlib import Path

import callback_helpers as cb
import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from test_update_monitor import expected_of

from lightning_accum import STDP, CellSpec, RuleTrainer, attach_updater, get_updater
from lightning_accum.callbacks import FabricCellTrainer
from lightning_accum.callbacks._logging import Before
from lightning_accum.cells.trainer import updaters_of
from lightning_accum.optim import UpdateOptimizer


def fit(net, path, **options):
    """The numbers in the event files of a fit that is validated after every batch."""
    ours = {k: options.pop(k) for k in list(options) if k in ("apply_every_n_batches", "log")}
    board = TensorBoardLogger(path, name="")
    run = cb.trainer(path, cb.callback(**ours), logger=board, val_check_interval=1, **options)
    run.fit(net, cb.loader(8), cb.loader(1, seed=9))
    return cb.scalars(run)


def statistics(before, after, pos, neg):
    return expected_of({"": before}, {"": after}) | {
        "pos_norm": float(pos.norm()), "neg_norm": float(neg.norm()), "at_lower": 0.0,
        "at_upper": 0.0, "at_bound": 0.0, "lr": 1.0,
        "balance": float((pos.sum() - neg.sum()) / (pos.sum() + neg.sum())),
    }  # fmt: skip


@pytest.mark.parametrize(("every", "log_every", "applied_at"), [
    (1, 1, {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6, 7: 7, 8: 8}),  # logging step: last update
    (1, 3, {3: 3, 6: 6}),
    (3, 1, {3: 3, 4: 3, 5: 3, 6: 6, 7: 6, 8: 8}),  # Lightning repeats what it has
    (3, 4, {4: 3, 8: 8}),  # they never coincide but at the epoch's end
    (3, 5, {5: 3}),
    (4, 3, {6: 4}),
])  # fmt: skip
def test_values_are_those_of_update_and_batch(every, log_every, applied_at, tmp_path):
    net, batches = cb.Validated(), list(cb.loader(8))
    with torch.no_grad():
        net.fc.weight[0] = 0  # one of four neurons never fires
    weights = [net.fc.weight.detach().clone(), *cb.fit_by_hand(net, batches, every=every)]
    ends = sorted({*range(every, 9, every), 8})  # the batches at which updates are applied
    found = fit(net, tmp_path, apply_every_n_batches=every, log_every_n_steps=log_every)
    expected = {}
    for step, at in applied_at.items():
        group = ends.index(at)
        before, after = weights[group], weights[group + 1]
        past = cb.Net()
        past.fc.weight.data.copy_(before)
        start = ends[group - 1] if group else 0
        sides = zip(*[cb.parts_by_hand(past, x) for x, _ in batches[start:at]], strict=True)
        pos, neg = (torch.stack(side).sum(0) for side in sides)
        for name, value in statistics(before, after, pos, neg).items():
            expected.setdefault(f"updates/enc/weight/{name}", {})[step - 1] = value
    for i in range(log_every - 1, 8, log_every):
        past = cb.Net()
        past.fc.weight.data.copy_(weights[i // every])
        counts = past(batches[i][0]).sum((0, 1))
        rate = float(counts.mean()) / (cb.STEPS * cb.BATCH)
        shares = {"firing_rate": rate, "silent_share": float((counts == 0).double().mean())}
        for name, value in shares.items():
            expected.setdefault(f"activity/enc/{name}", {})[i] = value
    assert found == {tag: pytest.approx(each, rel=1e-5) for tag, each in expected.items()}


def test_nothing_is_logged_by_one_that_does_not(tmp_path):
    assert fit(cb.Validated(), tmp_path, log=False, log_every_n_steps=1) == {}


@pytest.mark.parametrize(("every", "log_every", "expected"), [
    (1, 4, {4, 8}),
    (3, 4, {3, 6, 8}),  # every update that may be the last before a logging step
    (2, 4, {4, 8}),
    (2, 5, {4}),
    (1, 50, set()),
])  # fmt: skip
@pytest.mark.parametrize("summary", [True, False])
def test_nothing_is_computed_for_other_steps(summary, every, log_every, expected, tmp_path):
    """Counts the measurements that exist while an update is applied, from a constraint."""
    seen, applied = {}, sorted({*range(every, 9, every), 8})
    if summary:  # of the fit: updates 1, 2, 4 and 8
        expected = expected | {applied[n - 1] for n in (1, 2, 4, 8) if n <= len(applied)}
    use = cb.callback(apply_every_n_batches=every, summary=summary)

    def note(_):
        step = run.fit_loop.epoch_loop.batch_progress.current.started
        seen[step] = sum(type(thing) is Before for thing in gc.get_objects())

    def begin(*_):
        for updater in use.host.updaters.values():
            updater.register_constraint(note)
        seen.clear()  # it was tried

    gc.collect()
    begins, options = cb.Probe("on_train_start", begin), {"log_every_n_steps": log_every}
    run = cb.trainer(tmp_path, use, begins, logger=TensorBoardLogger(tmp_path), **options)
    run.fit(cb.Net(), cb.loader(8))
    assert seen == {step: int(step in expected) for step in applied}
    wanted = {step - 1 for step in range(log_every, 9, log_every)}
    # what is measured for the summary is not logged
    assert set(cb.scalars(run).get("updates/enc/weight/ratio", {})) == wanted


class Counting(cb.Net):
    """Logs a value of its own, and counts how often values are logged by ``log_dict``."""

    logged = 0

    def training_step(self, batch, batch_idx):
        super().training_step(batch, batch_idx)
        self.log("mine", float(batch_idx))

    def log_dict(self, values, **options):
        self.logged += bool(values)
        super().log_dict(values, **options)


class Last(pl.Callback):
    def on_train_batch_end(self, *args):
        self.log("last", float(args[-1]))


@pytest.mark.parametrize("prog_bar", [False, True])
def test_one_row_for_each_step_in_every_logger(prog_bar, tmp_path):
    """Only the first logging step of an epoch takes Lightning's slow way."""
    board, table = TensorBoardLogger(tmp_path, name=""), CSVLogger(tmp_path, name="table")
    net, use = Counting(), cb.callback(prog_bar=prog_bar)
    ratio = "updates/enc/weight/ratio"

    def note(run, _):
        assert run.progress_bar_metrics.keys() <= ({ratio} if prog_bar else set())
        shown = (run.callback_metrics, run.logged_metrics)
        return [float(values.get(ratio, torch.nan)) for values in shown]

    end = cb.Probe("on_train_batch_end", note)
    run = cb.trainer(
        tmp_path, use, Last(), end, logger=[board, table], log_every_n_steps=2, max_epochs=2
    )
    run.fit(net, cb.loader(6))
    assert net.logged == 2 * (1 + prog_bar)
    found = cb.scalars(run)
    with open(Path(table.log_dir) / "metrics.csv") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == [1, 3, 5, 7, 9, 11]
    assert {"mine", "last", ratio} < set(found)
    for tag, values in found.items():
        assert [float(row[tag]) for row in rows] == pytest.approx(list(values.values()), rel=1e-6)
    expected = pytest.approx(list(found[ratio].values()), rel=1e-6)
    assert len(set(found[ratio].values())) == 6
    for shown in zip(*end.found[1::2], strict=True):
        assert list(shown) == expected


def seen_of(learner):
    """Notes whether the difference of both parts is pending after each evaluation."""
    seen = []
    learner.cell_trainer.register_forward_hook(
        lambda rule, *_: seen.append(
            next(iter(updaters_of(rule).values()))[0].weight.pending.combined
        ),
    )
    return seen


def combined_in(net, path, every=1, log=True, **options):
    learns = cb.callback(apply_every_n_batches=every, log=log)
    seen = seen_of(learns)
    cb.trainer(path, learns, logger=CSVLogger(path), **options).fit(net, cb.loader(6))
    assert get_updater(net.fc) is None or get_updater(net.fc).weight.keep_parts is not False
    return seen


def test_weights_do_not_depend_on_what_is_logged(tmp_path):
    weights = []
    for log, log_every in ((True, 1), (True, 4), (True, 50), (False, 1)):
        net = cb.Net()
        assert all(combined_in(net, tmp_path, log=log, log_every_n_steps=log_every))
        weights.append(net.fc.weight)
    assert not torch.equal(weights[0], cb.Net().fc.weight)
    assert all(torch.equal(weight, weights[0]) for weight in weights)


def own_optimizer(net):
    net.optimizers_given, net.automatic_optimization = UpdateOptimizer([net.fc.weight]), True


def kept(net):
    attach_updater(net.fc, "weight").weight.keep_parts = True


def bounded(net):
    attach_updater(net.fc, "weight").weight.fullbound("power", 1.0, 0.0, power=1.0)


@pytest.mark.parametrize(
    ("prepare", "every"), [(kept, 1), (bounded, 1), (lambda net: None, 2), (own_optimizer, None)]
)
def test_parts_are_kept_where_something_needs_each(prepare, every, tmp_path):
    """Also while updates of several batches are pending, and where the module applies them."""
    net = cb.Net()
    prepare(net)
    assert not any(combined_in(net, tmp_path, every=every))


def test_a_step_of_fabric_combines_and_what_it_leaves_pending_has_parts():
    net = cb.Net()
    learner = FabricCellTrainer(STDP(**cb.RULE), {"enc": CellSpec("fc", "lif")}, time_dim=0)
    seen = seen_of(learner)
    learner.setup(net)
    (x, _), *_ = cb.loader()
    for evaluate in (learner.step, learner.accumulate):
        with learner.batch():
            net(x)
        evaluate()
    assert seen == [True, False]
    assert get_updater(net.fc).weight.neg is not None
    learner.release()


@pytest.mark.parametrize("every", [1, 2])
def test_a_batch_that_is_evaluated_by_hand_has_the_same_statistics(every, tmp_path):
    class ByHand(cb.Net):
        def training_step(self, batch, batch_idx):
            super().training_step(batch, batch_idx)
            rule()

    found = []
    for kind in (cb.Net, ByHand):
        rule = RuleTrainer(STDP(**cb.RULE), time_dim=0)
        options = {"logger": CSVLogger(tmp_path), "log_every_n_steps": every}
        fits = cb.trainer(tmp_path, cb.callback(rule), **options)
        fits.fit(kind(), cb.loader(6))
        names = [f"updates/enc/weight/{name}" for name in ("ratio", "pos_norm", "neg_norm")]
        found.append([float(fits.logged_metrics[name]) for name in names])
    assert found[0] == pytest.approx(found[1])
    assert all(found[0])
