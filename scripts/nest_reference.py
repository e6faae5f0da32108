"""Writes down what NEST's plastic synapses and Brian2's equations do, for tests/references.

    make references

It runs in an environment of its own, and writes tests/references/nest.json. A case of a synapse
has the spikes of both sides by step, those of the postsynaptic side as they reach the synapse, its
settings in NEST, and the weights ``[post, pre]`` before and after. A case of e-prop has, for each
update, the presynaptic spikes, and the pseudo-derivatives and learning signals of the neurons.
"""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import brian2
import nest

OUT = Path(__file__).resolve().parent.parent / "tests" / "references" / "nest.json"
PRE, POST, STEPS = 4, 4, 400
LAST = 10  # further steps, without spikes
TAU_PLUS, TAU_MINUS, TAU_SLOW = 16.8, 33.7, 114.0
POWERS = {"additive": (0, 0), "multiplicative": (1, 1), "van Rossum": (0, 1), "Gütig": (0.4, 0.4)}
# By name: NEST's synapse, and its settings; those of the postsynaptic neuron are in `archive`.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        f"stdp_synapse, {name}": (
            "stdp_synapse",
            {"lambda": 0.004, "alpha": 1.1, "mu_plus": up, "mu_minus": down, "Wmax": 1.0},
        )
        for name, (up, down) in POWERS.items()
    },
    "stdp_triplet_synapse": (
        "stdp_triplet_synapse",
        {"tau_plus_triplet": 101.0, "Aplus": 5e-4, "Aminus": 7e-4, "Aplus_triplet": 6e-4,
         "Aminus_triplet": 3e-4, "Wmax": 1.0},
    ),
    **{
        name: (name, {"lambda": 0.01, "alpha": 1.1, "mu_plus": 0, "mu_minus": 0, "Wmax": 1.0})
        for name in ("stdp_nn_symm_synapse", "stdp_nn_pre_centered_synapse",
                     "stdp_nn_restr_synapse")
    },
    "stdp_pl_synapse_hom": (
        "stdp_pl_synapse_hom", {"lambda": 0.02, "alpha": 0.9, "mu": 0.4}
    ),
    "vogels_sprekeler_synapse": (
        "vogels_sprekeler_synapse", {"eta": 0.01, "alpha": 0.12, "tau": 20.0, "Wmax": 10.0}
    ),
    **{
        f"stdp_dopamine_synapse{name}": (
            "stdp_dopamine_synapse",
            {"A_plus": 1e-3, "A_minus": 1.2e-3, "tau_c": 60.0, "tau_n": 25.0, "b": b, "Wmax": 1.0},
        )
        for name, b in (("", 0.0), (", baseline", 0.04))
    },
}  # fmt: skip


def trains(seed: int, count: int, odd: int) -> list[list[int]]:
    """Spikes of neurons by step, at even steps or at odd ones, so that no two sides coincide."""
    numbers = random.Random(seed)
    steps = range(20 + odd, STEPS - 20, 2)
    return [[step for step in steps if numbers.random() < 0.06] for _ in range(count)]


