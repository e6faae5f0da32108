"""Under FSDP2 two processes, each with a shard of every parameter, learn what one learns."""

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.strategies import ModelParallelStrategy
from run_ranks import as_one, resuming, share
from run_ranks import trainer as make_trainer
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from test_ddp import INPUTS, pieces
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.testing import assert_close
from torch.utils.data import DataLoader

import lightning_accum as la
from lightning_accum.callbacks import CellTrainerCallback, UpdatePictures
from lightning_accum.callbacks._cell_host import CellHost
from lightning_accum.callbacks._processes import shard_holders
from lightning_accum.distributed.shards import is_sharded, whole_parameters
from lightning_accum.nn import LIF
from lightning_accum.optim import AdaBelief, Noam, RAdam, UpdateOptimizer, updates_as_gradients

OUTPUTS = 5  # three rows for one process, two for the other
HEADS = {
    "AdaBelief": lambda params: AdaBelief(params, lr=0.01, weight_decay=0.1),
    "Noam": lambda params: Noam(params, lr=0.1, warmup=3, d_model=4),
    "RAdam": lambda params: RAdam(params, lr=0.01, foreach=True),
}


class Net(nn.Module):
    """A connection, its neurons, and a head on their counts."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(INPUTS, OUTPUTS)
        nn.init.uniform_(self.fc.weight, 0.0, 1.0)
        self.lif = LIF(OUTPUTS, tc_mem=5.0, v_threshold=0.4, time_dim=0)
        self.head = nn.Linear(OUTPUTS, 3)

    def forward(self, spikes):
        self.lif.reset()
        return self.head(self.lif(self.fc(spikes)).sum(0))


class Model(pl.LightningModule):
    """Local learning alone, or beside a head with an optimizer."""

    def __init__(self, ranks, head=None, own=True, in_one_file=True):
        super().__init__()
        self.ranks, self.own, self.trained_by = ranks, own, head
        self.in_one_file = in_one_file
        self.automatic_optimization = head is not None
        self.net = Net().double()
        self.net.fc.requires_grad_(head is None)

    def configure_model(self):
        if self.ranks == 1:
            return
        mesh = self.device_mesh["data_parallel"]
        if self.own:  # else the weight is one of those of the whole
            fully_shard(self.net.fc, mesh=mesh)
        fully_shard(self.net, mesh=mesh)

    def training_step(self, batch, batch_idx):
        spikes, target = batch
        errors = (self.net(spikes) - target[:, None]).square()
        self.net.lif.reset()  # a distributed checkpoint has no place for what one process holds
        if self.trained_by is None:
            return None
        return self.ranks * errors.sum() / 10  # gradients are averaged over processes

    def configure_optimizers(self):
        make = HEADS.get(self.trained_by or "")
        return None if make is None else make(self.net.head.parameters())


def constrained(model):
    updater = la.attach_updater(model.net.fc, "weight", "bias")
    updater.weight.fullbound("power", 1.5, 0.0, power=0.5)
    updater.register_constraint(la.Normalize(2.0), "weight")
    updater.register_constraint(la.Clamp(0.0, 0.9), "weight")


def fit(model, rule, rank, folder, **options):
    if model.ranks > 1:
        options["strategy"] = ModelParallelStrategy(  # of itself it would make a node one group
            data_parallel_size=model.ranks,
            tensor_parallel_size=1,
            save_distributed_checkpoint=not model.in_one_file,
            process_group_backend="gloo",
        )
    resumed = options.pop("ckpt_path", None)
    every, more = options.pop("every", 1), options.pop("more", [])
    learns = CellTrainerCallback(
        rule, cells={"enc": la.CellSpec("net.fc", "net.lif")}, apply_every_n_batches=every
    )
    trainer = make_trainer(model.ranks, learns, *more, default_root_dir=folder, **options)
    data = DataLoader(pieces(rank, model.ranks), batch_size=None)
    trainer.fit(model, data, **resuming(resumed))
    return trainer


def resumed(first, second, rule, rank, folder):
    """A fit of one epoch, and one of two that goes on from its checkpoint."""
    path = folder / f"{first.ranks}-{first.in_one_file}.ckpt"
    fit(first, rule(), rank, folder, max_epochs=1).save_checkpoint(path)
    nn.init.zeros_(second.net.fc.weight)
    trainer = fit(second, rule(), rank, folder, ckpt_path=path)
    return second, trainer


def sharded(dim):
    """A connection of ``[5, 4]`` whose rows or columns are shared out, and its updater."""
    fc = nn.Linear(4, 5, bias=False, dtype=torch.float64)
    nn.init.constant_(fc.weight, 0.25)
    mesh = init_device_mesh("cpu", (2,))
    fully_shard(fc, mesh=mesh, shard_placement_fn=lambda _: Shard(dim))
    return fc, la.attach_updater(fc, "weight")


def by_hand(dim):
    """What becomes of shards of dimension ``dim`` without any Trainer."""
    change = torch.arange(20.0, dtype=torch.float64).reshape(5, 4) / 20
    found = {}

    fc, updater = sharded(dim)
    updater.register_constraint(la.Normalize(2.0))
    updater.register_constraint(lambda weight: weight.clamp_(max=0.5))
    updater.weight.upperbound("multiplicative", 1.0)
    updater.weight = change, 0.5 * change
    updater(scale=0.5)
    found["constrained"] = full(fc.weight.detach())

    fc, updater = sharded(dim)
    updater.weight = change
    updates_as_gradients(updater)
    torch.optim.SGD(fc.parameters(), lr=0.5).step()
    found["gradient"] = full(fc.weight.detach())

    fc, updater = sharded(dim)
    optimizer = UpdateOptimizer(fc.parameters(), updaters=[updater])
    updater.weight = change
    get_optimizer_state_dict(fc, optimizer)
    found["pending"] = updater.weight.pos

    updater.clear()
    change[-1, -1] = torch.nan  # in the shard of one process
    updater.weight = change
    try:
        optimizer.step()
    except la.NonFiniteUpdateError as error:
        found["raised"] = str(error)
    updater.nonfinite = "skip"
    version = fc.weight._version
    optimizer.step()
    found["versions"] = fc.weight._version - version
    found["skipped"] = updater.skipped["weight"], full(fc.weight.detach())
    return found


def parallel_otherwise():
    """What is said of a weight that torch's tensor parallelism has sharded."""
    net = Net()
    parallelize_module(net, init_device_mesh("cpu", (2,)), {"fc": ColwiseParallel()})
    try:
        CellHost(la.STDP(0.1, -0.1), {"enc": la.CellSpec("fc", "lif")}, time_dim=0).bind(net)
    except ValueError as error:
        return str(error)
    return ""


