"""A layer that learns by STDP, side by side in every library that can do it.

All libraries run in one process and take turns, after a check of each against the definition for
its own spikes. *Plasticity* is what a batch with the rule costs beyond the batch before it without.
`_stdp_work.py` has the details, such as time constants that give each library the same decay.
Networks "at every step" change the weights in each step, all others at the end of the batch.

Some libraries pay dearly for large blocks that glibc's malloc returns after each use. So malloc
keeps its blocks here, and 400 neurons are measured with its defaults too. Memory is measured with
its defaults.

    python benchmarks/competitors.py [--smoke] [--seconds 5] [--neurons 400]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

import torch
from _bindsnet import BindsNet, BindsNetMean
from _inferno import Inferno, InfernoEachStep
from _measure import setting
from _ours import EachStep, Native, Online, OnNorse, OnSnnTorch, OnSpikingJelly
from _performance_targets import print_bars
from _rival_layers import Norse, NorseEachStep, SnnTorch, SpikingJelly, SpikingJellyMulti
from _side_by_side import Pair, memory_of, side_by_side
from _stdp_work import Load, Make

CONTENDERS: dict[str, Make] = {
    "ours, native layers": Native,
    "ours, on snnTorch's layers": OnSnnTorch,
    "ours, on Norse's layers": OnNorse,
    "ours, on SpikingJelly's layers": OnSpikingJelly,
    "Inferno": Inferno,
    "SpikingJelly, single step": SpikingJelly,
    "SpikingJelly, multi step": SpikingJellyMulti,
    "Norse": Norse,
    "snnTorch": SnnTorch,
    "ours, `learn_online`, at every step": Online,
    "ours, rule called by hand, at every step": EachStep,
    "Inferno, at every step": InfernoEachStep,
    "BindsNET, at every step": BindsNet,
    "BindsNET with torch.mean, at every step": BindsNetMean,
    "Norse, at every step": NorseEachStep,
}
KEEP = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "17179869184"}
STEPS = {100: 250, 400: 250, 1600: 50}
SMOKE = Load(8, 10, 0.2, 4, 16)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a tiny load, just to see it run")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each network and load")
    parser.add_argument("--neurons", type=int, choices=STEPS, action="append")
    parser.add_argument("--malloc", choices=("kept", "default"), help=argparse.SUPPRESS)
    parser.add_argument("--memory-of", nargs=6, help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1 if args.smoke else args.threads)
    if args.memory_of:
        name, neurons, steps, density, batch, inputs = args.memory_of
        load = Load(int(neurons), int(steps), float(density), int(batch), int(inputs))
        memory_of(CONTENDERS[name], load)
    elif args.smoke:
        print(setting("inferno-ai", "bindsnet", "spikingjelly", "norse", "snntorch"))
        print(f"\n### {SMOKE}\n")
        side_by_side(CONTENDERS, SMOKE, 0.0, None)
    elif args.malloc:
        compare(args.neurons or [*STEPS], args.seconds, args.malloc == "kept")
    else:
        for malloc, env in (("kept", KEEP), ("default", {})):
            command = [sys.executable, *sys.argv, "--malloc", malloc]
            subprocess.run(command, check=True, env=os.environ | env)


def compare(sizes: list[int], seconds: float, kept: bool) -> None:
    """Prints a table for each number of neurons; with malloc's defaults for 400 only."""
    print(setting("inferno-ai", "bindsnet", "spikingjelly", "norse", "snntorch"))
    found: dict[int, dict[str, Pair]] = {}
    for neurons in sizes if kept else [400]:
        load = Load(neurons, STEPS[neurons], 0.02)
        print(f"\n### {load}" + ("" if kept else ", malloc's default") + "\n")
        found[neurons] = side_by_side(CONTENDERS, load, seconds, __file__ if kept else None)
    print_bars(f"To reach at 2%{'' if kept else ', blocks returned'}", found)
    print(flush=True)


if __name__ == "__main__":
    main()
