"""The programs on the page about several processes, pasted into empty files, run in two."""

import os
import re
import subprocess
import sys

from pages import blocks

ONE, AVERAGED, SHARDED = blocks("docs/distributed.md")
QUIET = {f"PL_TRAINER_ENABLE_{what}": "False" for what in ("PROGRESS_BAR", "MODEL_SUMMARY")}


def printed(folder, program):
    """What both processes print of a program that is started once."""
    path = folder / "two.py"
    path.write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, path.name],
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
