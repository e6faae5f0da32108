from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

CHECKS = [
    "each_kind_sees_all_values",
    "a_list_is_gathered_in_the_order_of_the_ranks",
    "a_process_without_values_takes_part",
    "the_shapes_of_all_have_to_be_one",
    "many_synchronise_in_one_all_reduce",
    "a_state_can_be_synchronised_by_hand",
    "a_source_ends_in_one_all_reduce",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    if not torch.distributed.is_available():
        pytest.skip("torch has no distributed package")
    folder = tmp_path_factory.mktemp("two_processes")
    script = Path(__file__).with_name("two_processes.py")
    processes = [
        subprocess.Popen(
            [
                *(sys.executable, "-W", "error::UserWarning", str(script)),
                *(str(rank), (folder / "rendezvous").as_uri(), str(folder / "events")),
            ],
            env={**os.environ, "OMP_NUM_THREADS": "1", "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=120)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return processes, outputs, folder / "events"


@pytest.mark.parametrize("check", CHECKS)
def test_two_real_processes(run, check):
    _, outputs, _ = run
    assert all(check in output.splitlines() for output in outputs), "\n".join(outputs)


def test_both_end_well(run):
    processes, outputs, _ = run
    assert [process.returncode for process in processes] == [0, 0], "\n".join(outputs)


def test_one_of_them_wrote(run):
    _, outputs, folder = run
    assert folder.is_dir(), "\n".join(outputs)
    assert len(list(folder.iterdir())) == 1
    events = EventAccumulator(str(folder))
    events.Reload()
    assert [event.step for event in events.Scalars("acc")] == [0, 1]
