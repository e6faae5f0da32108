"""A parameter that is replaced during a fit goes on learning under its name."""

import copy
import itertools

import pytest
import torch
from callback_helpers import Net, Probe, callback, close, fit_by_hand, loader, trainer
from lightning.pytorch.callbacks import ModelPruning
from torch import nn

from lightning_accum import CellSpec, Clopath, get_updater
from lightning_accum.callbacks._cell_trainer_host import CellHost
from lightning_accum.optim import UpdateOptimizer


def assigned(net):
    net.fc.weight = nn.Parameter(net.fc.weight.detach().clone())


def loaded(net):
    net.load_state_dict(copy.deepcopy(net.state_dict()), assign=True)


class Replaced(Net):
    """Replaces its weight by an equal one, before an epoch or within a step."""

    def __init__(self, how, within=False, **options):
        super().__init__(**options)
        self.how, self.within = how, within

    def on_train_epoch_start(self):
        if self.current_epoch == 1 and not self.within:
            self.how(self)

    def training_step(self, batch, batch_idx):
        super().training_step(batch, batch_idx)
        if self.within and batch_idx == 1:
            self.how(self)


@pytest.mark.parametrize("how", [assigned, loaded])
@pytest.mark.parametrize("within", [False, True])
def test_it_goes_on_learning(how, within, tmp_path):
    net, data = Replaced(how, within), loader(3)
    expected = fit_by_hand(net, list(data), epochs=2)[-1]
    before = net.fc.weight
    run = trainer(tmp_path, callback(), max_epochs=2)
    run.fit(net, data)  # and sums up without an error
    assert net.fc.weight is not before
    assert close(net.fc.weight, expected)
    assert run.callback_metrics["updates/enc/weight/update_norm"] > 0


class Own(Replaced):
    """Steps an UpdateOptimizer of its own."""

    def configure_optimizers(self):
        return UpdateOptimizer(self.fc.parameters(), lr=0.5)

    def training_step(self, batch, batch_idx):
        super().training_step(batch, batch_idx)
        self.optimizers().step()


def test_the_modules_own_optimizer_follows(tmp_path):
    net, data = Own(assigned), loader(3)
    expected = fit_by_hand(net, list(data), epochs=2, lr=0.5)[-1]
    run = trainer(tmp_path, callback(), max_epochs=2)
    run.fit(net, data)
    assert close(net.fc.weight, expected)
    (group,) = run.optimizers[0].param_groups
    assert len(group["params"]) == 1
    assert group["params"][0] is net.fc.weight


def test_a_parameter_pruned_in_a_fit_goes_on_learning(tmp_path):
    net = Net()
    pruning = ModelPruning(
        "l1_unstructured",
        parameters_to_prune=[(net.fc, "weight")],
        amount=0.25,
        apply_pruning=lambda epoch: epoch == 0,
        make_pruning_permanent=False,
        use_lottery_ticket_hypothesis=False,
    )
    seen = Probe("on_train_epoch_end", lambda _, module: module.fc.weight_orig.detach().clone())
    run = trainer(tmp_path, callback(), pruning, seen, max_epochs=4)
    run.fit(net, loader(3))
    after = seen.found
    assert all(not torch.equal(a, b) for a, b in itertools.pairwise(after))
    assert int((net.fc.weight == 0).sum()) == net.fc.weight.numel() // 4
    assert "weight_orig" in dict(net.fc.named_parameters())


def parametrized(net):
    nn.utils.parametrizations.weight_norm(net.fc)


def test_one_that_is_computed_from_then_on_is_told(tmp_path):
    with pytest.raises(RuntimeError, match=r"`weight` should stay a parameter of `Linear \(cell"):
        trainer(tmp_path, callback(), max_epochs=2).fit(Replaced(parametrized), loader(2))


def test_a_cell_that_cannot_be_registered_leaves_nothing():
    """The neuron has no membrane potential, which is noticed when the cell is there already."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.ReLU())
    rule = Clopath(0.1, -0.1, 0.0, 0.5)
    host = CellHost(rule, {"enc": CellSpec("0", "1")})
    with pytest.raises((AttributeError, ValueError), match="membrane"):
        host.bind(model)
    assert not list(rule.named_cells)
    assert not model[0]._forward_pre_hooks
    assert get_updater(model[0]) is None