def run(synapse: str, settings: dict[str, Any], resolution: float, seed: int) -> dict[str, Any]:
    """Shows spike trains to synapses between every two neurons."""
    nest.ResetKernel()
    nest.verbosity = nest.VerbosityLevel.ERROR
    nest.resolution = resolution
    pre, post = trains(seed, PRE, 0), trains(seed + 1, POST, 1)
    first, last = 2, STEPS  # a spike that begins, and one for which NEST brings weights up to date
    pre = [[first, *spikes, last] for spikes in pre]
    delay = resolution
    # A spike of the postsynaptic neuron reaches the synapse a delay later.
    parrots = []
    archive = {"tau_minus": TAU_MINUS, "tau_minus_triplet": TAU_SLOW}
    if synapse == "vogels_sprekeler_synapse":
        archive["tau_minus"] = settings["tau"]
    for side, earlier in ((pre, 0), (post, 1)):
        times = [[round((step - earlier) * resolution, 6) for step in each] for each in side]
        sources = nest.Create("spike_generator", len(side), [{"spike_times": t} for t in times])
        copies = nest.Create("parrot_neuron", len(side), archive)
        nest.Connect(sources, copies, "one_to_one", {"delay": resolution})
        parrots.append(copies)
    tau = {} if synapse == "vogels_sprekeler_synapse" else {"tau_plus": TAU_PLUS}
    more = {}
    if synapse == "stdp_dopamine_synapse":
        more["dopamine"], transmitter = dopamine(resolution, seed + 3)
        more["steps"] = STEPS + LAST - 1  # the first spikes come a step after the beginning
        tau["volume_transmitter"] = transmitter
    common = synapse.endswith(("_hom", "_dopamine_synapse"))
    if common:
        nest.SetDefaults(synapse, {**settings, **tau})
    own = {} if common else {**settings, **tau}
    numbers, before = random.Random(seed + 2), []
    for target in parrots[1]:
        row = [round(numbers.uniform(0.4, 0.6), 3) for _ in range(PRE)]
        before.append(row)
        for source, weight in zip(parrots[0], row, strict=True):
            spec = {"synapse_model": synapse, "weight": weight, "delay": delay,
                    "receptor_type": 1, **own}  # fmt: skip
            nest.Connect(source, target, "one_to_one", spec)
    nest.Simulate((STEPS + LAST) * resolution)
    after = table(*parrots)
    return {
        "synapse": synapse, "settings": settings, "dt": resolution, "steps": STEPS + 1,
        "tau_plus": TAU_PLUS, **archive, "pre": pre, "post": post, "before": before,
        "after": after, **more,
    }  # fmt: skip


def dopamine(resolution: float, seed: int) -> tuple[list[list[int]], Any]:
    """Spikes of two neurons by step, and the transmitter that they reach a step later."""
    transmitter = nest.Create("volume_transmitter")
    released = [[step for step in each if step % 3] for each in trains(seed, 2, 0)]
    times = [[round((step - 1) * resolution, 6) for step in each] for each in released]
    sources = nest.Create("spike_generator", 2, [{"spike_times": each} for each in times])
    neurons = nest.Create("parrot_neuron", 2)
    nest.Connect(sources, neurons, "one_to_one", {"delay": resolution})
    nest.Connect(neurons, transmitter, syn_spec={"delay": resolution})
    return released, transmitter


SEQUENCE, UPDATES, WIDTH, OUTPUTS = 40, 10, 5, 2
TAU_M, TAU_OUT, ETA = 20.0, 15.0, 0.2
ADAPTS = {"adapt_beta": 0.4, "adapt_tau": 50.0, "adaptation": 0.0}
# Steps from the beginning to the first sequence, and until an error has come back to the neurons.
SHIFT, LATE = 2, 3


