"""How close the cost model's choice of a path is to the fastest one, over a grid of windows.

Each rule is evaluated for the same recorded window by every path, in turn, on one thread,
and the change is applied. A line has the processor time of the chosen path over that of the
fastest; 1.1 and more is marked.

    python benchmarks/choices.py [--smoke] [--turns 7]
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable

import torch
from _measure import setting, table
from torch import Tensor, nn

import lightning_accum as la
from lightning_accum.sparse.costs import Choice

INPUTS = 784
PATHS: tuple[Choice, ...] = ("dense", "pre", "post")
RULES: dict[str, Callable[..., la.Rule]] = {
    "STDP": lambda **k: la.STDP(1e-4, -1e-4, **k),
    "STDP, nearest": lambda **k: la.STDP(1e-4, -1e-4, trace_mode="nearest", **k),
    "MSTDP": lambda **k: la.MSTDP(1e-4, -1e-4, **k),
    "MSTDPET": lambda **k: la.MSTDPET(1e-4, -1e-4, carry=False, **k),
    "TripletSTDP": lambda **k: la.TripletSTDP(1e-4, 1e-4, -1e-4, -1e-4, **k),
}


class Replay(nn.Module):
    """A neuron that gives out a recorded window."""

    def __init__(self, spikes: Tensor) -> None:
        super().__init__()
        self.spikes = spikes

    def forward(self, current: Tensor) -> Tensor:
        return self.spikes


class Turn:
    """One rule with one path, on one window."""

    def __init__(self, rule: str, path: str, pre: Tensor, post: Tensor) -> None:
        torch.manual_seed(0)
        self.fc, self.neuron = nn.Linear(INPUTS, post.shape[-1], bias=False), Replay(post)
        self.rule = RULES[rule](time_dim=0, backend=path)
        self.rule.register_cell("cell", la.Cell(self.fc, self.neuron))
        self.given = {"reward": torch.randn(pre.shape[1])} if rule.startswith("MSTDP") else {}
        self.current, self.pre, self.times = torch.zeros(1), pre, list[float]()

    def once(self) -> None:
        """Records the window, and times the rule and its update."""
        for (_, name), monitor in self.rule.named_monitors:
            monitor(self.pre if name == "pre" else self.neuron.spikes)
        start = time.process_time()
        self.rule(**self.given)
        self.rule.update()
        self.times.append(1e3 * (time.process_time() - start))
        self.rule.clear()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="one tiny window, just to see it run")
    parser.add_argument("--turns", type=int, default=7)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(setting())
    grid = itertools.product((10, 100, 400, 1600), (1, 32), (50, 250), (0.02, 0.1))
    rows, worst = [], 1.0
    for neurons, batch, steps, share in [(8, 2, 4, 0.2)] if args.smoke else grid:
        pre = torch.rand(steps, batch, INPUTS) < share
        post = torch.rand(steps, batch, neurons) < share
        for rule in RULES:
            turns = {path: Turn(rule, path, pre, post) for path in ("auto", *PATHS)}
            for _ in range(2 if args.smoke else args.turns):
                for turn in turns.values():
                    turn.once()
            found = {path: statistics.median(turn.times[1:]) for path, turn in turns.items()}
            fastest = min(PATHS, key=lambda path: found[path])
            ratio = found["auto"] / found[fastest]
            worst = max(worst, ratio)
            times = [f"{found[path]:.2f}" for path in ("auto", *PATHS)]
            mark = " !" if ratio >= 1.1 else ""
            rows.append([f"{neurons}, B {batch}, T {steps}, {share:.0%}", rule, *times,
                         fastest, f"{ratio:.2f}{mark}"])  # fmt: skip
    header = ["window", "rule", "chosen, ms", *(f"{path}, ms" for path in PATHS), "fastest"]
    table([*header, "chosen / fastest"], rows)
    print(f"\nThe farthest from the fastest: {worst:.2f}.")


if __name__ == "__main__":
    main()
