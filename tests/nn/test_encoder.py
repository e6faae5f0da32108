import itertools

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from lightning_accum.functional.surrogate_gradients import poisson_encode
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


def rates(x, norm, steps=4000):
    return PoissonEncoder(steps, 1000.0, seed=0, norm=norm)(x).double().mean(0)


def test_norm_is_that_of_each_sample_as_far_as_no_rate_exceeds_the_highest():
    x = torch.rand(4, 3, 5, dtype=torch.float64) ** 2
    expected = torch.stack([(1.8 * each / each.square().sum().sqrt()).clamp(max=1) for each in x])
    assert (expected == 1).any()
    found = PoissonEncoder(9, 200.0, dt=2.0, seed=5, norm=1.8)(x)
    assert torch.equal(found, poisson_encode(expected, 9, 0.4, torch.Generator().manual_seed(5)))
    assert torch.allclose(rates(x.float(), 1.8), expected, atol=0.04)  # five standard errors


@pytest.mark.parametrize("scale", [1e-30, 0.01, 255.0, 1e30])
def test_norm_makes_samples_of_any_contrast_alike_and_apart_from_others(scale):
    x = torch.rand(3, 7)
    other = torch.cat((scale * x[:1], 3 * x[1:2], torch.zeros(1, 7)))
    found, expected = rates(other, 1.2, 50), rates(x, 1.2, 50)
    assert expected[2].any()
    assert torch.equal(found[:2], expected[:2])
    assert not found[2].any()  # a sample of zeros stays one


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float16, torch.bfloat16])
def test_norm_takes_images_as_they_are_stored(dtype, device):
    x = torch.tensor([[30, 40, 0], [120, 160, 0]], dtype=dtype, device=device)
    spikes = PoissonEncoder(4000, 1000.0, seed=0, norm=1.0)(x)
    expected = torch.tensor([[0.6, 0.8, 0.0]] * 2)
    assert spikes.device == x.device
    assert torch.allclose(spikes.float().mean(0).cpu(), expected, atol=0.04)


def test_what_cannot_have_the_norm_is_refused():
    for x, words in (
        (torch.ones(3), r"`x` should have shape \[B, \.\.\.\]"),
        (torch.ones(3, 2, 2), r"`norm` should be at most 2,.* of shape \[2, 2\]\. Found `norm = 3"),
        (torch.full((1, 16), torch.nan), "intensities of at least 0. Found values from nan"),
        (torch.full((1, 16), torch.inf), "intensities of at least 0. Found values from inf"),
        (torch.linspace(-1, 3, 16)[None], "Found values from -1 to 3: subtract"),
    ):
        with pytest.raises(ValueError, match=words):
            PoissonEncoder(2, 5.0, norm=3.0)(x)
    assert PoissonEncoder(2, 5.0, norm=3.0)(torch.ones(0, 16)).shape == (2, 0, 16)


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