def eprop(model: str, adapts: dict[str, float]) -> dict[str, Any]:
    """Learns a pattern, by a small network as that of Bellec et al. 2020, in ten updates."""
    nest.ResetKernel()
    nest.verbosity = nest.VerbosityLevel.ERROR
    nest.set(resolution=1.0, eprop_learning_window=float(SEQUENCE),
             eprop_update_interval=float(SEQUENCE), eprop_reset_neurons_on_update=True,
             total_num_virtual_procs=1)  # fmt: skip
    numbers = random.Random(5)

    def weights(rows: int, columns: int, low: float, high: float) -> list[list[float]]:
        return [[round(numbers.uniform(low, high), 3) for _ in range(columns)] for _ in range(rows)]

    shared = {"C_m": 1.0, "E_L": 0.0, "V_m": 0.0, "I_e": 0.0, "regular_spike_arrival": False}
    neurons = nest.Create(model, WIDTH, {**shared, **adapts, "c_reg": 0.0, "t_ref": 0.0,
                                         "tau_m": TAU_M, "V_th": THRESHOLD})  # fmt: skip
    readouts = nest.Create("eprop_readout_bsshslm_2020", OUTPUTS, {**shared, "tau_m": TAU_OUT})
    # An input spike brings weights up to date, and should not do so before all errors have come.
    first = LATE + 3
    pattern = [
        [first, *(s for s in range(first + 1, SEQUENCE - 1) if numbers.random() < 0.5)]
        for _ in range(PRE)
    ]
    starts = [SHIFT + SEQUENCE * i for i in range(UPDATES + 1)]
    times = [[float(start + s - 1) for start in starts for s in each] for each in pattern]
    sources = nest.Create("spike_generator", PRE, [{"spike_times": each} for each in times])
    inputs = nest.Create("parrot_neuron", PRE)
    nest.Connect(sources, inputs, "one_to_one", {"delay": 1.0})
    descent = {"batch_size": 1, "eta": ETA, "optimize_each_step": False}
    limits = {"Wmin": -9.0, "Wmax": 9.0}
    nest.SetDefaults(SYNAPSE, {"average_gradient": False, "optimizer": {**descent, **limits}})
    layers = {
        "in": (inputs, neurons, SYNAPSE, weights(WIDTH, PRE, 0.3, 0.9)),
        "out": (neurons, readouts, SYNAPSE, weights(OUTPUTS, WIDTH, -1, 1)),
        "back": (readouts, neurons, SYNAPSE.replace("synapse", "learning_signal_connection"),
                 weights(WIDTH, OUTPUTS, -1, 1)),
    }  # fmt: skip
    for before, after, synapse, values in layers.values():
        own = {"tau_m_readout": TAU_OUT} if synapse == SYNAPSE else {}
        spec = {"synapse_model": synapse, "delay": 1.0, "weight": values, **own}
        nest.Connect(before, after, "all_to_all", spec)
    steps = [float(step) for step in range(1, starts[-1] + 20)]
    targets = [[round(math.sin(2 * math.pi * (t / SEQUENCE + k / 4)), 6) for t in steps]
               for k in range(OUTPUTS)]  # fmt: skip
    rates = nest.Create("step_rate_generator", OUTPUTS, [
        {"amplitude_times": steps, "amplitude_values": each} for each in targets])  # fmt: skip
    nest.Connect(rates, readouts, "one_to_one", {
        "synapse_model": "rate_connection_delayed", "delay": 1.0, "receptor_type": 2})  # fmt: skip
    seen = nest.Create("multimeter", {"interval": 1.0, "record_from": [
        "error_signal", "target_signal"]})  # fmt: skip
    nest.Connect(seen, readouts)
    spikes = nest.Create("spike_recorder")
    nest.Connect(neurons, spikes)
    nest.Simulate(starts[-1] + SEQUENCE - 2.0)  # in which all neurons spike once more
    events = seen.get("events")
    errors, wanted = (
        [events[name][events["senders"] == each].tolist() for each in readouts.tolist()]
        for name in ("error_signal", "target_signal")
    )
    spans = [slice(start + LATE - 1, start + LATE - 1 + SEQUENCE) for start in starts[:-1]]
    return {
        "model": model, "tau_m": TAU_M, "tau_readout": TAU_OUT, "eta": ETA, **adapts,
        "threshold": THRESHOLD, "steps": SEQUENCE, "pre": pattern,
        "weights": {name: values for name, (*_, values) in layers.items()},
        "target": [each[spans[0]] for each in wanted],
        "loss": [sum(e**2 for each in errors for e in each[span]) / 2 for span in spans],
        "spikes": int(sum(SHIFT < time <= starts[-1] for time in spikes.get("events")["times"])),
        "after": table(inputs, neurons),
        "after_out": table(neurons, readouts),
    }  # fmt: skip


THRESHOLD = 0.4
SYNAPSE = "eprop_synapse_bsshslm_2020"


def table(sources: Any, targets: Any) -> list[list[float]]:
    """The weights ``[target, source]`` between two layers."""
    found = [[0.0] * len(sources) for _ in targets]
    rows, columns = targets.tolist(), sources.tolist()
    for each in nest.GetConnections(sources, targets):
        found[rows.index(each.target)][columns.index(each.source)] = each.weight
    return found


# By name: the settings of a synapse with short-term plasticity.
SHORT_TERM = {
    "depressing": {"U": 0.5, "u": 0.5, "tau_rec": 800.0, "tau_fac": 0.0},
    "facilitating": {"U": 0.03, "u": 0.03, "tau_rec": 130.0, "tau_fac": 530.0},
    "both": {"U": 0.3, "u": 0.3, "tau_rec": 60.0, "tau_fac": 90.0},
}


