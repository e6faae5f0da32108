import itertools

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from lightning_accum.functional.spikes import poisson_encode
from lightning_accum.nn import PoissonEncoder


def test_probability_is_rate_times_step():
    x = torch.rand(4, 3)
    spikes = PoissonEncoder(steps=9, max_rate=200.0, dt=2.0, seed=5)(x)
    assert torch.equal(spikes, poisson_encode(x, 9, 0.4, torch.Generator().manual_seed(5)))


def test_without_seed_follows_the_global_generator_and_with_one_leaves_it_alone():
    encoder, x = PoissonEncoder(20, 500.0), torch.rand(30)
    torch.manual_seed(0)
    one = encoder(x)
    PoissonEncoder(20, 500.0, seed=0)(x)
    two = encoder(x)
    torch.manual_seed(0)
    assert torch.equal(one, encoder(x))
    assert torch.equal(two, encoder(x))
    assert not torch.equal(one, two)


def test_state_dict_keys_do_not_depend_on_the_seed():
    assert set(PoissonEncoder(2, 5.0).state_dict()) == set(
        PoissonEncoder(2, 5.0, seed=1).state_dict()
    )
    seedless = PoissonEncoder(2, 5.0, seed=1)
    seedless.load_state_dict(PoissonEncoder(2, 5.0).state_dict())
    assert seedless.generator is None
    assert not list(seedless.parameters())


class Encoded(Dataset):
    """Encodes each sample as it is fetched, in the worker that fetches it."""

    def __init__(self, seed):
        self.encoder = PoissonEncoder(20, 300.0, seed=seed)

    def __len__(self):
        return 4

    def __getitem__(self, i):
        return self.encoder(torch.full((1, 5), 0.5))


@pytest.mark.parametrize("seed", [1, None])
def test_every_worker_and_epoch_has_noise_of_its_own(seed):
    def epochs():
        torch.manual_seed(0)
        loader = DataLoader(Encoded(seed), batch_size=1, num_workers=2)
        return [spikes for _ in range(2) for spikes in loader]

    found = epochs()
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(found, 2))
    assert all(torch.equal(a, b) for a, b in zip(found, epochs(), strict=True))  # but the same


@pytest.mark.parametrize(
    "bad",
    [
        None, 3, {}, {"generator": 3}, {"generator": torch.zeros(4)},
        {"generator": None, "more": 1}, {"generator": torch.zeros(5056, dtype=torch.uint8)},
        {"generator": torch.zeros(2).to("meta")},
    ],
)  # fmt: skip
def test_a_refused_state_leaves_the_generator(bad):
    encoder, same = (PoissonEncoder(5, 500.0, seed=1) for _ in range(2))
    for module, state in ((encoder, bad), (torch.nn.Sequential(encoder), bad)):
        prefix = "" if module is encoder else "0."
        with pytest.raises(RuntimeError, match="should"):
            module.load_state_dict({f"{prefix}_extra_state": state})
    x = torch.full((2, 3), 0.5)
    assert torch.equal(encoder(x), same(x))
