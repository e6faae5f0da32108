"""Networks that processes divide, in fits by Lightning, and processes that die."""

import copy
import os
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from _forked import Forked, run_together
from callback_helpers import Local, Resumable, SaveAt
from round_trips import differences
from run_ranks import free_port, resuming, share, trainer
from test_split_networks import SIZES, make, of_network, whole
from torch import nn

from lightning_accum.callbacks import LocalDDPStrategy
from lightning_accum.cells.network_checkpoints import splits
from lightning_accum.rules import learn_online

RANKS = 1, 2, 4
BATCHES, STOP = 4, 2
ENDS = "dies", "waits"


class Model(Local):
    """A network that learns, and a layer that all processes have."""

    def __init__(self):
        super().__init__()
        self.whole = nn.Linear(3, 2)

    def configure_model(self):
        if not hasattr(self, "network"):
            self.network, self.learner = make(torch.float64)

    def training_step(self, batch, batch_idx):
        self.spikes = learn_online(self.learner, self.network, batch[:, :, self.network.columns])

    def test_step(self, batch, batch_idx):
        self.training_step(batch, batch_idx)


def batches():
    generator = torch.Generator().manual_seed(1)
    shape = BATCHES, 30, 1, sum(SIZES.values())
    every = torch.rand(shape, generator=generator, dtype=torch.float64) * 0.35
    return Resumable([*every], batch_size=None)


def fit(ranks, save=None, resume=None):
    """What a process ends with; one that saves is tested too."""
    torch.manual_seed(dist.get_rank() if dist.is_initialized() else 0)
    model, strategy = Model(), LocalDDPStrategy(process_group_backend="gloo")
    run = trainer(
        ranks, *([SaveAt(STOP, save, False)] if save else []), epochs=1, strategy=strategy
    )
    run.fit(model, batches(), **resuming(resume))
    assert any(name.startswith("network.connections") for name in splits(model))
    found = {"network": of_network(model.network, model.learner, model.spikes)}
    found = copy.deepcopy(found | {"same": model.whole.weight.detach()})
    if save:
        run.test(model, batches(), verbose=False)
        found["tested"] = of_network(model.network, model.learner, model.spikes)
    return found


def ends(rank, folder):
    """What a process raises when the other one dies, or waits for long, and after how many s."""
    made, learner = make(torch.float64)
    steps = torch.zeros(5, 1, len(made.columns), dtype=torch.float64)
    learn_online(learner, made, steps)
    if rank:
        while folder.name == "waits" and not (folder / "0 of 2.pt").exists():
            time.sleep(0.05)
        os._exit(0)
    start, raised = time.perf_counter(), ""
    try:
        learn_online(learner, made, steps)
    except RuntimeError as error:
        raised = str(error)
    return {"raised": raised, "seconds": time.perf_counter() - start}


def main(rank, ranks, folder):
    if folder.name in ENDS:
        place, limit = (folder / "place").as_uri(), timedelta(seconds=2)
        dist.init_process_group(
            "gloo", init_method=place, rank=rank, world_size=ranks, timeout=limit
        )
        return ends(rank, folder)
    found = {"whole": fit(ranks, save=folder / f"of {ranks}.ckpt")}
    for saved in (n for n in RANKS if (folder / f"of {n}.ckpt").exists()):
        found[f"from {saved}"] = fit(ranks, resume=folder / f"of {saved}.ckpt")
    return found


def test_a_fit_is_that_of_one_process_and_leaves_the_rest_to_ddp(found):
    expected = whole([each["whole"]["network"] for each in found[1]])
    for shares in found.values():
        assert not differences(expected, whole([each["whole"]["network"] for each in shares]))
        assert len({each["whole"]["same"].sum().item() for each in shares}) == 1
    tested = [whole([each["whole"]["tested"] for each in shares]) for shares in found.values()]
    assert not any(differences(tested[0], other) for other in tested[1:])


def test_any_number_of_processes_resumes_a_fit_to_the_bit(found):
    expected, pairs = whole([each["whole"]["network"] for each in found[1]]), set()
    for ranks, shares in found.items():
        for name in (name for name in shares[0] if name.startswith("from")):
            pairs.add((int(name.split()[1]), ranks))
            assert not differences(expected, whole([each[name]["network"] for each in shares]))
    assert pairs == {(1, 1), (1, 2), (2, 2), (1, 4), (2, 4), (4, 4)}


@pytest.mark.parametrize("way", ENDS)
def test_a_process_that_does_not_go_on_ends_the_others(tmp_path, way):
    place = tmp_path / way
    place.mkdir()
    started = [Forked(__file__, [rank, 2, free_port(), place]) for rank in range(2)]
    done = run_together(started, 60)
    assert (place / "0 of 2.pt").exists(), done[0].stderr
    first = torch.load(place / "0 of 2.pt", weights_only=True)
    assert first["raised"]
    assert first["seconds"] < 5


if __name__ == "__main__":
    share(main, wait=False)
