"""The compiled kernel is loaded as it was built, or its absence says why; its memory is lent."""

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from kernel_helpers import needs_kernel

import lightning_accum as la
from lightning_accum import nn
from lightning_accum.sparse import kernel_library as library
from lightning_accum.sparse.event_sums import event_matmul
from lightning_accum.sparse.events import Events

ROOT, CPU = Path(__file__).parents[2], torch.device("cpu")
KERNEL = Path(library.__file__).with_name("kernel")
BUILT = library.library(torch.float32)


@pytest.fixture
def fresh(monkeypatch):
    """A process that has not asked for the kernel."""
    monkeypatch.setattr(library, "_failures", {})
    library.library.cache_clear()
    yield
    monkeypatch.undo()
    library.library.cache_clear()


@pytest.fixture
def folder(fresh, tmp_path, monkeypatch):
    """A copy of what was built, which is looked for there."""
    copied = tmp_path / "kernel"
    shutil.copytree(KERNEL, copied, ignore=shutil.ignore_patterns(".build-*"))
    monkeypatch.setattr(library, "_FOLDER", copied)
    return copied


def found():
    """What a sum over spikes, which plain torch can compute, says of the kernel."""
    raster, table = torch.ones(2, 2, dtype=torch.bool), torch.ones(2, 1)
    assert event_matmul(Events(raster), table).tolist() == [[2], [2]]
    assert library.library(torch.float16) is None
    return library.why_not()


@pytest.mark.parametrize(("value", "reason"), [
    ("0", "LIGHTNING_ACCUM_KERNEL=0 switches it off"),
    pytest.param("avx3", "should be 0, 1 or one of baseline", marks=needs_kernel),
])  # fmt: skip
def test_switched_off(fresh, monkeypatch, value, reason, capsys, caplog):
    monkeypatch.setenv(library.SWITCH, value)
    assert reason in (found() or "")
    assert bool(caplog.text) == (value != "0")
    la.show_versions()
    assert f"none: {library.why_not()}" in capsys.readouterr().out


@needs_kernel
def test_the_best_level_is_taken(fresh, capsys):
    assert found() is None
    assert BUILT is not None
    la.show_versions()
    said = capsys.readouterr().out
    assert f"for {BUILT.level}" in said
    assert la.__version__ in said
    assert torch.__version__ in said


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("level", ["baseline", "avx2", "avx512"])
def test_levels_agree_with_plain_torch(fresh, monkeypatch, level, dtype):
    def learned(switch):
        monkeypatch.setenv(library.SWITCH, switch)
        library.library.cache_clear()
        torch.manual_seed(0)
        fc, lif = nn.Linear(70, 35, bias=False, dtype=dtype), nn.LIF(35, time_dim=0).to(dtype)
        with torch.no_grad():
            fc.weight.abs_()
        rule = la.RuleTrainer(la.STDP(0.01, -0.02), time_dim=0)
        rule.register_cell("cell", la.Cell(fc, lif))
        spikes = lif(fc((torch.rand(20, 3, 70) < 0.1).to(dtype)))
        rule()
        rule.update()
        return fc.weight.detach(), spikes

    plain = learned("0")
    ours = learned(level)
    kernel = library.library(dtype)
    if kernel is None:
        pytest.skip(f"this processor has no {level}")
    assert kernel.level == level
    assert plain[1].any()
    for one, two in zip(ours, plain, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6)


