"""Other callbacks of Lightning's work as without a learner."""

import itertools

import callback_helpers as cb
import pytest
import torch
from lightning.pytorch import callbacks as plc
from test_optimization_modes import WAYS, Automatic, AutomaticHead
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Backbone(AutomaticHead):
    """Its local layer stands in what is frozen at first."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.ModuleDict({"fc": self.fc.requires_grad_(True)})


def test_finetuning_changes_the_rates_of_the_module_alone(tmp_path):
    def rates(run, _):
        return [[group["lr"] for group in optimizer.param_groups] for optimizer in run.optimizers]

    found = []
    for learners in ([], [cb.callback()]):
        seen = cb.Probe("on_train_epoch_end", rates)
        tunes = plc.BackboneFinetuning(
            1, lambda _: 2.0, backbone_initial_lr=1e-4, should_align=False
        )
        cb.trainer(tmp_path, *learners, tunes, seen, max_epochs=4).fit(Backbone(), cb.loader(2))
        found.append(seen.found)
    assert found[0] == found[1]
    assert len(found[0]) == 4


class Tuned(AutomaticHead):
    lr, batch_size, steps = 0.1, 2, 0

    def training_step(self, *args):
        self.steps += 1
        return super().training_step(*args)

    def configure_optimizers(self):
        return torch.optim.SGD(self.readouts.parameters(), lr=self.lr)

    def train_dataloader(self):
        x = cb.spikes(4 * cb.BATCH)
        return DataLoader(TensorDataset(x, torch.arange(len(x)) % 4), self.batch_size)


class TunedAlone(Tuned):
    def training_step(self, batch, batch_idx):
        self(batch[0])

    def configure_optimizers(self):
        return None


class AtEpochs(plc.LearningRateFinder):
    """The one of Lightning's documentation."""

    def __init__(self):
        super().__init__(num_training_steps=3, early_stop_threshold=None, update_attr=False)

    def on_fit_start(self, *_):
        return

    def on_train_epoch_start(self, run, module):
        self.lr_find(run, module)


def batches_lost_after(finder, folder):
    """Batches that Lightning, as 2.5.0, leaves out after a search, with no learner at all."""
    net = Tuned()
    cb.trainer(folder, finder, max_epochs=2, enable_checkpointing=True).fit(net)
    return 2 * len(net.train_dataloader()) + finder._num_training_steps - net.steps


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("find", [AtEpochs, lambda: plc.LearningRateFinder(num_training_steps=3)])
@pytest.mark.parametrize("first", [True, False])
def test_a_search_for_a_rate_is_not_learned(find, first, tmp_path):
    rule, net, finder = cb.Noting(), Tuned(), find()
    data = list(net.train_dataloader())
    lost = batches_lost_after(find(), tmp_path)
    trained = [*data[lost:], *data]
    expected = cb.fit_by_hand(net, trained)[-1]
    order = cb.in_order(first, finder, cb.callback(rule))
    run = cb.trainer(tmp_path, *order, max_epochs=2, enable_checkpointing=True)
    run.fit(net)
    assert cb.same_windows(rule.windows, trained)
    assert cb.close(net.fc.weight, expected)
    assert cb.clean(net)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", [Tuned, TunedAlone])
@pytest.mark.parametrize("first", [True, False])
def test_a_search_for_a_batch_size_is_not_learned(first, make, tmp_path):
    rule, net = cb.Noting(), make()
    finder = plc.BatchSizeFinder(steps_per_trial=1, init_val=2, max_trials=2)
    order = cb.in_order(first, finder, cb.callback(rule))
    run = cb.trainer(tmp_path, *order, enable_checkpointing=True)
    run.fit(net)
    assert net.batch_size > 2
    data = list(net.train_dataloader())
    assert cb.same_windows(rule.windows, data)
    assert cb.close(net.fc.weight, cb.fit_by_hand(cb.Net(), data)[-1])
    assert run.global_step == len(data)


class Normalized(AutomaticHead):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4, dtype=torch.float64)

    def losses(self, batch):
        rates = self.norm(self(batch[0]).mean(0))
        return [nn.functional.cross_entropy(head(rates), batch[1]) for head in self.readouts]


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.parametrize("first", [True, False])
def test_an_epoch_for_statistics_is_not_learned(first, tmp_path):
    rule, net, data = cb.Noting(), Normalized(), list(cb.loader(3))
    steps = cb.fit_by_hand(net, data, epochs=3)
    average = plc.StochasticWeightAveraging(0.1, swa_epoch_start=1, annealing_epochs=1)
    run = cb.trainer(tmp_path, *cb.in_order(first, average, cb.callback(rule)), max_epochs=3)
    run.fit(net, cb.loader(3))
    assert cb.same_windows(rule.windows, 3 * data)
    mean = (cb.Net().fc.weight + steps[2] + steps[5]) / 3  # as the three epochs began
    assert cb.close(net.fc.weight, mean)
    assert cb.clean(average._average_model)


def test_a_schedule_of_accumulation_is_followed(tmp_path):
    net, expected, data = Automatic(), cb.Net(), list(cb.loader(6))
    first = cb.fit_by_hand(net, data)
    expected.fc.weight.data.copy_(first[-1])
    second = cb.fit_by_hand(expected, data, every=2)
    schedule = plc.GradientAccumulationScheduler({0: 1, 1: 2})
    run = cb.trainer(tmp_path, cb.callback(), schedule, max_epochs=2)
    run.fit(net, cb.loader(6))
    assert cb.close(net.fc.weight, second[-1])
    assert run.global_step == len(first) + len(second)


@pytest.mark.parametrize("way", [way for way in WAYS if way.startswith("automatic")])
def test_logs_of_accumulated_batches(way, tmp_path):
    def norm(run, _):
        return float(run.logged_metrics.get("updates/enc/weight/update_norm", -1.0))

    net, seen = WAYS[way][0](), cb.Probe("on_train_batch_start", norm)
    weights = [net.fc.weight.detach().clone(), *cb.fit_by_hand(net, list(cb.loader(5)), every=2)]
    cb.trainer(tmp_path, cb.callback(), seen, accumulate_grad_batches=2).fit(net, cb.loader(5))
    norms = [float((b - a).norm()) for a, b in itertools.pairwise(weights)]
    assert seen.found == pytest.approx([-1.0, -1.0, norms[0], norms[0], norms[1]], rel=1e-5)
