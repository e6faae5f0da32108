"""One sample in NEST, in Brian2 and here, learning at every step.

784 → 400, 350 ms, the input at 30 Hz, the output at about 20 Hz, all synapses plastic: pair STDP
within limits of the weight, for the same input. NEST has generators, parrots, `iaf_psc_delta` and
`stdp_synapse`; Brian2 the synapses of its documentation, compiled by Cython or as a program in C++.
Each runs in a separate process; all take turns, after a check of each change of the weights
against the definition for the network's own spikes. Time before the first step is not counted.
An event of plasticity is a synapse that a spike of either side reaches.

Both simulators do more in this time: NEST's spikes travel with the delay of each synapse, Brian2
integrates any equation, and neither relies on a dense layer.

The second table is Brian2's own example `synapses.STDP`: 1,000 Poisson inputs of 15 Hz, one neuron
with an exponential conductance, steps of 0.1 ms.

    python benchmarks/simulators.py [--smoke] [--turns 15] [--seconds 100] [--python PYTHON]

NEST and Brian2 are looked for in the environment that `make references` makes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from _measure import ROOT, goals, middle, setting, table, timed
from _side_by_side import noting
from torch import Tensor, nn

from lightning_accum import STDP, Clamp, RuleTrainer, Serial
from lightning_accum.nn import LIF, LeakyIntegrator, Linear
from lightning_accum.rules import learn_online

PYTHON = ROOT / ".references" / "bin" / "python"
TC, WMAX = 20.0, 1.0  # ms of membranes and traces; the largest weight
RATES = 1e-5, -1.05e-5  # of potentiation and of depression
HERTZ = 20.0  # of the output
# Whether spikes of one step potentiate a synapse, and whether they depress it.
TOGETHER = {"ours": (True, True), "NEST": (False, False), "Brian2": (True, False)}
LEAST = {"NEST, 2 threads": 30, "Brian2, Cython": 60}  # times `learn_online`, as goals


class Sample(NamedTuple):
    """The work: a layer, and spikes of its input for so many steps."""

    inputs: int
    neurons: int
    steps: int
    dt: float
    hertz: float = 30.0

    def raster(self) -> Tensor:
        """Bernoulli input, boolean ``[T, 1, inputs]``."""
        drawn = torch.rand(self.steps, 1, self.inputs, generator=torch.Generator().manual_seed(0))
        return drawn < self.hertz * self.dt / 1000

    def weight(self, scale: float) -> Tensor:
        """Weights whose mean is so many times what holds the mean potential at threshold."""
        drawn = torch.rand(self.neurons, self.inputs, generator=torch.Generator().manual_seed(1))
        drive = self.inputs * self.hertz * TC / 1000
        return (0.5 + drawn) * scale / drive

    def __str__(self) -> str:
        return f"{self.inputs} → {self.neurons}, {self.steps} steps of {self.dt:g} ms"


class Turns(Protocol):
    """A network that is shown its sample again and again."""

    version: str

    def turn(self) -> tuple[float, int]:
        """Returns milliseconds, and how often neurons spiked."""

    def check(self) -> tuple[Tensor, Tensor]:
        """Returns the spikes ``[T, neurons]`` of the first showing, and how weights changed."""


class Ours:
    """A layer of this package; ``online`` learns at every step, otherwise once for all steps."""

    version = ""

    def __init__(self, sample: Sample, weight: Tensor, online: bool) -> None:
        time_dim = None if online else 0
        lif = LIF(sample.neurons, TC, dt=sample.dt, time_dim=time_dim, spike_dtype=torch.bool)
        self.layer = Serial(Linear(sample.inputs, sample.neurons, bias=False), lif)
        self.layer.connection.weight = nn.Parameter(weight.clone(), requires_grad=False)
        self.trainer = RuleTrainer(STDP(*RATES, TC, TC), dt=sample.dt, time_dim=time_dim)
        self.trainer.register_cell("cell", self.layer.cell)
        updater = self.trainer.updater_of("cell")
        updater.register_constraint(Clamp(0.0, WMAX), "weight")
        updater.weight.keep_parts = False  # as in a Trainer: nothing reads the parts
        self.raster, self.online, self.before = sample.raster(), online, weight

    @torch.no_grad()
    def show(self) -> Tensor:
        if self.online:
            return learn_online(self.trainer, self.layer, self.raster)
        spikes: Tensor = self.layer(self.raster)
        self.trainer()
        self.trainer.update()
        return spikes

    def turn(self) -> tuple[float, int]:
        spikes: list[Tensor] = []
        return timed(lambda: spikes.append(self.show())), int(spikes[0].sum())

    def check(self) -> tuple[Tensor, Tensor]:
        spikes = self.show()[:, 0]
        return spikes, self.layer.connection.weight - self.before


class Other:
    """A network in a process of another environment, which does what it is told."""

    def __init__(self, python: Path, folder: str, work: dict[str, Any], **arrays: Tensor) -> None:
        self.file, self.steps = str(Path(folder) / "arrays.npz"), len(arrays.get("raster", ()))
        np.savez(self.file, **{name: array.numpy() for name, array in arrays.items()})
        if not python.exists():
            raise ModuleNotFoundError(f"No Python `{python}`")
        self.errors = Path(folder) / f"{id(self)}.txt"
        script = str(Path(__file__).with_name("_simulator_process.py"))
        command = [str(python), script, json.dumps({"file": self.file, **work})]
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                env={**os.environ, "OMP_NUM_THREADS": str(work["threads"])},
            )  # fmt: skip
        self.version: str = self.answer()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            told = self.errors.read_text().strip().splitlines()[-1]
            raise (ImportError if "ModuleNotFoundError" in told else AssertionError)(told)
        return json.loads(line)

    def ask(self, *words: str) -> Any:
        print(*words, file=self.process.stdin, flush=True)
        return self.answer()

    def turn(self) -> tuple[float, int]:
        told = self.ask("turn")
        return told["ms"], told["out"]

    def check(self) -> tuple[Tensor, Tensor]:
        self.ask("check", self.file)
        with np.load(self.file) as found:
            neurons, steps, change = found["neurons"], found["steps"], found["change"]
        some = neurons < len(change)  # whose weights were read
        spikes = torch.zeros(max(self.steps, 1 + int(steps.max(initial=0))), len(change)).bool()
        spikes[steps[some], neurons[some]] = True
        return spikes, torch.from_numpy(change)

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def changed(sample: Sample, post: Tensor, together: tuple[bool, bool]) -> Tensor:
    """Returns the change of the weights by the definition, step by step in float64.

    Args:
        sample: the work.
        post: spikes of the neurons ``[T, neurons]``, in the steps in which they reach synapses.
        together: whether spikes of one step potentiate a synapse, and whether they depress it. If
            they do not potentiate, as in NEST, a synapse learns of postsynaptic spikes only up to
            its last presynaptic one.
    """
    pre, post = sample.raster()[:, 0].double(), post.double()
    pre = torch.cat([pre, pre.new_zeros(len(post) - len(pre), sample.inputs)])
    last = (torch.arange(1, 1 + len(pre))[:, None] * pre).amax(0) - 1
    decay, change = math.exp(-sample.dt / TC), pre.new_zeros(post.shape[1], sample.inputs)
    x, y = torch.zeros_like(pre[0]), torch.zeros_like(post[0])
    for step, (before, after) in enumerate(zip(pre, post, strict=True)):
        x, y = decay * x, decay * y
        seen = x + before if together[0] else x * (step <= last)
        change += RATES[0] * torch.outer(after, seen)
        change += RATES[1] * torch.outer(y + after if together[1] else y, before)
        x, y = x + before, y + after
    return change


def matched(sample: Sample) -> Tensor:
    """Returns weights with which neurons have their rate."""
    low, high = 0.0, 20.0
    for _ in range(14):
        scale = (low + high) / 2
        lif = LIF(sample.neurons, TC, dt=sample.dt, time_dim=0)
        spikes = lif(sample.raster().float() @ sample.weight(scale).T)
        rate = spikes.mean().item() / sample.dt * 1000
        low, high = (scale, high) if rate < HERTZ else (low, scale)
    return sample.weight(scale)


# --------------------------------------------------------------------- Brian2's own example
DT, TAU_E, TAU_M, GMAX = 0.1, 5.0, 10.0, 0.01
VOLTAGES = {"Ee": 0.0, "vr": -60.0, "El": -74.0, "vt": -54.0}  # mV
EXAMPLE = {
    "simulator": "example", "threads": 1, "dt": DT, "hertz": 15.0,
    "numbers": {**VOLTAGES, "up": 0.01 * GMAX, "down": -0.0105 * GMAX, "wmax": GMAX},
    "times": {"tau": TC, "taum": TAU_M, "taue": TAU_E},
}  # fmt: skip
INPUTS = 1000


class OursExample:
    """The same neuron of two layers: its conductance, and its potential, in units of that."""

    def __init__(self, seconds: float, every: int, weight: Tensor) -> None:
        time_dim = None if every == 1 else 0
        fall = math.exp(-DT / TAU_E) - math.exp(-DT / TAU_M)
        gain = (VOLTAGES["Ee"] - VOLTAGES["vr"]) * fall * TAU_E / (TAU_E - TAU_M)  # mV in a step
        low, reset, high = (VOLTAGES[name] / gain for name in ("El", "vr", "vt"))
        neuron = nn.Sequential(
            LeakyIntegrator(1, TAU_E, DT, time_dim),
            LIF(1, TAU_M, high, reset, low, dt=DT, time_dim=time_dim),
        )
        self.layer = Serial(Linear(INPUTS, 1, bias=False), neuron)
        self.layer.connection.weight = nn.Parameter(weight[None].clone(), requires_grad=False)
        numbers = EXAMPLE["numbers"]
        assert isinstance(numbers, dict)
        rule = STDP(numbers["up"], numbers["down"], TC, TC)
        self.trainer = RuleTrainer(rule, dt=DT, time_dim=time_dim)
        self.trainer.register_cell("cell", self.layer.cell)
        self.trainer.updater_of("cell").register_constraint(Clamp(0.0, GMAX), "weight")
        self.steps, self.every = round(1000 * seconds / DT), every

    def turn(self) -> tuple[float, int]:
        """Returns milliseconds, those of drawing the input too, and how often the neuron spiked."""
        counts: list[int] = []
        return timed(lambda: counts.append(self.run())), counts[0]

    @torch.no_grad()
    def run(self) -> int:
        count, most = 0, 10_000
        for first in range(0, self.steps, most):
            drawn = torch.rand(min(most, self.steps - first), 1, INPUTS) < 15.0 * DT / 1000
            spikes = learn_online(self.trainer, self.layer, drawn, update_every=self.every)
            count += int(spikes.sum())
        return count


# --------------------------------------------------------------------- both tables
Makers = Mapping[str, Callable[[], Any]]


@contextmanager
def made(makers: Makers, missing: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Those that can be made, by name; why others cannot is written down."""
    nets: dict[str, Any] = {}
    with ExitStack() as stack:
        for name, make in makers.items():
            with noting(missing, name):
                nets[name] = make()
                stack.callback(getattr(nets[name], "end", int))
        yield nets