def flip(library):
    data = bytearray(library.read_bytes())
    data[len(data) // 2] ^= 1
    library.write_bytes(data)


@needs_kernel
@pytest.mark.parametrize(("name", "damage", "reason"), [
    ("kernel.so", lambda file: os.truncate(file, 4096), "its file is damaged; install the"),
    ("kernel.so", flip, "its file is damaged"),
    ("kernel.so", Path.unlink, "it could not be loaded"),
    ("kernel.json", Path.unlink, "it was not built; run `python scripts/build_kernel.py`"),
    ("kernel.json", lambda file: file.write_bytes(b"\xff{"), "it was not built"),
    ("kernel.json", lambda file: file.write_text("{}"), "its sources have changed"),
    ("kernel.json", lambda file: file.write_text("[1]"), "its record is damaged"),
    ("sums.c", lambda file: file.write_text(file.read_text() + "\n"),
     "its sources have changed since it was built; run `python"),
])  # fmt: skip
def test_what_is_damaged_is_not_loaded_and_told_once(folder, name, damage, reason, caplog, capsys):
    damage(folder / name)
    assert (found() or "").startswith(reason)
    assert library.library(torch.float64) is None
    assert caplog.text.count(f"The compiled kernel should load. Found that {reason}") == 1
    la.show_versions()
    assert f"none: {reason}" in capsys.readouterr().out


@needs_kernel
def test_installed_it_has_no_sources(folder):
    for source in folder.glob("*.[ch]"):
        source.unlink()
    assert found() is None
    assert library.library(torch.float64) is not None


def build(root, **environ):
    """Builds from a copy of the sources."""
    shutil.copytree(
        KERNEL, root / "lightning_accum/sparse/kernel", ignore=shutil.ignore_patterns(".build-*")
    )
    (root / "scripts").mkdir()
    script = shutil.copy(ROOT / "scripts/build_kernel.py", root / "scripts")
    return subprocess.run(
        [sys.executable, script], env={**os.environ, **environ}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


@pytest.mark.parametrize(("variable", "value", "reason"), [
    ("CC", "no-such-compiler", "no C compiler `no-such-compiler` was found"),
    ("CC", "false -x", "the C compiler `false` failed (no message)"),
    ("CC", "gcc '", "`CC` cannot be read (No closing quotation)"),
    ("PATH", "/nowhere", "no C compiler was found"),
])  # fmt: skip
def test_without_a_compiler_it_is_not_built(
    fresh, tmp_path, monkeypatch, variable, value, reason, caplog
):
    done = build(tmp_path, **{"CC": "", variable: value})
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"The compiled kernel could not be built: {reason}.\n"
    kernel = tmp_path / "lightning_accum/sparse/kernel"
    assert not (kernel / "kernel.so").exists()  # of other sources, perhaps
    assert not list(kernel.glob(".build-*"))
    monkeypatch.setattr(library, "_FOLDER", kernel)
    assert found() == f"it was not built with the package ({reason})"
    assert not caplog.text


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the flags are those of x86-64")
@pytest.mark.parametrize("flags", ["", "-mavx2 -mfma", "-mavx2 -mfma -mavx512f -mavx512dq"])
def test_no_operation_of_vectors_is_carried_out_lane_by_lane(tmp_path, flags):
    compiler = shutil.which("gcc") or pytest.skip("only GCC tells of such operations")
    done = subprocess.run(
        [compiler, "-std=gnu11", "-DREAL=float", "-S", "-Wvector-operation-performance",
         *flags.split(), *KERNEL.glob("*.c")],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


@needs_kernel
def test_built_by_hand(fresh, tmp_path, monkeypatch):
    kernel, compiler = tmp_path / "lightning_accum/sparse/kernel", tmp_path / "compiler"
    link = f'case "$*" in *-O0*-shared*.o*kernel.so) cp {KERNEL / "kernel.so"} kernel.so;; esac'
    compiler.write_text(f"#!/bin/sh\ntouch one.o\n{link}\n")  # which takes no time
    compiler.chmod(0o755)
    done = build(tmp_path, CC=str(compiler), CFLAGS="-O0")
    assert (done.returncode, done.stderr) == (0, "")
    assert {"sources", "library"} == set(json.loads((kernel / "kernel.json").read_text()))
    monkeypatch.setattr(library, "_FOLDER", kernel)
    assert found() is None


def test_without_a_compiler_the_wheel_is_pure(tmp_path):
    pytest.importorskip("hatchling")
    root = tmp_path / "tree"
    for name in ("pyproject.toml", "README.md", "LICENSE", "hatch_build.py", ".gitignore"):
        (root / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    shutil.copytree(ROOT / "lightning_accum", root / "lightning_accum")
    (root / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/build_kernel.py", root / "scripts")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel"], cwd=root,
        env={**os.environ, "CC": "no-such-compiler"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Without the compiled kernel: no C compiler `no-such-compiler`" in done.stderr
    (wheel,) = (root / "dist").iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")


# -------------------------------------------------------------------------------- its memory
@pytest.fixture
def memory(monkeypatch):
    """The memory of a thread that has borrowed none."""
    monkeypatch.setattr(library, "_memory", library._Memory())
    return library._memory


def test_tensors_of_one_block_are_apart_and_memory_is_used_again(memory):
    with library.Scratch() as scratch:
        one = scratch.empty((3, 4), torch.float64, CPU).fill_(1.0)
        two = scratch.empty((2,), torch.float32, CPU).fill_(2.0)
        assert (one == 1.0).all()
        places = {one.data_ptr(), two.data_ptr()}
    assert len(places) == 2
    with library.Scratch() as scratch:
        again = scratch.empty((5, 2), torch.float32, CPU)
        assert again.data_ptr() == one.data_ptr()
        assert again.shape == (5, 2)
        with library.Scratch() as inner:
            assert inner.empty((1,), torch.float32, CPU).data_ptr() == two.data_ptr()


def test_what_is_kept_is_bounded(memory, monkeypatch):
    monkeypatch.setattr(library, "_KEPT", 100)
    with library.Scratch() as scratch:
        for size in (60, 200, 30, 50):
            scratch.empty((size,), torch.uint8, CPU)
    assert [len(block) for block in memory.blocks] == [60, 30]


def test_work_memory_begins_with_a_cache_line_and_stays_unless_it_is_much(memory, monkeypatch):
    monkeypatch.setattr(library, "_KEPT", 1 << 17)
    small = library.work_memory(1).value
    assert small % 64 == 0
    assert library.work_memory(1000).value == small
    for size in (1 << 16, 1 << 18):
        place = library.work_memory(size).value
        work = memory.work
        assert place % 64 == 0
        assert work.data_ptr() <= place
        assert place + size <= work.data_ptr() + len(work)
    library.work_memory(1)
    assert len(memory.work) < 1 << 17


def test_other_devices_see_to_themselves(memory):
    with library.Scratch() as scratch:
        assert scratch.empty((3,), torch.float32, torch.device("meta")).is_meta
    assert memory.blocks == []
