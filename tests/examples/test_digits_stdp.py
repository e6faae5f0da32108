"""The demo in its short form, on digits and on MNIST's format, and what it leaves behind."""

import logging
import re

import _data as data
import digits_stdp as demo
import pytest
import torch
from mnist_files import write_patterns
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


@pytest.fixture
def run(tmp_path, capsys, caplog):
    """Runs the demo's short form with options; gives what it printed and its log."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]

    def run(*options):
        demo.main(["--short", "--log-dir", str(tmp_path / "logs"), *options])
        assert not [r for r in caplog.records if r.name.startswith("lightning.")]  # nor its tips
        events = EventAccumulator(str(tmp_path / "logs" / "digits_stdp" / "version_0"))
        events.Reload()
        printed = capsys.readouterr()
        return printed.out + caplog.text, events

    yield run
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


def test_on_digits(run, tmp_path):
    printed, events = run("--neurons", "60")
    found = re.search(r"^result: ([\d.]+) %", printed, re.MULTILINE)
    assert found
    assert float(found[1]) > 90  # two epochs of six; chance is 10
    for control in ("k-means", "centres of k-means as weights"):
        assert re.search(rf"^control: {control}: 9[3-8]\.", printed, re.MULTILINE)
    assert re.search(r"speed: \d+ samples per second", printed)
    assert f"tensorboard --logdir {tmp_path}" in printed
    assert "Local learning, by what the logging steps saw:" in printed

    scalars = events.Tags()["scalars"]
    for tag in (
        "updates/input/weight/ratio",
        "updates/input/weight/update_norm",
        "activity/input/firing_rate",
        "bayes_probe/lif/train",
        "spikes_per_image",
        "lr-UpdateOptimizer",
    ):
        assert tag in scalars
    assert all(0 < e.value < 1 for e in events.Scalars("updates/input/weight/ratio"))
    rates = [e.value for e in events.Scalars("lr-UpdateOptimizer")]
    assert rates == sorted(rates, reverse=True)
    picture = events.Images("fields/input/weight")[-1]
    assert picture.width == picture.height > 64  # 60 fields of 8 by 8 pixels, and what is between


def test_on_files_in_mnists_format(run, tmp_path):
    write_patterns(tmp_path, 160, 40, least=0.8)
    printed, _ = run("--data", "mnist", "--data-dir", str(tmp_path), "--neurons", "40")
    found = re.search(r"^result: ([\d.]+) %", printed, re.MULTILINE)
    assert found
    assert float(found[1]) > 90  # ten patterns with little noise


def test_the_network_sees_neither_contrast_nor_rate():
    images = data.load_digits_split().train_images[:64]
    nets = []
    for rate in (1000.0, 100.0):
        torch.manual_seed(0)
        nets.append(demo.DiehlCook(images, neurons=20, batch_size=16, rate=rate))
    spikes = []
    for contrast in (1.0, 0.25):
        torch.manual_seed(1)
        spikes.append(nets[0].encode(contrast * images))
    assert torch.equal(*spikes)
    fast, slow = (net.encode(images).sum(0).float().mean() for net in nets)
    assert 0.9 < slow / fast < 1.1  # as many spikes, in ten times the time
    fast, slow = (net.eval()(images).sum(0).mean() for net in nets)
    assert 0.8 < slow / fast < 1.25


@pytest.mark.parametrize("width", [0.7, 1.0, 1.5])
def test_a_point_becomes_a_gaussian_of_the_width(width):
    image = torch.zeros(2, 28, 28)
    image[1, 12, 17] = 1.0
    empty, point = data.blurred(image, width)
    assert not empty.any()
    at = torch.arange(28.0)
    for axis, middle in ((1, 12), (0, 17)):
        profile = point.sum(axis)
        torch.testing.assert_close(profile.sum(), torch.tensor(1.0))
        gaussian = torch.exp(-((at - middle) ** 2) / (2 * width**2))
        torch.testing.assert_close(profile / profile[middle], gaussian)


def test_a_blur_of_zero_changes_nothing():
    images = data.load_digits_split().train_images[:4]
    assert data.blurred(images, 0.0) is images
