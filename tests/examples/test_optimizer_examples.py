"""The examples of optimizers in their short forms: what they print, draw and log."""

import importlib
import re
import sys
from pathlib import Path

import pytest
import torch
from _forked import Forked
from mnist_files import write_patterns
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lightning_accum.optim import Noam

EXAMPLES = Path(__file__).parents[2] / "examples"
SAMPLES = {"fit": 1294, "validation": 143, "test": 360}
LAYERS = ("conv1", "conv2", "fc1", "fc2")


def run(folder, script, *options):
    done = Forked(EXAMPLES / script, ["--short", *options], folder).wait()
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"(Updates relative [^\n]*\n(\w+\S* .*\n)*)?", done.stderr)
    return done.stdout


def logged(folder):
    """All that a run of the CNN in a folder has logged to TensorBoard, and when it has stepped."""
    events = EventAccumulator(str(folder / "lightning_logs" / "cnn_optimizers" / "version_0"))
    events.Reload()
    return {tag: [e.value for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_cnn_learns_and_logs(tmp_path):
    printed = run(tmp_path, "cnn_optimizers.py")
    assert "AdaBelief: 42 steps" in printed
    found = re.search(r"test accuracy ([\d.]+) %, best in validation ([\d.]+) %", printed)
    assert found
    assert float(found[1]) > 85  # two epochs of ten; chance is 10

    values = logged(tmp_path)
    for name, samples in SAMPLES.items():
        # of batches of different sizes, each with its weight: a whole number of samples
        for accuracy in values[f"{name}/accuracy"]:
            assert samples * accuracy == pytest.approx(round(samples * accuracy), abs=1e-3)
        assert len(values[f"{name}/loss"]) == (1 if name == "test" else 2)
    assert values["fit/loss"][1] < 0.5 * values["fit/loss"][0]
    assert values["test/accuracy"] == pytest.approx([float(found[1]) / 100], abs=6e-4)
    assert values["validation/best_accuracy"][1] == max(values["validation/accuracy"])
    assert values["lr-AdaBelief"] == pytest.approx([1e-3] * len(values["lr-AdaBelief"]))
    for layer in LAYERS:
        name = f"layers.{layer}"
        for ratios in (values[f"change_ratio/{name}"], values[f"updates/{name}.biases/ratio"]):
            assert len(ratios) == 4  # every tenth step of 42
            assert all(0 < ratio < 1 for ratio in ratios)
        assert set(values[f"updates/{name}/nonfinite"]) == {0.0}


def test_a_scheduler_reaches_an_optimizer_with_a_schedule_of_its_own(tmp_path):
    optimizer = ("--optimizer=lightning_accum.optim.Noam", "--optimizer.lr=0.1")
    options = ("--optimizer.warmup=10", "--optimizer.d_model=500")
    name = "--lr_scheduler=torch.optim.lr_scheduler.ExponentialLR"
    run(tmp_path, "cnn_optimizers.py", *optimizer, *options, name, "--lr_scheduler.gamma=0")
    values = logged(tmp_path)
    assert values["lr-Noam"] == pytest.approx([0.1, 0.0])
    for layer in LAYERS:
        # of steps 10, 20, 30 and 40, the last two are of the second epoch, with a rate of zero
        *first, third, fourth = values[f"updates/layers.{layer}/update_norm"]
        assert min(first) > 0
        assert third == fourth == 0.0


# Lightning remarks that the command line's optimizer takes the default's place.
@pytest.mark.filterwarnings("ignore:.*configure_optimizers. will be overridden:UserWarning")
def test_a_command_line_names_files_in_mnists_format_and_some_of_an_optimizer(
    monkeypatch, tmp_path
):
    monkeypatch.syspath_prepend(EXAMPLES)
    example = importlib.import_module("cnn_optimizers")
    write_patterns(tmp_path, 640, 30)
    trainer = {"accelerator": "cpu", "logger": False, "enable_checkpointing": False}
    options = ["--optimizer=lightning_accum.optim.Noam", "--optimizer.lr=0.25"]
    options += [f"--data.dir={tmp_path}", "--data.batch_size=32"]
    whole = ["fit", "--trainer.max_epochs=2", "--trainer.enable_progress_bar=false", *options]
    assert example.expanded(["--short", "fit", *options]) == whole
    monkeypatch.setattr(sys, "argv", ["cnn_optimizers.py", *options])
    cli = example.CLI(
        *(example.CNN, example.Digits),
        run=False,
        trainer_defaults=trainer,
        seed_everything_default=False,
    )
    optimizer = cli.model.configure_optimizers()
    assert type(optimizer) is Noam
    (group,) = optimizer.param_groups
    assert len(group["params"]) == 8
    own = Noam([torch.nn.Parameter(torch.ones(1))]).defaults
    assert {key: group[key] for key in own} == {**own, "lr": 0.25}
    cli.datamodule.setup("fit")
    sizes = [len(batch) for batch, _ in cli.datamodule.train_dataloader()]
    assert sizes == [32] * 18  # 576 of 640
    assert len(cli.datamodule.test) == 30


def test_comparison_prints_a_table_and_draws(tmp_path):
    picture = tmp_path / "found.png"
    printed = run(tmp_path, "compare_optimizers.py", "--picture", str(picture))
    rows = re.findall(r"^\| (.+?) \| 0\.003 \| ([\d.]+) ± .*\| ([\d.]+) ± 0.0 \|$", printed, re.M)
    assert [name for name, _, _ in rows] == ["AdamW of torch", "AdaBelief"]
    for _, loss, accuracy in rows:
        assert float(loss) < 1.8  # ten classes; by chance it is 2.3
        assert float(accuracy) > 60
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert list(tmp_path.iterdir()) == [picture]


def test_adam_ends_at_the_worst_point_and_amsgrad_at_the_best(tmp_path):
    picture = tmp_path / "found.png"
    printed = run(tmp_path, "amsgrad_problem.py", "--picture", str(picture))
    ends = dict(re.findall(r"^(\w+, \w+) after 1000 steps: x = ([+-][\d.]+)", printed, re.M))
    for problem in ("online", "stochastic"):
        assert float(ends[f"{problem}, AMSGrad"]) == pytest.approx(-1.0, abs=0.05)
        assert float(ends[f"{problem}, Adam"]) > 0.9
        regret = rf"{problem}, (\w+) .*average regret ([\d.]+)$"
        regrets = dict(re.findall(regret, printed, re.M))
        assert float(regrets["AMSGrad"]) < 0.1 < 0.5 < float(regrets["Adam"])
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert list(tmp_path.iterdir()) == [picture]
