"""The demo in its short form, on digits and on MNIST's format, and what it leaves behind."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

EXAMPLES = Path(__file__).parents[2] / "examples"


def demo(tmp_path: Path, *options: str) -> tuple[str, EventAccumulator]:
    command = [sys.executable, "digits_stdp.py", "--short", "--log-dir", str(tmp_path / "logs")]
    done = subprocess.run(
        [*command, *options], cwd=EXAMPLES, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "lightning" not in done.stderr  # nor its tips
    events = EventAccumulator(str(tmp_path / "logs" / "digits_stdp" / "version_0"))
    events.Reload()
    return done.stdout + done.stderr, events


def test_on_digits(tmp_path: Path):
    printed, events = demo(tmp_path)
    found = re.search(r"test accuracy, 100 neurons: ([\d.]+) %", printed)
    assert found
    assert float(found[1]) > 90  # two epochs of six; chance is 10
    assert re.search(r"k-means with 100 centres: +9[5-8]\.", printed)
    assert re.search(r"samples per second in training: \d+", printed)
    assert f"tensorboard --logdir {tmp_path}" in printed
    assert "Local learning, by what the logging steps saw:" in printed

    scalars = events.Tags()["scalars"]
    for tag in (
        "updates/input/weight/ratio",
        "updates/input/weight/update_norm",
        "activity/input/firing_rate",
        "train/accuracy",
        "spikes_per_image",
        "lr-UpdateOptimizer",
    ):
        assert tag in scalars
    assert all(0 < e.value < 1 for e in events.Scalars("updates/input/weight/ratio"))
    rates = [e.value for e in events.Scalars("lr-UpdateOptimizer")]
    assert rates == sorted(rates, reverse=True)
    picture = events.Images("fields/input/weight")[-1]
    assert picture.width == picture.height > 64  # 64 fields of 8 by 8 pixels, and what is between


def test_on_files_in_mnists_format(tmp_path: Path):
    generator = np.random.default_rng(0)
    labels = np.arange(160, dtype=np.uint8) % 10
    prototypes = generator.integers(0, 256, (10, 28, 28)) * (generator.random((10, 28, 28)) < 0.2)
    images = prototypes[labels].astype(np.uint8)
    for name, count in (("train", 160), ("t10k", 40)):
        head = struct.pack(">IIII", 2051, count, 28, 28)
        (tmp_path / f"{name}-images-idx3-ubyte").write_bytes(head + images[:count].tobytes())
        head = struct.pack(">II", 2049, count)
        (tmp_path / f"{name}-labels-idx1-ubyte").write_bytes(head + labels[:count].tobytes())
    torch.manual_seed(0)
    printed, _ = demo(tmp_path, "--data", "mnist", "--data-dir", str(tmp_path), "--neurons", "40")
    found = re.search(r"test accuracy, 40 neurons: ([\d.]+) %", printed)
    assert found
    assert float(found[1]) > 90  # ten patterns without any noise


def test_the_network_sees_neither_contrast_nor_rate():
    source = """
import torch
from digits_stdp import DiehlCook, load_digits_split
images = load_digits_split().train_images[:64]
nets = []
for rate in (1000.0, 100.0):
    torch.manual_seed(0)
    nets.append(DiehlCook(images, neurons=20, batch_size=16, batches=1, max_rate=rate))
spikes = []
for contrast in (1.0, 0.25):
    torch.manual_seed(1)
    spikes.append(nets[0].encode(contrast * images))
assert torch.equal(*spikes)
fast, slow = (net.encode(images).sum(0).float().mean() for net in nets)
assert 0.9 < slow / fast < 1.1  # as many spikes, in ten times the time
fast, slow = (net.eval()(images).sum(0).mean() for net in nets)
assert 0.8 < slow / fast < 1.25
"""
    command = [sys.executable, "-c", source]
    done = subprocess.run(command, cwd=EXAMPLES, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