def short_term(settings: dict[str, float], resolution: float) -> dict[str, Any]:
    """Shows spikes to synapses of weight 1, and records the weights of what they transmit."""
    nest.ResetKernel()
    nest.verbosity = nest.VerbosityLevel.ERROR
    nest.resolution = resolution
    spikes = trains(4, PRE, 0)
    times = [[round(step * resolution, 6) for step in each] for each in spikes]
    sources = nest.Create("spike_generator", PRE, [{"spike_times": each} for each in times])
    inputs, outputs = nest.Create("parrot_neuron", PRE), nest.Create("parrot_neuron", PRE)
    nest.Connect(sources, inputs, "one_to_one", {"delay": resolution})
    seen = nest.Create("weight_recorder")
    nest.CopyModel("tsodyks2_synapse", "seen_synapse", {"weight_recorder": seen})
    spec = {"synapse_model": "seen_synapse", "weight": 1.0, "delay": resolution, **settings}
    nest.Connect(inputs, outputs, "one_to_one", spec)
    nest.Simulate((STEPS + 10) * resolution)
    events = seen.get("events")
    weights = [events["weights"][events["senders"] == each].tolist() for each in inputs.tolist()]
    return {**settings, "dt": resolution, "steps": STEPS, "pre": spikes, "weights": weights}


VOLTAGE = {"A_LTD": 1.4e-4, "A_LTP": 8e-5, "theta_minus": -70.6, "theta_plus": -55.3,
           "tau_u_bar_minus": 10.0, "tau_u_bar_plus": 7.0}  # fmt: skip
TAU_X = 15.0


def clopath(resolution: float) -> dict[str, Any]:
    """Drives a neuron whose potential changes the weight of a synapse that barely reaches it."""
    nest.ResetKernel()
    nest.verbosity = nest.VerbosityLevel.ERROR
    nest.resolution = resolution
    settings = {**VOLTAGE, "A_LTD_const": True, "delay_u_bars": resolution}
    neuron = nest.Create("aeif_psc_delta_clopath", 1, settings)
    times = [10.0, 30.0, 45.0, 50.0, 80.0, 110.0, 129.0]
    source = nest.Create("spike_generator", 1, {"spike_times": times})
    parrot = nest.Create("parrot_neuron")
    nest.Connect(source, parrot, syn_spec={"delay": 1.0})
    nest.Connect(parrot, neuron, syn_spec={
        "synapse_model": "clopath_synapse", "weight": 0.5, "tau_x": TAU_X, "Wmax": 100.0,
        "delay": resolution})  # fmt: skip
    current = nest.Create("dc_generator", 1, {"amplitude": 900.0, "start": 25.0, "stop": 120.0})
    nest.Connect(current, neuron, syn_spec={"delay": 1.0})
    seen = nest.Create("multimeter", {"interval": resolution, "record_from": ["V_m"]})
    nest.Connect(seen, neuron)
    nest.Simulate(132.0)
    return {
        **VOLTAGE, "tau_x": TAU_X, "dt": resolution, "rest": neuron.E_L,
        "pre": [round((time + 1.0) / resolution) for time in times],
        "V_m": [round(value, 6) for value in seen.get("events")["V_m"].tolist()],
        "change": nest.GetConnections(parrot, neuron).weight - 0.5,
    }  # fmt: skip


TIMES, RATE = 30, 0.05
# What NEST has no synapse for, as Brian2's equations of input x, output y and weights w.
RATES = {
    "Oja": "w += lr * (y_post * x_pre - y_post**2 * w)",
    "BCM": "w += lr * y_post * (y_post - squares_post / weights_post) * x_pre",
    "SoftHebb": "w += lr * exp(y_post) / total_post * (x_pre - y_post * w)",
}
REWARDED = """
dx/dt = -x / tau_x : 1 (event-driven)
dy/dt = -y / tau_y : 1 (event-driven)
w : 1
"""


