"""A batch that learns from an error, by e-prop and by BPTT, in time and memory.

One hidden layer of 400 spiking neurons and a leaky readout; a batch is the pass, the change of all
weights by the cross entropy of every step, and its application. The loop keeps the traces of the
e-prop paper for each sample and synapse; it runs a tenth of the steps, and its time is ten times
what that takes. All take turns on one thread, in processor time, after a check that the changes
agree. "Calls" are the operations that torch dispatches in a batch.

    python benchmarks/eprop_and_bptt.py [--smoke] [--repeats 9]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from _error_learners import LEARNERS, ByBPTT, ByEProp, ByLoop, Task
from _measure import goals, middle, peak_memory, print_peak, setting, table
from _recurrent_steppers import STEPPERS
from torch.utils._python_dispatch import TorchDispatchMode

TASKS = [
    Task(784, 400, 10, recurrent=False),
    Task(100, 400, 2, recurrent=True),
    Task(784, 400, 10, recurrent=False, beta=0.2),
    Task(100, 400, 2, recurrent=True, beta=0.2),
]
SMOKE = [Task(6, 5, 3, r, b, steps=10, batch=2, density=0.5) for b in (0, 1) for r in (False, True)]
LOOP_SHARE = 10
PASS, EPROP, BPTT, SNNTORCH, LOOP = LEARNERS


class Calls(TorchDispatchMode):
    """Counts the operations that torch dispatches."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def calls(batch: Callable[[], object]) -> int:
    with Calls() as counter:
        batch()
    return counter.count


def timed(call: Callable[[], object]) -> float:
    """Milliseconds of the processor."""
    start = time.process_time()
    call()
    return 1e3 * (time.process_time() - start)


def agree(task: Task) -> None:
    """Raises an error if e-prop's change is not that of the naive loop, or of BPTT."""
    others: list[type] = [ByLoop] if task.recurrent else [ByLoop, ByBPTT]
    found = []
    for make in (ByEProp, *others):
        learner = make(task)
        before = [weight.detach().clone() for weight in learner.weights()]
        learner.batch()
        after = learner.weights()
        found.append([(a - b).detach() for a, b in zip(after, before, strict=True)])
    for other, changes in zip(others, found[1:], strict=True):
        for ours, theirs in zip(found[0], changes, strict=True):
            error, most = (ours - theirs).abs().max().item(), theirs.abs().max().item()
            if not (most > 0 and error <= 1e-3 * most + 1e-7):
                raise AssertionError(f"E-prop differs from {other} by {error:.1e} of {most:.1e}")


