"""A convolution that learns by STDP, side by side in every library that can do it.

Measured as the dense layer above.

    python benchmarks/convolution.py [--smoke] [--seconds 5]
"""

from __future__ import annotations

import argparse
import statistics

import torch
from _bindsnet import BindsNetConv
from _inferno import InfernoConv
from _measure import goal, setting
from _ours import Native, OnSpikingJelly
from _rival_layers import Norse, SpikingJelly, SpikingJellyMulti
from _side_by_side import memory_of, side_by_side
from _stdp_work import ConvLoad, Make

CONTENDERS: dict[str, Make] = {
    "ours, native layers": Native,
    "ours, on SpikingJelly's layers": OnSpikingJelly,
    "Inferno": InfernoConv,
    "SpikingJelly, single step": SpikingJelly,
    "SpikingJelly, multi step": SpikingJellyMulti,
    "Norse": Norse,
    "BindsNET, at every step": BindsNetConv,
}
LOADS = (ConvLoad(1, 16, 50, 8), ConvLoad(16, 16, 50, 8))
SMOKE = (ConvLoad(2, 3, 6, 2, 6, density=0.2),)
LEAST = 4.5  # times as fast, rule and forward, as the best of the others


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a tiny load, just to see it run")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each network and load")
    parser.add_argument("--memory-of", nargs=8, help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1 if args.smoke else args.threads)
    if args.memory_of:
        name, *sizes, density = args.memory_of
        memory_of(CONTENDERS[name], ConvLoad(*map(int, sizes), density=float(density)))
        return
    print(setting("inferno-ai", "bindsnet", "spikingjelly", "norse"))
    for load in SMOKE if args.smoke else LOADS:
        print(f"\n### {load}\n")
        nets = side_by_side(CONTENDERS, load, args.seconds, None if args.smoke else __file__)
        ours, *others = (statistics.median(nets[name].whole) for name in nets if " on " not in name)
        reached = min(others, default=float("nan")) / ours
        print(f"\nRule and forward: {reached:.1f}× as fast as the best other.")
        goal(f"Rule and forward: {reached:.1f}× as fast, of {LEAST}× to reach")


if __name__ == "__main__":
    main()
