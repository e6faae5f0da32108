"""Learning after every step by STDP, side by side in every library that can do it.

784 inputs at 2 %. All libraries run in one process and take turns, after a check of each against
the definition for its own spikes. A step is simulation and learning together.

    python benchmarks/every_step_competitors.py [--smoke] [--seconds 5] [--threads 2]
"""

from __future__ import annotations

import argparse
import statistics

import torch
from _bindsnet import BindsNet
from _inferno import InfernoEachStep
from _measure import setting, table
from _ours import EachStep, Online
from _rival_layers import NorseEachStep
from _side_by_side import in_turns
from _stdp_work import Load, Make

CONTENDERS: dict[str, Make] = {
    "ours, `learn_online`": Online,
    "ours, rule called after each step": EachStep,
    "Norse": NorseEachStep,
    "BindsNET, sum": BindsNet,
    "Inferno": InfernoEachStep,
}
LOADS = [
    *(Load(neurons, steps, batch=32) for neurons, steps in ((100, 100), (400, 100), (1600, 50))),
    *(Load(neurons, 350, batch=1) for neurons in (100, 400, 1600)),
]
SMOKE = [Load(8, 10, 0.2, 4, 16)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a tiny load, just to see it run")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each network and load")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1 if args.smoke else args.threads)
    print(setting("inferno-ai", "bindsnet", "norse"))
    rows = []
    for load in SMOKE if args.smoke else LOADS:
        nets, _ = in_turns(CONTENDERS, load, args.seconds, most=9)
        found = {n: 1e3 * statistics.median(net.whole) / load.steps for n, net in nets.items()}
        fastest = min((found[n] for n in ("Norse", "BindsNET, sum") if n in found), default=None)
        cells = [f"{found[name]:.0f}" if name in found else "not run" for name in CONTENDERS]
        ratio = "–" if fastest is None else f"{fastest / found['ours, `learn_online`']:.1f}×"
        rows.append([f"{load.neurons}, batch {load.batch}", *cells, ratio])
    print("\nµs a step, median:\n")
    table(["neurons", *CONTENDERS, "faster of Norse and BindsNET over ours"], rows)


if __name__ == "__main__":
    main()
