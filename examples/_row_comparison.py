"""How networks that read digits row by row learn, compared in a table and a picture."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import torch
from _controls import UNTRAINED, linear, linear_behind, seen_by
from _data import Split
from _experiment import curves, save, spread
from _quiet import quiet
from matplotlib.figure import Figure

ROWS, CLASSES = 8, 10
STEPS = 4  # of 1 ms, for which a row is shown
METHODS = ("BPTT", "e-prop", "e-prop, random feedback")


def compare(
    untrained: Callable[..., Any], learn: Callable[..., Any], split: Split, args: Namespace
) -> tuple[dict[str, list[Any]], str, float, dict[str, str], dict[str, str]]:
    """Trains networks by each of ``METHODS``, and prints what they reach.

    Args:
        untrained: takes the split and a seed, and returns a network as it is at first.
        learn: takes a method, the split, the number of epochs and a seed; returns the network.
        split: the digits.
        args: the options of the command line.

    Returns:
        The networks by method, the accuracies of e-prop, its samples per second, what is reached
        without it, and by simple methods with labels or gradients.
    """
    quiet()
    torch.set_num_threads(1)
    seeds, epochs = args.seeds, 1 if args.short else 16
    print(f"share of {len(split.test_labels)} unseen digits read right, row by row")
    found, seconds = {}, {}
    for method in METHODS:
        start = time.process_time()
        runs = found[method] = [learn(method, split, epochs, seed) for seed in range(seeds)]
        seconds[method] = time.process_time() - start
        print(f"  {method:24s}{' '.join(f'{run.accuracies[-1]:6.1%}' for run in runs)}", flush=True)
    samples = seeds * epochs * len(split.train_labels)
    reached = {method: [100 * run.accuracies[-1] for run in runs] for method, runs in found.items()}
    fixed = [linear_behind(split, untrained(split, seed).see) for seed in range(seeds)]
    refitted = [linear(seen_by(split, network.see)) for network in found["e-prop"]]
    print(f"  {'e-prop, readout refitted':24s}{' '.join(f'{share:5.1f}%' for share in refitted)}")
    simple = {
        "BPTT": spread(reached["BPTT"]),
        "linear, of the pixels": spread([linear(split)] * seeds),
    }
    speed = samples / seconds["e-prop"]
    return found, spread(reached["e-prop"]), speed, {UNTRAINED: spread(fixed)}, simple


@torch.no_grad()
def draw(found: dict[str, list[Any]], split: Split, path: str) -> None:
    """A digit, the spikes and the answer that it evokes after e-prop; accuracies over epochs."""
    figure = Figure(figsize=(9.6, 2.8), layout="constrained")
    image, spikes, answer, shares = figure.subplots(1, 4, width_ratios=(2, 3, 3, 4))
    network = found["e-prop"][0]
    right = network.read(split.test_images) == split.test_labels
    chosen = int(right.int().argmax())  # the first that is read right
    sample, label = split.test_images[chosen : chosen + 1], int(split.test_labels[chosen])
    image.imshow(sample[0], cmap="gray_r")
    image.set(xticks=[], yticks=range(ROWS), title="digit", ylabel="row")
    y = network(sample)[:, 0]
    step, neuron = network.spikes[:, 0].nonzero(as_tuple=True)
    spikes.scatter(step, neuron, s=1, color="k")
    spikes.set(title="spikes", xlabel="ms", ylabel="neuron", xlim=(0, ROWS * STEPS))
    answer.plot(y, color="0.7", lw=0.8)
    answer.lines[label].set(color="C2", lw=1.8)
    answer.axvspan((ROWS - 1) * STEPS, ROWS * STEPS, color="0.93", zorder=0)
    answer.set(title=f"readout, green: {label}", xlabel="ms")
    for i, (method, runs) in enumerate(found.items()):
        accuracies = [run.accuracies for run in runs]
        curves(shares, range(1, len(accuracies[0]) + 1), accuracies, f"C{i}", method)
    shares.set(title="unseen digits read right", xlabel="epoch", ylim=(0, 1))
    shares.legend(frameon=False, fontsize=8, loc="lower right")
    save(figure, path, dpi=100)
