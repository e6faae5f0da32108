"""Fields learned from photographs are oriented, and the measure of that is right."""

import pytest
import receptive_fields as science
import torch

pytest.importorskip("sklearn")


def gratings(degrees, period=6.0):
    """Gabor patches whose brightness changes in a direction, counted from the right downwards."""
    offset = torch.arange(16) - 7.5
    angle = torch.deg2rad(torch.as_tensor(degrees, dtype=torch.float32))[:, None, None]
    along = torch.cos(angle) * offset + torch.sin(angle) * offset[:, None]
    envelope = torch.exp(-(offset**2 + offset[:, None] ** 2) / 32)
    return torch.cos(2 * torch.pi * along / period) * envelope


def test_orientation_of_gratings():
    degrees = torch.arange(-85.0, 90.0, 5.0)
    selectivity, preferred = science.orientation(gratings(degrees))
    assert (selectivity > 0.8).all()
    away = (preferred - degrees + 90) % 180 - 90
    assert away.abs().max() < 2
    assert science.orientations_covered(gratings(degrees)) == 8
    assert science.orientations_covered(gratings([30.0, 31.0, -60.0])) == 2


def test_what_has_no_orientation():
    offset = torch.arange(16) - 7.5
    square = offset**2 + offset[:, None] ** 2
    blobs = torch.stack([torch.exp(-square / s) - 0.5 * torch.exp(-square / s / 2) for s in (4, 9)])
    plaid = gratings([0.0]) + gratings([90.0])
    assert science.orientation(torch.cat([blobs, plaid]))[0].max() < 0.05
    noise = torch.randn(200, 16, 16, generator=torch.Generator().manual_seed(0))
    assert science.share_oriented(noise) < 0.02


def test_photographs_make_oriented_fields_and_neither_chance_nor_the_spectrum_does():
    fields = science.experiment(neurons=64, count=10_000, epochs=2, seed=1)
    assert fields["photographs"].shape == (64, 16, 16)
    assert science.share_oriented(fields["photographs"]) > 0.5
    assert science.orientations_covered(fields["photographs"]) > 5
    assert science.share_oriented(fields["untrained"]) < 0.03
    assert science.share_oriented(fields["scrambled phases"]) < 0.1
    # all have learned, and kept their length
    norms = fields["photographs"].flatten(1).norm(dim=1)
    torch.testing.assert_close(norms, torch.ones(64), rtol=0, atol=1e-5)
    overlap = (fields["photographs"] * fields["untrained"]).sum((1, 2))
    assert overlap.abs().max() < 0.9


def test_only_the_strongest_of_either_sign_answers():
    found = science.Winner()(torch.tensor([[1.0, -3.0, 2.0], [0.5, 0.2, -0.1]]))
    assert found.tolist() == [[0.0, -3.0, 0.0], [0.5, 0.0, 0.0]]
