"""One layer with pair STDP in NEST and in Brian2, and Brian2's own example, for `simulators.py`.

It runs in an environment of its own, where torch and this package may be missing. The first
argument is what to do, as JSON. Then each line that it reads is the name of a method, whose result
it prints as a line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

TC, DELAY, WMAX = 20.0, 1.0, 1.0  # ms, ms, and the largest weight


class Nest:
    """Generators, parrots, `stdp_synapse` and `iaf_psc_delta`."""

    def __init__(self, work: dict[str, Any], raster: Any, weight: Any) -> None:
        import nest

        self.nest, self.dt, self.weight = nest, work["dt"], weight
        self.version = f"NEST {nest.__version__}"
        nest.ResetKernel()
        nest.verbosity = nest.VerbosityLevel.ERROR
        nest.resolution, nest.local_num_threads = self.dt, work["threads"]
        self.duration = len(raster) * self.dt
        times = [np.round((np.flatnonzero(row) + 1) * self.dt, 6) for row in raster.T]
        trains = [{"spike_times": each} for each in times]
        self.sources = nest.Create("spike_generator", len(times), trains)
        self.parrots = nest.Create("parrot_neuron", len(times))
        membrane = {"E_L": 0.0, "V_m": 0.0, "V_reset": 0.0, "V_th": 1.0, "t_ref": 0.0, "tau_m": TC}
        self.neurons = nest.Create("iaf_psc_delta", len(weight), {**membrane, "tau_minus": TC})
        nest.Connect(self.sources, self.parrots, "one_to_one", {"delay": DELAY})
        rate, down = work["rates"]
        synapse = {"synapse_model": "stdp_synapse", "delay": DELAY, "weight": weight,
                   "lambda": rate / WMAX, "alpha": -down / rate, "mu_plus": 0.0, "mu_minus": 0.0,
                   "tau_plus": TC, "Wmax": WMAX}  # fmt: skip
        nest.Connect(self.parrots, self.neurons, "all_to_all", synapse)
        self.seen = nest.Create("spike_recorder")
        nest.Connect(self.neurons, self.seen)

    def turn(self) -> dict[str, float]:
        """Shows the sample once more."""
        self.sources.origin = self.nest.biological_time
        self.seen.n_events = 0
        start = time.perf_counter()
        self.nest.Simulate(self.duration)
        return {"ms": 1e3 * (time.perf_counter() - start), "out": self.seen.n_events}

    def check(self, file: str) -> None:
        """Shows the sample and writes down when neurons spiked, and the change of the weights."""
        self.nest.Simulate(self.duration + 4 * DELAY)  # until all spikes have come
        events = self.seen.get("events")
        # A spike is on its way to the synapse for as long as the input's was to its parrot.
        steps = np.round(events["times"] / self.dt).astype(int) - 1
        few = self.neurons[: min(20, len(self.weight))]  # reading all weights takes half a minute
        found = self.nest.GetConnections(self.parrots, few)
        first = few[0].global_id, self.parrots[0].global_id
        rows, columns = (np.array(found.get(name)) for name in ("target", "source"))
        change = -self.weight[: len(few)]
        change[rows - first[0], columns - first[1]] += found.get("weight")
        np.savez(file, neurons=events["senders"] - first[0], steps=steps, change=change)


PAIRS = """
w : 1
dx/dt = -x / tau : 1 (event-driven)
dy/dt = -y / tau : 1 (event-driven)
"""


class Brian:
    """The plastic synapses of Brian2's documentation; compiled by Cython, or a program in C++."""

    def __init__(self, work: dict[str, Any], raster: Any, weight: Any) -> None:
        import brian2 as b

        self.b, self.weight, self.standalone = b, weight, work["simulator"] == "standalone"
        self.version = f"Brian2 {b.__version__}"
        if self.standalone:
            self.folder = tempfile.TemporaryDirectory()
            b.set_device("cpp_standalone", build_on_run=False)
            threads = work["threads"]
            b.prefs.devices.cpp_standalone.openmp_threads = threads if threads > 1 else 0
        else:
            b.prefs.codegen.target = work["target"]
        b.defaultclock.dt = work["dt"] * b.ms
        self.dt, self.duration = work["dt"], len(raster) * work["dt"] * b.ms
        steps, inputs = np.nonzero(raster)
        times = steps * work["dt"] * b.ms
        source = b.SpikeGeneratorGroup(raster.shape[1], inputs, times, period=self.duration)
        layer = b.NeuronGroup(len(weight), "dv/dt = -v / tau : 1", threshold="v >= level",
                              reset="v = 0", method="exact")  # fmt: skip
        # The input of a step decays before it meets the threshold, and a reset should spare it.
        level = np.exp(-self.dt / TC)
        layer.resetter["spike"].when = "before_synapses"
        up, down = work["rates"]
        self.known = {"tau": TC * b.ms, "level": level, "up": up, "down": down, "wmax": WMAX}
        self.synapses = b.Synapses(
            source, layer, PAIRS,
            on_pre="v_post += w\nx += up\nw = clip(w + y, 0, wmax)",
            on_post="y += down\nw = clip(w + x, 0, wmax)",
        )  # fmt: skip
        self.synapses.connect()
        self.synapses.w = weight.T.ravel()
        self.seen = b.SpikeMonitor(layer)
        self.net = b.Network(source, layer, self.synapses, self.seen)
        self.count = 0
        if self.standalone:
            self.net.run(self.duration, namespace=self.known)
            b.device.build(self.folder.name, run=False)

    def turn(self) -> dict[str, float]:
        """Shows the sample once more; what Brian2 prepares before it steps is not timed."""
        if self.standalone:  # a program that begins anew
            self.b.device.run(self.folder.name, with_output=False, run_args=[])
            told = Path(self.folder.name, "results", "last_run_info.txt").read_text()
            return {"ms": 1e3 * float(told.split()[0]), "out": int(self.seen.num_spikes)}
        seconds = [0.0]

        def ended(elapsed: Any, *_: Any) -> None:
            seconds[0] = float(elapsed)

        self.net.run(self.duration, report=ended, report_period=1e6 * self.b.second,
                     namespace=self.known)  # fmt: skip
        self.count, before = int(self.seen.num_spikes), self.count
        return {"ms": 1e3 * seconds[0], "out": self.count - before}

    def check(self, file: str) -> None:
        """Shows the sample and writes down when neurons spiked, and the change of the weights."""
        self.turn()
        steps = np.round(np.asarray(self.seen.t / self.b.ms) / self.dt).astype(int)
        after = np.asarray(self.synapses.w[:]).reshape(self.weight.T.shape).T
        np.savez(file, neurons=np.asarray(self.seen.i), steps=steps, change=after - self.weight)


