"""Updates that another optimizer steps: SGD does with them what the callback itself would."""

import itertools
import logging

import pytest
import torch
from callback_helpers import Net, Probe, callback, close, loader, trainer

from lightning_accum import MSTDP, STDP, CellSpec, Clamp, attach_updater
from lightning_accum.callbacks import CellTrainerCallback, FabricCellTrainer


class Stepping(Net):
    """Steps an optimizer of its own, given what its callback hands over."""

    def __init__(self):
        super().__init__()
        self.optimizers_given = torch.optim.SGD(self.parameters(), lr=0.5)

    def training_step(self, batch, batch_idx):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self(batch[0])
        (own,) = (c for c in self.trainer.callbacks if isinstance(c, CellTrainerCallback))
        own.updates_as_gradients()
        optimizer.step()


def test_an_optimizer_that_maximizes_is_rejected(tmp_path):
    net = Stepping()
    net.optimizers_given = torch.optim.SGD(net.parameters(), lr=0.5, maximize=True)
    before = net.fc.weight.clone()
    with pytest.raises(ValueError, match=r"`maximize` of the optimizer should be False.*`SGD`"):
        trainer(tmp_path, callback()).fit(net, loader(2))
    assert torch.equal(net.fc.weight, before)


@pytest.mark.parametrize("rewarded", [False, True])
def test_in_a_loop(rewarded):
    nets = Net(), Net()
    for net, handed in zip(nets, (False, True), strict=True):
        rule = (MSTDP if rewarded else STDP)(0.02, -0.01, time_dim=0)
        learner = FabricCellTrainer(rule, {"enc": CellSpec("fc", "lif")})
        learner.setup(net)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
        for i, (x, _) in enumerate(loader(3)):
            given = {"reward": torch.tensor(0.25 + 0.1 * i)} if rewarded else {}
            with learner.batch():
                net(x)
            if handed:
                optimizer.zero_grad()
                learner.updates_as_gradients(**given)
                optimizer.step()
            else:
                learner.step(scale=0.5, **given)
    assert close(nets[1].fc.weight, nets[0].fc.weight)
    assert not close(nets[1].fc.weight, Net().fc.weight)


# ---------------------------------------------------------------------- constraints
def keep_small(weight):
    """A constraint that is a function."""
    weight.clamp_(max=0.4)


def fit(net, path):
    net.optimizers_given = torch.optim.SGD(net.parameters(), lr=0.5)
    trainer(path, callback()).fit(net, loader(3))


def loop(net, path):
    learner = FabricCellTrainer(STDP(0.02, -0.01, time_dim=0), {"enc": CellSpec("fc", "lif")})
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    learner.setup(net)
    for x, _ in loader(3):
        with learner.batch():
            net(x)
        optimizer.zero_grad()
        learner.updates_as_gradients()
        optimizer.step()


@pytest.mark.parametrize("run", [fit, loop])
def test_constraints_that_would_not_run_are_an_error(run, tmp_path):
    net = Stepping()
    updater = attach_updater(net.fc, "weight")
    updater.register_constraint(Clamp(0.1, 0.3))
    updater.register_constraint(keep_small)
    names = r"Found `Clamp\(min=0.1, max=0.3\)` on `weight`, `keep_small` on `weight` of"
    with pytest.raises(ValueError, match=names):
        run(net, tmp_path)
    assert net.fc.weight.grad is None


# ---------------------------------------------------------------------- the summary
@pytest.mark.parametrize("lr", [0.5, 200.0])
def test_the_summary_shows_what_the_optimizer_changed(lr, tmp_path, caplog):
    net, data, ratios = Stepping(), loader(4), []
    net.optimizers_given = torch.optim.SGD(net.parameters(), lr=lr)
    weights = [net.fc.weight.detach().clone()]
    after = Probe("on_train_batch_end", lambda *_: weights.append(net.fc.weight.detach().clone()))
    with caplog.at_level(logging.INFO, "lightning_accum.callbacks"):
        trainer(tmp_path, callback(), after).fit(net, data)
    for old, new in itertools.pairwise(weights):
        ratios.append(float((new - old).norm() / old.norm()))
    said = caplog.messages[-1].splitlines()
    shown = f"{sum(ratios) / len(ratios):.1e}"
    assert said[2].split()[:4] == ["enc", "weight", "4", shown]
    advice = [line for line in said if line.startswith("An update changes `enc.weight` by")]
    assert len(advice) == (lr > 1)
    assert all(line.endswith("on average: lower the rates.") for line in advice)
