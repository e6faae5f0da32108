"""A linear readout by gradient descent, of features that stay as they are."""

from __future__ import annotations

import torch
from _data import Split
from torch import Tensor, nn
from torch.nn.functional import cross_entropy


def linear_accuracy(data: Split, train: Tensor, test: Tensor) -> float:
    """Share in percent of test images that a linear readout of features reads right.

    Args:
        data: the labels.
        train: features of the training images; of several copies, one after the other.
        test: features of the test images.
    """
    labels = data.train_labels.repeat(len(train) // len(data.train_labels))
    mean, deviation = train.mean(0), train.std(0)
    deviation += 0.1 * deviation.mean()
    train, test = (train - mean) / deviation, (test - mean) / deviation
    readout = nn.Linear(train.shape[1], 10)
    optimizer = torch.optim.LBFGS(readout.parameters(), max_iter=100)

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = cross_entropy(readout(train), labels)
        value += 0.002 * readout.weight.square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    return 100 * (readout(test).argmax(1) == data.test_labels).float().mean().item()