def in_turns(nets: Mapping[str, Any], turns: int) -> dict[str, tuple[list[float], list[int]]]:
    """Milliseconds and spikes of each, turn by turn."""
    found: dict[str, tuple[list[float], list[int]]] = {name: ([], []) for name in nets}
    for _ in range(turns):
        for name, net in nets.items():
            for kept, told in zip(found[name], net.turn(), strict=True):
                kept.append(told)
    return found


def others(sample: Sample, weight: Tensor, args: argparse.Namespace, folder: str) -> Makers:
    """The simulators' networks."""

    def maker(simulator: str, threads: int) -> Callable[[], Other]:
        work = {"simulator": simulator, "threads": threads, "dt": sample.dt, "rates": RATES,
                "target": args.target}  # fmt: skip
        arrays = {"raster": sample.raster()[:, 0], "weight": weight.double()}
        return lambda: Other(args.python, folder, work, **arrays)

    networks = {"NEST, 1 thread": maker("nest", 1), "NEST, 2 threads": maker("nest", 2),
                "Brian2, Cython": maker("brian", 1)}  # fmt: skip
    return networks if args.smoke else {**networks, "Brian2, C++": maker("standalone", 1)}


def compare(sample: Sample, args: argparse.Namespace, folder: str) -> None:
    """Prints a row for each network."""
    weight, missing = matched(sample), dict[str, str]()
    medians: dict[str, float] = {}
    print(f"\n### {sample}\n")
    ours = {"ours, `learn_online`": lambda: Ours(sample, weight, True),
            "ours, once for all steps": lambda: Ours(sample, weight, False)}  # fmt: skip
    rows = []
    with made({**ours, **others(sample, weight, args, folder)}, missing) as nets:
        for name, net in nets.items():
            post, change = net.check()
            expected = changed(sample, post, TOGETHER[name.split(",")[0]])
            error, most = (change - expected).abs().max().item(), expected.abs().max().item()
            if not error <= 3e-4 * most:
                raise AssertionError(f"{name} differs from the definition by {error} of {most}")
        found = in_turns(nets, args.turns)
        versions = {net.version: None for net in nets.values() if net.version}
    before = int(sample.raster().sum())
    for name, (times, spikes) in found.items():
        medians[name] = statistics.median(times)
        after, seconds = statistics.mean(spikes), medians[name] / 1000
        length = sample.steps * sample.dt / 1000
        events = (before * sample.neurons + after * sample.inputs) / seconds
        ratio = medians[name] / medians["ours, `learn_online`"]
        hertz = after / sample.neurons / length
        rows.append([name, middle(times), f"{ratio:.1f}", f"{events / 1e6:,.0f}",
                     f"{seconds / length:.3f}", f"{hertz:.1f}"])  # fmt: skip
    rows += [[name, f"not run: {why}", *"––––"] for name, why in missing.items()]
    table(["network", "ms", "over `learn_online`", "million events a second",
           "s for a biological second", "output, Hz"], rows)  # fmt: skip
    if versions:
        print(f"\n{', '.join(versions)}.")
    ratios = {name: ms / medians["ours, `learn_online`"] for name, ms in medians.items()}
    goals(f"To reach, {sample}", ["simulator", "over `learn_online`", "at least"], [
        [name, f"{ratios[name]:.0f}×", f"{least:g}×"] for name, least in LEAST.items()
        if name in ratios])  # fmt: skip


