"""No optimizer, manual and automatic optimization: the same learning, counted once a batch."""

import callback_helpers as cb
import pytest
import torch
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger
from torch import nn
from torch.optim import Optimizer

from lightning_accum import CellSpec
from lightning_accum.optim import UpdateOptimizer

# It is about users who want the weights of before the step; nobody can give it them here.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Using ModelCheckpoint with manual optimization:UserWarning"
)


class Automatic(cb.Net):
    def __init__(self, optimizers=None):
        super().__init__(optimizers)
        self.automatic_optimization = True


class WithHead(cb.Net):
    """A readout by backpropagation on what local learning finds."""

    heads = 1

    def __init__(self):
        super().__init__()
        self.fc.requires_grad_(False)
        self.readouts = nn.ModuleList(
            nn.Linear(cb.OUTPUTS, cb.OUTPUTS, dtype=torch.float64) for _ in range(self.heads)
        )

    def losses(self, batch):
        rates = self(batch[0]).mean(0)
        return [nn.functional.cross_entropy(head(rates), batch[1]) for head in self.readouts]

    def configure_optimizers(self):
        return [torch.optim.SGD(head.parameters(), lr=0.5) for head in self.readouts]


class AutomaticHead(WithHead):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = True

    def training_step(self, batch, batch_idx):
        return self.losses(batch)[0]


class ManualHead(WithHead):
    def training_step(self, batch, batch_idx):
        optimizer = self.optimizers()
        assert not isinstance(optimizer, list)  # what it returned is what it gets
        (loss,) = self.losses(batch)
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()


class ManualHeads(WithHead):
    heads = 2

    def training_step(self, batch, batch_idx):
        for optimizer, loss in zip(self.optimizers(), self.losses(batch), strict=True):
            self.toggle_optimizer(optimizer)
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
            self.untoggle_optimizer(optimizer)


class Stepping(cb.Net):
    def training_step(self, batch, batch_idx):
        self(batch[0])
        self.optimizers().step()


class OwnOptimizer(Stepping):
    def configure_optimizers(self):
        return UpdateOptimizer(self.parameters())


class AutomaticOwnOptimizer(Automatic):
    def configure_optimizers(self):
        return UpdateOptimizer(self.parameters())


WAYS = {
    "none": (cb.Net, 1),
    "empty": (lambda: cb.Net([]), 1),
    "automatic none": (Automatic, 1),
    "automatic empty": (lambda: Automatic([]), 1),
    "automatic head": (AutomaticHead, 1),
    "manual head": (ManualHead, 1),
    "manual heads": (ManualHeads, 2),  # Lightning counts every optimizer's step
    "own": (OwnOptimizer, 1),
    "automatic own": (AutomaticOwnOptimizer, 1),
}


@pytest.mark.parametrize("way", WAYS)
def test_learns_as_a_loop_by_hand_until_max_steps_and_saves_checkpoints(way, tmp_path):
    make, ticks = WAYS[way]
    net, data = make(), cb.loader(6, last=3)
    expected = cb.fit_by_hand(net, list(data), epochs=2)[:9]
    # The callback stands behind: Lightning puts checkpoints last.
    found = cb.Probe("on_train_batch_end", lambda *_: net.fc.weight.detach().clone())
    folder = tmp_path / "saved"
    saver = ModelCheckpoint(folder, "{step}", every_n_train_steps=4 * ticks, save_top_k=-1)
    monitor = LearningRateMonitor(log_weight_decay=True)
    run = cb.trainer(
        tmp_path, saver, cb.callback(), found, monitor, max_epochs=-1, max_steps=9 * ticks,
        enable_checkpointing=True, logger=TensorBoardLogger(tmp_path),
    )  # fmt: skip
    run.fit(net, data)
    assert len(found.found) == len(expected)
    assert all(cb.close(f, e) for f, e in zip(found.found, expected, strict=True))
    assert run.global_step == 9 * ticks
    assert cb.clean(net)
    saved = {path.stem: path for path in folder.glob("*.ckpt")}
    assert set(saved) == {f"step={4 * ticks}", f"step={8 * ticks}"}
    for batches in (4, 8):
        state = torch.load(saved[f"step={batches * ticks}"], weights_only=True)["state_dict"]
        assert cb.close(state["fc.weight"], expected[batches - 1])
    assert run.callback_metrics["updates/enc/weight/lr"] == 1.0
    known = isinstance(net, (WithHead, OwnOptimizer, AutomaticOwnOptimizer))
    assert any(name.startswith("lr-") for name in run.callback_metrics) == known


