"""The programs on the page about several processes, pasted into empty files, run in two."""

import os
import re
import subprocess
import sys

from pages import blocks

ONE, AVERAGED, SPLIT, SHARDED = blocks("docs/distributed.md")
QUIET = {f"PL_TRAINER_ENABLE_{what}": "False" for what in ("PROGRESS_BAR", "MODEL_SUMMARY")}


def printed(folder, program, *command):
    """What both processes print of a program that is started once."""
    path = folder / "two.py"
    path.write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, *command, path.name],
        cwd=folder,
        env=os.environ | QUIET | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_weights_agree_thresholds_where_they_are_averaged_and_shards_learn(tmp_path):
    shown = printed(tmp_path, ONE + AVERAGED + SHARDED)
    found = re.findall(r"process \d: weights ([\d.]+), thresholds ([\d.]+)", shown)
    weights, thresholds = zip(*found, strict=True)
    assert len(found) == 4  # two fits in two processes
    assert len(set(weights)) == 2
    assert len(set(thresholds)) == 3  # the first fit's differ, the second's do not
    assert shown.count("6 of 12 rows are kept in this process") == 2


def test_two_processes_divide_a_network_and_save_it(tmp_path):
    run = "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"
    shown = printed(tmp_path, SPLIT, *run)
    rates = re.findall(r"process \d: 50,000 synapses, ([\d.]+) spikes a step", shown)
    assert len(rates) == 2
    assert len(set(rates)) == 1
    assert 0.001 < float(rates[0]) < 0.5
    assert len([*tmp_path.glob("checkpoint/* of 2.pt")]) == 2
