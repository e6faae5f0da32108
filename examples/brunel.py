"""Ten million plastic synapses: the network of Brunel 2000, as it learns by STDP in real time.

8,000 excitatory and 2,000 inhibitory integrate-and-fire neurons hear 800 and 200 of each other, and
Poisson spikes from outside (doi:10.1023/A:1008925309027, model A; delays of 2 ms, and 0.2 mV for an
excitatory spike). Inhibition is strong, and neurons fire asynchronously and irregularly: the
intervals between spikes of a neuron vary as those of a Poisson process do, whose coefficient of
variation is 1. Synapses from excitatory to excitatory neurons, 6.4 of 10 million, change at every
spike by additive pair STDP, between 0 and twice their first weight.

`learn_online` runs a step of the whole network at a time, in one compiled loop.

    python examples/brunel.py [--seconds 20] [--neurons 10000] [--picture brunel.png] [--short]

With `torchrun --nproc-per-node 2` for `python`, two processes share the neurons; what is printed of
weights is then of those of the first one.
"""

from __future__ import annotations

import os
import time

import torch
import torch.distributed as dist
from _brunel import Brunel, Drive, irregularity, make, rates, simulate
from _experiment import arguments, save
from matplotlib.figure import Figure
from torch import Tensor

SETTLE = 500  # ms before anything is counted
SHOWN = 500  # ms at the end that are drawn


def draw(spikes: Tensor, before: Tensor, after: Tensor, p: Brunel, path: str) -> None:
    """Draws the last spikes of some neurons, the rate of all, and the weights."""
    figure = Figure(figsize=(9.6, 4.0), layout="constrained")
    axes = figure.subplot_mosaic(
        [["raster", "weights"], ["rate", "weights"]], height_ratios=[3, 1], width_ratios=[1.7, 1]
    )
    step = max(1, p.neurons // 100)
    for kind, colour in (("E", "C0"), ("I", "C3")):
        first = 0 if kind == "E" else p.sizes["E"]
        some = spikes[:, first : first + p.sizes[kind] : step]
        when, which = some.nonzero(as_tuple=True)
        axes["raster"].plot(when, first // step + which, "|", color=colour, ms=3)
    axes["raster"].set(ylabel=f"every {step}th neuron", xlim=(0, len(spikes)), xticklabels=[])
    axes["rate"].plot(1000 * spikes.double().mean(1), color="0.3", lw=0.8)
    axes["rate"].set(xlabel="ms", ylabel="rate, Hz", xlim=(0, len(spikes)), ylim=(0, None))
    weights = axes["weights"]
    weights.hist(after.numpy() / p.w_exc, bins=100, range=(0, 2), color="C0", label="after")
    weights.hist(
        before.numpy() / p.w_exc, bins=100, range=(0, 2), color="k", histtype="step", label="before"
    )
    weights.set(xlabel="weight, over its first value", ylabel="synapses E to E", yscale="log")
    weights.legend(frameon=False, fontsize=8)
    save(figure, path, dpi=72)


def spread(weights: Tensor, p: Brunel) -> str:
    """Returns mean, deviation and extremes of weights, over their first value."""
    w = weights.double() / p.w_exc
    low, high = (100 * float((w == limit).double().mean()) for limit in (0.0, p.w_max / p.w_exc))
    return (
        f"mean {w.mean():.3f}, std {w.std():.3f}, from {w.min():.2f} to {w.max():.2f};"
        f" {low:.1f} % at 0, {high:.1f} % at most"
    )


def main() -> None:
    args = arguments(
        __doc__, __file__, "1,000 neurons, a second", seeds=1, seconds=20, neurons=10_000
    )
    p = Brunel(neurons=1_000 if args.short else args.neurons)
    seconds = 1 if args.short else args.seconds
    if "WORLD_SIZE" in os.environ:  # of torchrun
        dist.init_process_group("gloo")
    rank = dist.get_rank() if dist.is_initialized() else 0
    torch.manual_seed(0)
    network, trainer = make(p)
    weight, drive = network.cell("E", "E").connection.weight.detach(), Drive(p, seed=rank)
    synapses = sum(len(each.weight) for each in network.connections.values())
    where = "" if network.exchange is None else f" in process {rank}"
    print(f"{p.neurons:,} neurons, {synapses:,} synapses{where}, {len(weight):,} of them plastic")
    for _ in simulate(network, trainer, drive, SETTLE):
        pass
    before, start = weight.clone(), time.perf_counter()
    spikes = torch.cat(list(simulate(network, trainer, drive, 1000 * seconds)))
    took = (time.perf_counter() - start) / seconds
    spikes = network.gather(spikes)
    if dist.is_initialized():
        dist.destroy_process_group()
    if rank:
        return
    excitatory, inhibitory = rates(spikes, p)
    print(f"rate: {excitatory:.1f} Hz excitatory, {inhibitory:.1f} Hz inhibitory")
    print(f"coefficient of variation of intervals: {irregularity(spikes):.2f}")
    print(f"weights before: {spread(before, p)}")
    print(f"weights after {seconds} s: {spread(weight, p)}")
    print(f"{took:.2f} s per biological second on {torch.get_num_threads()} thread(s)")
    draw(spikes[-SHOWN:], before, weight, p, args.picture)


if __name__ == "__main__":
    main()