def rate_rule(equation: str) -> dict[str, Any]:
    """Shows rates to synapses with an equation of their own in every step."""
    brian2.start_scope()
    numbers = random.Random(9)
    pre, post = (
        [[round(numbers.uniform(0, 1), 3) for _ in range(width)] for _ in range(TIMES)]
        for width in (PRE, WIDTH)
    )
    weights = [[round(numbers.uniform(-1, 1), 3) for _ in range(PRE)] for _ in range(WIDTH)]
    ms = brian2.ms
    known = {"xs": brian2.TimedArray(pre, dt=ms), "ys": brian2.TimedArray(post, dt=ms),
             "lr": RATE, "left": math.exp(-1 / 8)}  # fmt: skip
    inputs = brian2.NeuronGroup(PRE, "x = xs(t, i) : 1")
    model = "y = ys(t, i) : 1\nsquares : 1\nweights : 1\ntotal : 1"
    outputs = brian2.NeuronGroup(WIDTH, model)
    outputs.run_regularly("squares = left * squares + y**2\nweights = left * weights + 1", dt=ms)
    others = brian2.Synapses(outputs, outputs, "total_post = exp(y_pre) : 1 (summed)")
    others.connect()
    synapses = brian2.Synapses(inputs, outputs, "w : 1")
    synapses.connect()
    synapses.w = [weights[j][i] for i in range(PRE) for j in range(WIDTH)]
    synapses.run_regularly(equation, dt=ms, when="end")
    network = brian2.Network(inputs, outputs, others, synapses)
    network.run(TIMES * ms, namespace=known)
    after = [[float(synapses.w[i, j][0]) for i in range(PRE)] for j in range(WIDTH)]
    return {"x": pre, "y": post, "lr": RATE, "tau": 8.0, "before": weights, "after": after}


def rewarded() -> dict[str, Any]:
    """Shows spikes to synapses by whose pairs a reward of the same step changes weights."""
    brian2.start_scope()
    numbers, ms = random.Random(8), brian2.ms
    pre, post = trains(11, PRE, 0), trains(12, WIDTH, 1)
    rewards = [round(numbers.uniform(-1, 1), 3) for _ in range(STEPS)]
    known = {"r": brian2.TimedArray(rewards, dt=ms), "up": 0.02, "down": -0.03,
             "tau_x": 16.8 * ms, "tau_y": 33.7 * ms}  # fmt: skip
    sides = []
    for side in (pre, post):
        pairs = [(i, step) for i, each in enumerate(side) for step in each]
        places, times = zip(*pairs, strict=True)
        sides.append(brian2.SpikeGeneratorGroup(len(side), places, times * ms, dt=ms))
    synapses = brian2.Synapses(
        *sides, REWARDED, on_pre="x += 1\nw += down * r(t) * y",
        on_post="y += 1\nw += up * r(t) * x", dt=ms,
    )  # fmt: skip
    synapses.connect()
    brian2.Network(*sides, synapses).run(STEPS * ms, namespace=known)
    after = [[float(synapses.w[i, j][0]) for i in range(PRE)] for j in range(WIDTH)]
    return {"pre": pre, "post": post, "reward": rewards, "steps": STEPS, "lr_post": 0.02,
            "lr_pre": -0.03, "tau_plus": 16.8, "tau_minus": 33.7, "after": after}  # fmt: skip


def main() -> None:
    """Runs all cases."""
    synapses = {
        f"{name}, {resolution:g} ms": run(synapse, settings, resolution, 3)
        for name, (synapse, settings) in CASES.items()
        for resolution in (1.0, 0.1)
    }
    networks = {
        "eprop_iaf": eprop("eprop_iaf_bsshslm_2020", {}),
        "eprop_iaf_adapt": eprop("eprop_iaf_adapt_bsshslm_2020", ADAPTS),
    }
    OUT.parent.mkdir(exist_ok=True)
    brian2.prefs.codegen.target = "numpy"
    brian2.defaultclock.dt = brian2.ms
    rules = {name: rate_rule(equation) for name, equation in RATES.items()}
    found = {
        "nest": nest.__version__, "brian2": brian2.__version__, "synapses": synapses,
        "eprop": networks, "clopath": [clopath(step) for step in (0.1, 0.05)],
        "rates": rules, "MSTDP": rewarded(),
        "short_term": {
            f"{name}, {resolution:g} ms": short_term(settings, resolution)
            for name, settings in SHORT_TERM.items()
            for resolution in (1.0, 0.1)
        },
    }  # fmt: skip
    OUT.write_text(json.dumps(found) + "\n", encoding="utf-8")
    print(f"Wrote {OUT}.")


if __name__ == "__main__":
    main()