class SteppedMidway(cb.Net):
    """Two optimizers, stepped after each half of the batch's samples, for two cells."""

    def __init__(self):
        super().__init__()
        self.fc2, self.lif2 = cb.Net().fc, cb.Net().lif

    def training_step(self, batch, batch_idx):
        first, second = self.optimizers()
        self(batch[0])
        first.step()
        self.lif2.reset()
        self.lif2(self.fc2(batch[0].transpose(0, 1)))
        second.step()

    def configure_optimizers(self):
        return [UpdateOptimizer(self.fc.parameters()), UpdateOptimizer(self.fc2.parameters(), 0.5)]


def test_several_update_optimizers_of_the_modules_own(tmp_path):
    net, data = SteppedMidway(), cb.loader(4)
    first = cb.fit_by_hand(cb.Net(), list(data))[-1]
    second = cb.fit_by_hand(cb.Net(), list(data), lr=0.5)[-1]
    cells = {"a": CellSpec("fc", "lif"), "b": CellSpec("fc2", "lif2")}
    run = cb.trainer(tmp_path, cb.callback(cells=cells), logger=TensorBoardLogger(tmp_path))
    run.fit(net, data)
    assert cb.close(net.fc.weight, first)
    assert cb.close(net.fc2.weight, second)
    for cell in "ab":
        assert run.callback_metrics[f"updates/{cell}/weight/update_norm"] > 0


class Alternating(ManualHeads):
    def training_step(self, batch, batch_idx):
        self.manual_backward(sum(self.losses(batch), torch.zeros(())))
        self.optimizers()[batch_idx % 3 == 0].step()


class AccumulatesByHand(ManualHead):
    def training_step(self, batch, batch_idx):
        self.manual_backward(self.losses(batch)[0])
        if batch_idx % 4 == 3:
            self.optimizers().step()
            self.optimizers().zero_grad()


class FillsItsBuffer(ManualHead):
    def training_step(self, batch, batch_idx):
        if self.trainer.current_epoch or batch_idx > 5:
            super().training_step(batch, batch_idx)


class WithoutLoss(AutomaticHead):
    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        return loss if batch_idx % 2 else None


COUNTED = [AccumulatesByHand, FillsItsBuffer, Alternating, AutomaticHead, WithoutLoss]


@pytest.mark.parametrize("every", [None, 1, 3])
@pytest.mark.parametrize("model", COUNTED)
def test_the_modules_optimizers_work_and_count_as_without_a_learner(model, every, tmp_path):
    options = {"accumulate_grad_batches": 4} if model is AutomaticHead else {}

    def run(folder, *learners):
        torch.manual_seed(0)
        steps = cb.Probe("on_train_batch_end", lambda run, _: run.global_step)
        saver = ModelCheckpoint(folder, "{step}", every_n_train_steps=2, save_top_k=-1)
        run = cb.trainer(
            folder, *learners, steps, saver, max_epochs=-1, max_steps=6, enable_checkpointing=True,
            **options,
        )  # fmt: skip
        run.fit(net := model(), cb.loader(8))
        assert run.global_step == 6
        saved = sorted(path.stem for path in folder.glob("*.ckpt"))
        return steps.found, saved, [param.tolist() for param in net.parameters()]

    learner = cb.callback(apply_every_n_batches=every, lr=0.0)  # heads see the same spikes
    assert run(tmp_path / "with", learner) == run(tmp_path / "out")


class StandsIn(Optimizer):
    """What another distribution of Lightning makes if there is no optimizer; it holds nothing."""

    add_param_group = lambda self, group: None  # noqa: E731

    def __init__(self):
        super().__init__([torch.zeros(1)], {})

    def step(self, closure=None):
        return None if closure is None else closure()


NOTHING = {
    "none": cb.Net, "stands in": lambda: cb.Net(StandsIn()),
    "stands in, and is stepped": lambda: Stepping(StandsIn()), "none, and is stepped": Stepping,
    "automatic none": Automatic, "automatic, stands in": lambda: Automatic(StandsIn()),
    "automatic, empty": lambda: Automatic([]),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*should be trained once:lightning_accum.LocalLearningWarning")
@pytest.mark.parametrize("case", NOTHING)
def test_without_an_optimizer_batches_with_applied_updates_count(case, tmp_path):
    """Those of two learners count once."""
    steps = cb.Probe("on_train_batch_end", lambda run, _: run.global_step)
    both = [cb.callback(apply_every_n_batches=3 * i, name=f"{i}") for i in (1, 2)]
    cb.trainer(tmp_path, *both, steps).fit(NOTHING[case](), cb.loader(8))
    assert steps.found == [0, 0, 1, 1, 1, 2, 2, 3]
