"""Synapses are replaced at constant number, and what belongs to one stays with it."""

import copy
from collections import Counter
from contextlib import suppress

import lightning.pytorch as pl
import pytest
import torch
from callback_helpers import trainer
from clamped_layers import Fed, raster
from interrupts import Interrupts, ends
from round_trips import by_pickle
from subtests import turns
from torch.overrides import TorchFunctionMode
from torch.utils.data import DataLoader, TensorDataset

import lightning_accum as la
from lightning_accum.callbacks import CellTrainerCallback, UpdateMonitor
from lightning_accum.nn import LIF, Rewire, SparseLinear
from lightning_accum.optim import AdaBelief
from lightning_accum.updates.updater import claim


class NoMemory(TorchFunctionMode):
    """Has torch find no memory at the nth operation that makes a tensor."""

    def __init__(self, at):
        super().__init__()
        self.left = at

    def __torch_function__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        is_new = isinstance(found, torch.Tensor) and not function.__name__.endswith("_")
        self.left -= is_new
        if is_new and self.left == 0:
            raise MemoryError
        return found


def connection(density=0.3):
    torch.manual_seed(1)
    made = SparseLinear(12, 8, density).double()
    made.weight.data.uniform_(0.1, 1.0)
    return made


def matrix(sparse, values):
    """Values of synapses ``[..., synapses]`` as matrices."""
    found = torch.zeros(*values.shape[:-1], sparse.out_features, sparse.in_features).to(values)
    found[..., sparse.indices[0].long(), sparse.indices[1].long()] = values
    return found


def mask(sparse):
    return matrix(sparse, torch.ones_like(sparse.weight, dtype=torch.bool))


@turns("density", [0.1, 0.5, 1.0])
def test_the_smallest_are_pruned_and_as_many_grown(density):
    sparse, number = connection(density), len(connection(density).weight)
    for i in range(5):
        before, weights = mask(sparse), sparse.dense().detach()
        least = weights[before].sort()[0][max(1, round(0.25 * number)) - 1]
        assert Rewire(0.25, start=2.0, seed=i)(sparse) == round(0.25 * number)
        after, now = mask(sparse), sparse.dense().detach()
        assert after.sum() == number
        kept = before & (weights > least)
        assert (after & kept).equal(kept)
        assert torch.equal(now[kept], weights[kept])
        assert (now[after & ~kept] == 2.0).all()
        twin = SparseLinear(12, 8, indices=sparse.indices.flip(1))  # the indices of a fresh layer
        for name in ("starts", "outputs", "starts_of_outputs", "order", "inputs"):
            assert torch.equal(getattr(twin, name), getattr(sparse, name)), name
        sparse.weight.data.uniform_(0.1, 1.0)


def test_every_free_pair_is_drawn_evenly():
    sparse = SparseLinear(5, 4, 0.4).double()
    counts, generator = torch.zeros(4, 5), torch.Generator().manual_seed(0)
    for _ in range(400):
        removed = torch.rand(8, generator=generator) < 0.7
        kept = torch.zeros(4, 5, dtype=torch.bool)
        kept[sparse.indices[:, ~removed].long().unbind()] = True
        grown = sparse.replace(removed, generator)
        assert (mask(sparse) & kept).equal(kept)
        assert int(grown.sum()) == int(removed.sum())
        counts += mask(sparse).float()
    assert ((counts / 400 - 0.4).abs() < 0.12).all()


def test_deep_r_is_its_equations():
    sparse, rewire = connection(), Rewire(sign=None, shrink=0.05, noise=0.2, seed=3)
    sparse.weight.data.abs_().mul_(rewire.signs(sparse))
    assert 0.2 < (sparse.weight > 0).float().mean() < 0.8
    for call in range(4):
        signs, weights, before = rewire.signs(sparse), sparse.weight.detach().clone(), mask(sparse)
        assert (weights * signs >= 0).all()
        generator = torch.Generator().manual_seed(3 * 1_000_003 + call)
        noise = torch.randn(len(weights), generator=generator, dtype=torch.float64)
        moved = weights + 0.2 * noise - 0.05 * signs
        expected, dead = matrix(sparse, moved), matrix(sparse, (moved * signs <= 0).double()).bool()
        assert rewire(sparse) == dead.sum() > 0
        kept = before & ~dead
        torch.testing.assert_close(sparse.dense().detach()[kept], expected[kept])
        assert (sparse.dense()[~kept] == 0).all()
    fixed, other = matrix(sparse, rewire.signs(sparse)), connection(1.0)
    assert torch.equal(matrix(other, rewire.signs(other))[mask(sparse)], fixed[mask(sparse)])