class Example:
    """Brian2's own example `synapses.STDP`, without its recordings of weights and of the input."""

    def __init__(self, work: dict[str, Any], raster: Any, weight: Any) -> None:
        import brian2 as b

        self.version = f"Brian2 {b.__version__}"
        b.prefs.codegen.target = work["target"]
        b.defaultclock.dt = work["dt"] * b.ms
        self.b, self.duration = b, work["seconds"] * b.second
        self.standalone, self.count = False, 0
        self.known = {**work["numbers"], **{
            name: value * b.ms for name, value in work["times"].items()}}  # fmt: skip
        source = b.PoissonGroup(len(weight), rates=work["hertz"] * b.Hz)
        neuron = b.NeuronGroup(
            1, "dv/dt = (ge * (Ee - vr) + El - v) / taum : 1\ndge/dt = -ge / taue : 1",
            threshold="v > vt", reset="v = vr", method="exact", namespace=self.known,
        )  # fmt: skip
        neuron.v = work["numbers"]["El"]
        self.synapses = b.Synapses(
            source, neuron, PAIRS,
            on_pre="ge += w\nx += up\nw = clip(w + y, 0, wmax)",
            on_post="y += down\nw = clip(w + x, 0, wmax)",
        )  # fmt: skip
        self.synapses.connect()
        self.synapses.w = weight
        self.seen = b.SpikeMonitor(neuron)
        self.net = b.Network(source, neuron, self.synapses, self.seen)

    turn = Brian.turn


def main() -> None:
    """Builds the network, and does what it is told to do."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # simulators print their names

    def answer(told: object) -> None:
        print(json.dumps(told), file=answers, flush=True)

    work = json.loads(sys.argv[1])
    kinds = {"nest": Nest, "brian": Brian, "standalone": Brian, "example": Example}
    with np.load(work["file"]) as given:
        net = kinds[work["simulator"]](work, given["raster"], given["weight"])
    answer(net.version)
    for line in sys.stdin:
        name, *given = line.split()
        answer(getattr(net, name)(*given))


if __name__ == "__main__":
    main()
