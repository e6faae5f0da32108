"""The network of ``examples/_brunel.py`` in NEST, run by ``brunel.py`` in NEST's own environment.

    python benchmarks/_brunel_nest.py '{"neurons": 1000, ...}'

It prints JSON: seconds to build and to simulate, rates in Hz, and MB at the peak.
"""

from __future__ import annotations

import json
import resource
import sys
import time

import nest


def build(p: dict[str, float]) -> dict[str, object]:
    """Makes neurons, drive and synapses, and returns the neurons and what counts their spikes."""
    excitatory = round(0.8 * p["neurons"])
    sizes = {"E": excitatory, "I": round(p["neurons"]) - excitatory}
    neuron = {
        "tau_m": p["tc_mem"], "V_th": p["threshold"], "V_reset": p["reset"], "V_m": 0.0,
        "t_ref": p["refractory"], "E_L": 0.0, "C_m": 1.0, "tau_minus": p["tc_trace"],
    }  # fmt: skip
    groups = {name: nest.Create("iaf_psc_delta", size, neuron) for name, size in sizes.items()}
    recorder = nest.Create("spike_recorder", params={"start": p["settle"]})
    drive = nest.Create("poisson_generator", params={"rate": 1000 * p["drive"]})
    nest.CopyModel("stdp_synapse", "plastic", {
        "tau_plus": p["tc_trace"], "lambda": p["lr"], "alpha": p["depression"], "mu_plus": 0.0,
        "mu_minus": 0.0, "Wmax": p["w_max"], "weight": p["w_exc"], "delay": p["delay"],
    })  # fmt: skip
    for target, group in groups.items():
        nest.Connect(drive, group, syn_spec={"weight": p["w_exc"], "delay": 1.0})
        for source, weight in (("E", p["w_exc"]), ("I", -p["g"] * p["w_exc"])):
            static = {"synapse_model": "static_synapse", "weight": weight, "delay": p["delay"]}
            plastic = {"synapse_model": "plastic"}
            each = {"rule": "fixed_indegree", "indegree": sizes[source] // 10}
            each["allow_multapses"] = False
            nest.Connect(
                groups[source], group, each, plastic if source == target == "E" else static
            )
        nest.Connect(group, recorder)
    return {**groups, "recorder": recorder}


def main() -> None:
    p = json.loads(sys.argv[1])
    nest.verbosity = nest.VerbosityLevel.ERROR
    nest.ResetKernel()
    nest.set(resolution=1.0, local_num_threads=int(p["threads"]), rng_seed=int(p["seed"]) + 1)
    start = time.perf_counter()
    network = build(p)
    nest.Prepare()
    built = time.perf_counter() - start
    nest.Run(p["settle"])
    start = time.perf_counter()
    nest.Run(p["ms"])
    seconds = time.perf_counter() - start
    nest.Cleanup()
    senders = network["recorder"].events["senders"]
    last = max(network["E"].tolist())
    counts = {"E": int((senders <= last).sum()), "I": int((senders > last).sum())}
    rates = {name: 1000 * n / len(network[name]) / p["ms"] for name, n in counts.items()}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"build": built, "seconds": seconds, "rates": rates, "MB": peak}))


if __name__ == "__main__":
    main()