def median(values, dim):
    return values.median(dim).values


@pytest.mark.parametrize("reduction", [None, median, "mean"])
def test_what_belongs_to_a_synapse_stays_with_it(reduction):
    sparse, neuron = connection(), Fed()
    rule = la.RuleTrainer(la.MSTDPET(0.3, -0.2))
    updater = rule.register_cell("cell", la.Cell(sparse, neuron)).cell.updater
    updater.weight.reduction(reduction)
    for seed in (0, 5):
        for x, y in zip(raster(4, 2, 12, seed=seed), raster(4, 2, 8, seed=seed + 1), strict=True):
            neuron.food.append(y)
            neuron(sparse(x))
        rule(reward=0.5)
    claim(updater, rule)
    other = claim(updater, sparse)
    other.weight = torch.rand(len(sparse.weight)), torch.rand(len(sparse.weight))
    optimizers = [torch.optim.Adam([sparse.weight]), AdaBelief([sparse.weight], amsgrad=True)]
    for optimizer in optimizers:
        sparse.weight.grad = torch.rand_like(sparse.weight)
        optimizer.step()

    def seen():
        shape, carried, parts = sparse.weight.shape, rule.state_of("cell").carried, {}
        for n, each in enumerate((updater, other)):
            parts |= {f"pos {n}": each.weight.pos, f"neg {n}": each.weight.neg}
        parts |= {str(k): v for k, v in carried.items() if k.kind.startswith("weight ")}
        for n, optimizer in enumerate(optimizers):
            state = optimizer.state[sparse.weight].items()
            parts |= {f"{n} {k}": v for k, v in state if getattr(v, "shape", ()) == shape}
        parts |= {"weight": sparse.weight.detach(), "grad": sparse.weight.grad}
        assert len(parts) == 4 + 2 + 2 + 3 + 2
        return {name: matrix(sparse, each) for name, each in parts.items()}

    before, removed = seen(), torch.rand(len(sparse.weight)) < 0.4
    new = sparse.replace(removed, None, optimizers)
    stays = matrix(sparse, (~new).double()).bool()
    assert int((~stays & mask(sparse)).sum()) == int(removed.sum()) > 0
    for name, now in seen().items():
        assert now[..., stays].any(), name
        assert torch.equal(now[..., stays], before[name][..., stays]), name
        assert not now[..., ~stays].any(), name
    rule.update()
    for optimizer in optimizers:
        optimizer.step()


def test_copies_follow_anew():
    sparse = connection()
    updater = la.attach_updater(sparse, "weight")
    updater.weight = torch.rand(len(sparse.weight))
    for twin in (copy.deepcopy(sparse), by_pickle(sparse)):
        pending = matrix(sparse, updater.weight.pos)
        new = twin.replace(torch.rand(len(sparse.weight)) < 0.5)
        stays = matrix(twin, (~new).double()).bool()
        assert torch.equal(matrix(twin, twin.updater.weight.pos)[stays], pending[stays])
        assert torch.equal(matrix(sparse, updater.weight.pos), pending)


class Lit(pl.LightningModule):
    """A layer that learns by a rule, and one by gradients, which are rewired after each batch."""

    def __init__(self):
        super().__init__()
        self.fc, self.lif = connection().requires_grad_(False), LIF(8, tc_mem=5.0, time_dim=0)
        self.head, self.rewire = SparseLinear(8, 3, 0.5).double(), Rewire(0.2)

    def training_step(self, batch, batch_idx):
        self.lif.reset()
        spikes = self.lif(self.fc(batch[0].transpose(0, 1)))
        return (self.head(spikes) - 1).square().mean()

    def on_train_batch_end(self, *args):
        self.rewire(self.fc)
        self.rewire(self.head, self.optimizers())

    def configure_optimizers(self):
        return torch.optim.Adam(self.head.parameters(), lr=0.01)


def test_optimizers_that_do_not_train_the_weight_are_rejected():
    sparse, rewire = connection(), Rewire(share=0.1)
    own, other = (torch.optim.Adam(each.parameters()) for each in (sparse, connection()))
    before = sparse.indices.clone()
    for wrong, words in (([own], "one by one"), ("adam", "Found `str`"), (other, "without it")):
        with pytest.raises((TypeError, ValueError), match=words):
            rewire(sparse, own, wrong)
        assert torch.equal(sparse.indices, before)
    assert rewire(sparse, own) > 0


