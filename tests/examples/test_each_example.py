"""Each example runs in its short form, prints what it found and draws it."""

from __future__ import annotations

from pathlib import Path

import pytest
from _forked import Forked

EXAMPLES = Path(__file__).parents[2] / "examples"

# These run in tests of their own: of what they learn, what they log, or the libraries they need.
ELSEWHERE = {
    "amsgrad_problem",
    "cnn_optimizers",
    "compare_optimizers",
    "events_tonic",
    "foreign_neurons",
    "hybrid_backprop",
    "manual_optimization",
    "no_optimizer",
}

PRINTED = {
    "bcm_selectivity": "20 neurons, 10 patterns",
    "digits_ottt": "readout only",
    "digits_rows": "e-prop, random feedback",
    "evidence_accumulation": "drawn to",
    "homeostasis": "nothing moves",
    "pattern_generation": "drawn to",
    "receptive_fields": "share oriented:",
    "reward_xor": "of 1 seeds",
    "stdp_window": "add to an isolated pair: 0e+00",
    "triplet_frequency": "all-to-all, minimal  0.36 (paper 0.34)",
}

MODES = ("cumulative", "nearest")

# These print the summary of a fit there; the others print nothing but their results.
SUMMARIES = {"digits_stdp", "oja_pca", "receptive_fields"}


def names() -> list[str]:
    return sorted(f.stem for f in EXAMPLES.glob("[!_]*.py") if f.stem not in ELSEWHERE)


@pytest.mark.parametrize("name", names())
def test_runs_and_draws(name: str, tmp_path: Path) -> None:
    picture = tmp_path / "found.png"
    done = Forked(f"{name}.py", ["--short", "--picture", picture], EXAMPLES).wait()
    assert done.returncode == 0, done.stderr
    if name in SUMMARIES:
        assert done.stderr.startswith("Local learning")
        assert "Warning" not in done.stderr
    else:
        assert not done.stderr.strip()
    assert PRINTED.get(name, "") in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
    if name == "oja_pca":
        lines = done.stdout.splitlines()
        for rule, count in (("Oja", 1), ("Sanger", 4)):
            (line,) = (line for line in lines if line.split()[0] == rule)
            cosines = [float(value) for value in line.split()[1:]]
            assert len(cosines) == count
            assert min(cosines) > 0.99
    if name == "reward_xor_temporal":
        assert done.stdout.count("of 1 seeds") == 5
    if name == "stdp_window":
        rules = [f"{rule}, {mode}" for rule in ("pairs", "triplets") for mode in MODES]
        assert all(rule in done.stdout for rule in (*rules, "kernel, a hat"))