def example(args: argparse.Namespace, folder: str) -> None:
    """Prints a row for each way to run Brian2's example."""
    seconds, missing, weight = (
        args.seconds / args.parts,
        dict[str, str](),
        GMAX * torch.rand(INPUTS),
    )
    work = {**EXAMPLE, "seconds": seconds, "target": args.target}
    arrays = {"raster": torch.zeros(0), "weight": weight.double()}
    print(f"\n### Brian2's example `synapses.STDP`, {args.seconds:g} s of {DT:g} ms\n")
    makers = {
        "ours, weights change at every step": lambda: OursExample(seconds, 1, weight),
        "ours, weights change every 10 ms": lambda: OursExample(seconds, 100, weight),
        "Brian2, Cython": lambda: Other(args.python, folder, work, **arrays),
    }
    with made(makers, missing) as nets:
        found = in_turns(nets, args.parts)
    rows = [[name, f"{sum(times) / 1000 / args.seconds:.3f}", f"{sum(counts) / args.seconds:.1f}"]
            for name, (times, counts) in found.items()]  # fmt: skip
    rows += [[name, f"not run: {why}", "–"] for name, why in missing.items()]
    table(["network", "s for a biological second", "output, Hz"], rows)


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="tiny loads, just to see it run")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=100.0, help="of Brian2's example")
    parser.add_argument("--python", type=Path, default=PYTHON, help="where NEST and Brian2 are")
    args = parser.parse_args()
    args.parts, args.target = 5, "cython"
    samples = [Sample(784, 400, 350, 1.0), Sample(784, 400, 3500, 0.1)]
    if args.smoke:
        torch.set_num_threads(1)
        args.turns, args.parts, args.seconds, args.target = 2, 1, 0.02, "numpy"
        samples = [Sample(20, 8, 40, 1.0, 100.0), Sample(20, 8, 400, 0.1, 100.0)]
    print(setting())
    with tempfile.TemporaryDirectory() as folder:
        for sample in samples:
            compare(sample, args, folder)
        example(args, folder)


if __name__ == "__main__":
    main()