def full(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def main(rank, ranks, folder):
    found = {}

    def keep(name, model, trainer):
        found[name] = {key: full(param.detach()) for key, param in model.named_parameters()}
        found[name] |= {"steps": trainer.global_step, "logged": trainer.logged_metrics}

    def stdp():
        return la.RuleTrainer(la.STDP(0.06, -0.05), time_dim=0, params=["weight", "bias"])

    pictures = {
        "logger": TensorBoardLogger(folder, str(ranks), version=""),
        "log_every_n_steps": 2,
        "more": [UpdatePictures(1, {"enc": (1, 5)})],
    }
    for head, options in (("AdaBelief", {}), ("Noam", {}), ("RAdam", pictures)):
        model = Model(ranks, head, own=head == "Noam")
        constrained(model)
        keep(head, model, fit(model, stdp(), rank, folder, **options))
    for name, own in (("alone", True), ("of the whole", False)):
        model = Model(ranks, own=own)
        oja = la.RuleTrainer(la.Oja(0.05), time_dim=0, batch_reduction="sum")  # looks at the weight
        keep(name, model, fit(model, oja, rank, folder, every=3))
    for name, in_one_file in (("one file", True), ("distributed", False)):
        pair = [Model(ranks, "AdaBelief", in_one_file=in_one_file) for _ in range(2)]
        for model in pair:
            constrained(model)
        keep(f"resumed from {name}", *resumed(*pair, stdp, rank, folder))
    if ranks > 1:
        found |= {f"by hand, {dim}": by_hand(dim) for dim in (0, 1)}
        found["parallel otherwise"] = parallel_otherwise()
    return found


SKIPPED = "" if hasattr(torch.cpu.Stream, "record_event") else "torch 2.6 runs no FSDP2 on a CPU"

FITS = ("AdaBelief", "Noam", "RAdam", "alone", "of the whole")
RESUMED = ("resumed from one file", "resumed from distributed")


@pytest.mark.parametrize("name", [*FITS, *RESUMED])
def test_as_one_process_with_whole_parameters(found, name):
    alone, first, second = (ranks[name] for ranks in (found[1][0], *found[2]))
    whole = as_one(found, lambda saved: {k: v for k, v in saved[name].items() if k != "logged"})
    assert whole["steps"] > 0
    updates = [key for key in alone["logged"] if key.startswith("updates/")]
    assert len(updates) > 10
    for key in updates:
        assert float(first["logged"][key]) == float(second["logged"][key])
        assert_close(first["logged"][key], alone["logged"][key])


def test_a_resumed_fit_ends_as_one_that_was_left_alone(found):
    for name in RESUMED:
        for key, value in found[2][0]["AdaBelief"].items():
            if key.startswith("net."):
                assert torch.equal(found[2][0][name][key], value)


@pytest.mark.usefixtures("found")
def test_pictures_are_of_whole_parameters(folder):
    histograms = []
    for ranks in (1, 2):
        events = EventAccumulator(str(folder / str(ranks)), {"histograms": 0, "images": 0})
        events.Reload()
        tags = events.Tags()
        assert "fields/enc/weight" in tags["images"]
        assert {f"{of}/enc/weight" for of in ("weights", "updates")} <= set(tags["histograms"])
        histograms.append([
            (each.step, each.histogram_value.num, round(each.histogram_value.sum, 4))
            for tag in ("weights/enc/weight", "updates/enc/weight")
            for each in events.Histograms(tag)
        ])  # fmt: skip
    assert histograms[0] == histograms[1]
    assert len(histograms[0]) > 2


def test_every_fit_has_learned(found):
    heads = {float(found[1][0][name]["net.head.weight"].sum()) for name in FITS}
    assert len(heads) == len(FITS) - 1  # two of the fits train no head
    for name in FITS:
        assert all(float(found[1][0][name]["logged"][f"updates/enc/weight/{of}_norm"]) > 0
                   for of in ("update", "pos", "neg"))  # fmt: skip


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("rank", [0, 1])
def test_shards_of_rows_and_of_columns(found, rank, dim):
    one = found[2][rank][f"by hand, {dim}"]
    change = torch.arange(20.0, dtype=torch.float64).reshape(5, 4) / 20
    start = torch.full((5, 4), 0.25, dtype=torch.float64)
    bounded = start + 0.5 * (0.75 * change - 0.5 * change)
    rows = 2.0 * bounded / bounded.sum(1, keepdim=True)
    assert_close(one["constrained"], rows.clamp(max=0.5), rtol=1e-12, atol=0)
    assert_close(one["gradient"], start + 0.5 * change, rtol=1e-12, atol=0)
    assert_close(one["pending"], change, rtol=0, atol=0)  # still, after a checkpoint
    assert "weight of `FSDPLinear` holds NaN" in one["raised"]  # in one process' shard
    assert one["versions"] > 0  # of the whole, which autograd has saved
    count, weight = one["skipped"]
    assert count == 1
    assert torch.equal(weight, start)


def test_other_ways_to_shard_are_refused(found):
    for rank in found[2]:
        assert "sharded by `torch.distributed.fsdp.fully_shard`" in rank["parallel otherwise"]


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize(("wrapped", "holder"), [
    (["0.0", "0", ""], "0.0"), (["0", ""], "0"), ([""], ""), (["0.0", ""], "0.0"), (["1", ""], ""),
])  # fmt: skip
def test_the_nearest_module_around_a_parameter_gathers_it(wrapped, holder):
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 3)), nn.Linear(3, 1))
    updater = la.attach_updater(model.get_submodule("0.0"), "weight")
    mesh = init_device_mesh("cpu", (1,))
    for name in wrapped:
        fully_shard(model.get_submodule(name), mesh=mesh)
    found = shard_holders(model, [updater])
    assert found == [model.get_submodule(holder)]
    assert is_sharded(updater.changes.target("weight"))
    with whole_parameters(found):
        assert not is_sharded(updater.changes.target("weight"))
        assert torch.isfinite(updater.changes.target("weight")).all()
    assert is_sharded(updater.changes.target("weight"))


if __name__ == "__main__":
    share(main)
