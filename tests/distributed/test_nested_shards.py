"""Of nested modules under FSDP2, the nearest one around a parameter gathers it."""

import pytest
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from lightning_accum import attach_updater
from lightning_accum.callbacks._processes import shard_holders
from lightning_accum.distributed.shards import is_sharded, whole_parameters


@pytest.fixture
def alone():
    """One process that is a group by itself."""
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("wrapped", "holder"),
    [
        (["0.0", "0", ""], "0.0"),
        (["0", ""], "0"),
        ([""], ""),
        (["0.0", ""], "0.0"),
        (["1", ""], ""),
    ],
)
def test_the_nearest_holder(wrapped, holder):
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 3)), nn.Linear(3, 1))
    updater = attach_updater(model.get_submodule("0.0"), "weight")
    mesh = init_device_mesh("cpu", (1,))
    for name in wrapped:
        fully_shard(model.get_submodule(name), mesh=mesh)
    found = shard_holders(model, [updater])
    assert found == [model.get_submodule(holder)]
    assert is_sharded(updater.target("weight"))
    with whole_parameters(found):
        assert not is_sharded(updater.target("weight"))
        assert torch.isfinite(updater.target("weight")).all()
    assert is_sharded(updater.target("weight"))
