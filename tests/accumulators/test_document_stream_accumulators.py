"""The source's example and interface, with nothing but the imports changed."""

import logging
from functools import partial
from types import SimpleNamespace

import torch
from streams import written
from torch.testing import assert_close
from torch.utils.tensorboard import SummaryWriter
from torchmetrics.classification import MulticlassAccuracy

from lightning_accum import accumulators

tt = SimpleNamespace(
    accumulators=accumulators,
    Select=accumulators.Select,
    Split=accumulators.Split,
    callbacks=SimpleNamespace(
        Log=accumulators.Log, tensorboard=SimpleNamespace(Scalar=accumulators.Scalar)
    ),
    metrics=SimpleNamespace(
        classification=SimpleNamespace(
            multiclass=SimpleNamespace(
                Accuracy=partial(MulticlassAccuracy, num_classes=3, average="micro")
            )
        )
    ),
)

EXAMPLE = """
(
iteration
** tt.Select(predictions=1, labels=2)
** tt.metrics.classification.multiclass.Accuracy()
** tt.accumulators.Mean()
** tt.Split(
tt.callbacks.Log(f"{name} Accuracy"),
tt.callbacks.tensorboard.Scalar(writer, f"{name}/Accuracy"),
)
)
"""


def steps(seed):
    generator = torch.Generator().manual_seed(seed)
    for size in (6, 6, 3):
        labels = torch.randint(0, 3, (size,), generator=generator)
        yield "loss", torch.rand(size, 3, generator=generator), labels


def test_the_example_accumulates_each_step_and_sends_it_on_when_the_iteration_ends(
    tmp_path, caplog
):
    iteration, name, writer = accumulators.Source(), "train", SummaryWriter(str(tmp_path))
    exec(EXAMPLE, {**globals(), "iteration": iteration, "name": name, "writer": writer})
    expected = []
    with caplog.at_level(logging.INFO, logger="lightning_accum"):
        for epoch in range(2):
            shares = []
            for step in steps(epoch):
                iteration(step)
                shares.append((step[1].argmax(1) == step[2]).float().mean())
                assert len(caplog.records) == epoch
            iteration.end()
            expected.append(float(torch.stack(shares).mean()))
    writer.close()
    assert [r.args[0] for r in caplog.records] == ["train Accuracy"] * 2
    assert_close([float(r.args[1]) for r in caplog.records], expected)
    steps_written, values = zip(*written(tmp_path)["train/Accuracy"], strict=True)
    assert steps_written == (0, 1)
    assert_close(list(values), expected)