def test_a_fit_that_is_resumed_ends_as_one_that_went_on(tmp_path):
    data = DataLoader(TensorDataset(raster(12, 5, 12, density=0.3, seed=3)), batch_size=4)
    ends = []
    for resumes in (False, True):
        module, path = Lit(), tmp_path / "fit.ckpt"
        for epochs in (1, 3) if resumes else (3,):
            module = Lit()
            learns = CellTrainerCallback(
                la.STDP(0.1, -0.1), cells={"enc": la.CellSpec("fc", "lif")}, time_dim=0
            )
            run = trainer(tmp_path, learns, UpdateMonitor(), max_epochs=epochs)
            run.fit(module, data, ckpt_path=path if epochs == 3 and resumes else None)
            run.save_checkpoint(path)
        ends.append((module.fc.dense().detach(), module.head.dense().detach()))
    assert not torch.equal(ends[0][0] != 0, connection().dense() != 0)
    torch.testing.assert_close(*ends, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("passed", "options", "warns"),
    [(False, {"momentum": 0.9}, True), (True, {"momentum": 0.9}, False), (False, {}, False)],
)
def test_an_optimizer_with_a_state_that_was_not_passed_is_told_once(passed, options, warns, caplog):
    sparse, rewire = connection(), Rewire(share=0.2)
    optimizer = torch.optim.SGD(sparse.parameters(), lr=0.1, **options)
    for _ in range(4):
        optimizer.zero_grad()
        sparse(torch.ones(1, 12).double()).sum().backward()
        optimizer.step()
        rewire(sparse, *[optimizer] * passed)
    assert caplog.text.count("Found `SGD`, whose state") == warns


def everything(sparse, rule, optimizer, rewire):
    """The state of a connection and of all that follows it."""
    moments = [v for v in optimizer.state[sparse.weight].values() if v.shape == sparse.weight.shape]
    pending = [sparse.updater.weight.pos, sparse.updater.weight.neg]
    carried = [v for k, v in rule.state_of("cell").carried.items() if k.kind.startswith("weight ")]
    index = [each for each in (*sparse.by_input, *sparse.by_output) if each is not None]
    own = sparse.weight.detach(), sparse.weight.grad, rewire.calls
    return [each.clone() for each in (*own, *index, *moments, *pending, *carried)]


def interrupted(at):
    return lambda run: ends(run, Interrupts(6 * at, KeyboardInterrupt))


def without_memory(at):
    def runs_out(run):
        with suppress(MemoryError), NoMemory(2 * at):
            run()
            return False
        return True

    return runs_out


def rewired(settings, cuts):
    """The state before and after a call that is cut, and whether it was."""
    sparse, neuron, rule = connection(), Fed(), la.RuleTrainer(la.MSTDPET(0.3, -0.2))
    rule.register_cell("cell", la.Cell(sparse, neuron))
    for x, y in zip(raster(4, 2, 12), raster(4, 2, 8, seed=1), strict=True):
        neuron.food.append(y)
        neuron(sparse(x))
    rule(reward=0.5)
    optimizer = torch.optim.Adam(sparse.parameters())
    sparse.weight.grad = torch.ones_like(sparse.weight)
    optimizer.step()
    rewire = Rewire(**settings)
    held = sparse, rule, optimizer, rewire
    before = everything(*held)
    cut = cuts(lambda: rewire(sparse, optimizer))
    return before, everything(*held), cut


@pytest.mark.parametrize(("settings", "cuts"), [
    ({"share": 0.3, "start": 0.2}, without_memory),
    ({"sign": None, "shrink": 0.05, "noise": 0.2}, interrupted),
])  # fmt: skip
def test_a_call_that_is_cut_leaves_all_as_before_or_as_after(settings, cuts):
    before, after, _ = rewired(settings, lambda run: run())
    seen, at, cut = Counter(), 0, True
    while cut:
        at += 1
        _, found, cut = rewired(settings, cuts(at))
        same = {
            name: all(map(torch.equal, found, state))
            for name, state in (("before", before), ("after", after))
        }
        assert any(same.values()), at
        seen.update(name for name, is_it in same.items() if is_it)
    assert seen["before"] > 10
    assert seen["after"] > 0