def batches(task: Task, repeats: int, memory: bool) -> None:
    """Prints a table of all that learn; what they should reach goes to the developer."""
    agree(task._replace(steps=min(task.steps, 20), batch=4))
    tenth = task._replace(steps=task.steps // LOOP_SHARE)
    learners = {
        name: make(tenth if name == LOOP else task)
        for name, make in LEARNERS.items()
        if fits(name, task)
    }
    times: dict[str, list[float]] = {name: [] for name in learners}
    for turn in range(repeats + 1):  # the first turn warms up
        for name, learner in learners.items():
            if name == LOOP and turn > 3:
                continue
            elapsed = timed(learner.batch)
            if turn:
                times[name].append(elapsed * (LOOP_SHARE if name == LOOP else 1))
    base = statistics.median(times[PASS])
    peaks = dict.fromkeys(learners, 0.0)
    if memory:
        for name in learners:
            peaks[name] = peak_memory(__file__, name, *fields(tenth if name == LOOP else task))
    rows = []
    for name, learner in learners.items():
        median = statistics.median(times[name])
        count = "–" if name == LOOP else str(calls(learner.batch))
        own = "–" if name == PASS else f"{median - base:.1f}"
        rows.append([name, middle(times[name]), own, count, f"{peaks[name]:.0f}"])
    table(["network", "batch, ms", "beyond the pass, ms", "calls", "peak MB"], rows)
    print()
    batch = {name: statistics.median(each) for name, each in times.items()}
    own = batch[EPROP] - base
    bars = [
        ("the rules' own part over the pass", own / base, "at most", 1.3),
        ("BPTT on the same layers over e-prop", batch[BPTT] / batch[EPROP], "at least", 3.0),
        ("the naive loop over e-prop", batch[LOOP] / batch[EPROP], "at least", 100.0),
        ("the naive loop's own part over the rules'", (batch[LOOP] - base) / own, "", 0.0),
    ]
    if SNNTORCH in batch:
        bars.insert(2, ("snnTorch's BPTT over e-prop", batch[SNNTORCH] / batch[EPROP], "", 0.0))
    print_bars(str(task), bars)


def print_bars(title: str, bars: list[tuple[str, float, str, float]]) -> None:
    rows = []
    for what, reached, kind, bar in bars:
        missed = reached > bar if kind == "at most" else reached < bar
        told = f"{reached:.2f}×" + (f", {kind} {bar:g}×" if kind else "")
        rows.append([what, f"**{told}**" if missed and kind else told])
    goals(title, ["reached, and the bar (bold where it is missed)", ""], rows)


def growth(task: Task, smoke: bool) -> None:
    """Prints how memory grows with the steps."""
    steps = [10, 20] if smoke else [250, 500, 1000]
    rows = []
    for name in (PASS, EPROP, BPTT):
        peaks = [peak_memory(__file__, name, *fields(task._replace(steps=n))) for n in steps]
        slope = (peaks[-1] - peaks[0]) * 2**20 / (steps[-1] - steps[0])
        each = slope / (task.batch * task.neurons)
        rows.append([name, *(f"{peak:.0f}" for peak in peaks), f"{each:.1f}"])
    table(["peak MB", *(f"{n} steps" for n in steps), "bytes a neuron, sample and step"], rows)


def steps(task: Task, repeats: int) -> None:
    """Prints the time of a step of a recurrent layer in each library."""
    x = task.data()[0].float()
    with torch.no_grad():
        runs = {name: make(task) for name, make in STEPPERS.items()}
        times: dict[str, list[float]] = {name: [] for name in runs}
        for turn in range(repeats + 1):
            for name, run in runs.items():
                elapsed = timed(lambda run=run: run(x))
                if turn:
                    times[name].append(1e3 * elapsed / task.steps)
        counts = {name: calls(lambda run=run: run(x)) / task.steps for name, run in runs.items()}
    table(
        ["network", "µs a step", "calls a step"],
        [[name, middle(each, 0), f"{counts[name]:.1f}"] for name, each in times.items()],
    )


def fits(name: str, task: Task) -> bool:
    """Whether a network can do a task: snnTorch has no adaptive threshold."""
    return not (name == SNNTORCH and task.beta)


def fields(task: Task) -> list[str]:
    return [repr(value) for value in task]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="tiny tasks, just to see it run")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--memory-of", nargs=9, help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.memory_of:
        name, inputs, neurons, classes, recurrent, beta, *counts, density = args.memory_of
        sizes = (int(inputs), int(neurons), int(classes))
        n_steps, batch = map(int, counts)
        task = Task(*sizes, recurrent == "True", float(beta), n_steps, batch, float(density))
        LEARNERS[name](task._replace(steps=2)).batch()  # brings in all code
        learner = LEARNERS[name](task)
        print_peak(learner.batch)
        return
    print(setting("snntorch", "norse", "spikingjelly"))
    tasks = SMOKE if args.smoke else TASKS
    repeats = 2 if args.smoke else args.repeats
    for task in tasks:
        print(f"\n### {task}\n")
        batches(task, repeats, memory=not args.smoke)
    print("\n### Memory by steps\n")
    for task in tasks[:1] if args.smoke else tasks[:2]:
        print(f"{task}:\n")
        growth(task, args.smoke)
        print()
    print(f"### A step of a recurrent layer without a gradient, {tasks[1]}\n")
    steps(tasks[1], repeats)
    load = max(os.getloadavg())
    if load > 1.5:
        print(f"\nMeasured on a busy machine: load average {load:.1f} on {os.cpu_count()} cores.")


if __name__ == "__main__":
    main()
