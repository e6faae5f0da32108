"""Files in MNIST's format, written from its description."""

import struct

import torch

NAMES = {
    "train_images": "train-images-idx3-ubyte", "train_labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte", "test_labels": "t10k-labels-idx1-ubyte",
}  # fmt: skip


def idx(array):
    """The magic is 2051 for images, 2049 for labels."""
    magic = {3: 2051, 1: 2049}[array.ndim]
    header = struct.pack(f">{1 + array.ndim}i", magic, *array.shape)
    return header + bytes(array.flatten().tolist())


def write_patterns(folder, train, test, least=1.0):
    """Writes images of ten patterns, by turns, whose contrast is between the least and one."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randint(0, 256, (10, 28, 28), generator=generator).float()
    patterns *= torch.rand(10, 28, 28, generator=generator) < 0.2
    for part, count in (("train", train), ("test", test)):
        labels = torch.arange(count) % 10
        contrast = least + (1 - least) * torch.rand(count, 28, 28, generator=generator)
        images = (patterns[labels] * contrast).byte()
        (folder / NAMES[f"{part}_images"]).write_bytes(idx(images))
        (folder / NAMES[f"{part}_labels"]).write_bytes(idx(labels))
