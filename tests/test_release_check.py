"""`make release-check` names what keeps a release back, and passes one that is finished."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "release_check.py"
CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"
URL = "https://example.org/lightning-accum"


def check(tmp_path: Path, page: str, url: str, dated: str) -> subprocess.CompletedProcess[str]:
    """Runs the script of a repository with this changelog on a wheel with this page."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / SCRIPT.name).write_bytes(SCRIPT.read_bytes())
    (tmp_path / CHANGELOG.name).write_text(f"# Changelog\n\n## {dated}\n", encoding="utf-8")
    wheel = tmp_path / "lightning_accum-0.1.0-py3-none-any.whl"
    head = f"Metadata-Version: 2.4\nName: lightning-accum\nVersion: 0.1.0\n{url}"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("lightning_accum-0.1.0.dist-info/METADATA", f"{head}\n{page}\n")
    command = [sys.executable, str(tmp_path / "scripts" / SCRIPT.name), str(wheel)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_finished_release_passes(tmp_path: Path) -> None:
    page = f"[start]({URL}/docs) and [below](#below) ![a picture]({URL}/a.png)"
    done = check(tmp_path, page, f"Project-URL: Repository, {URL}\n", "[0.1.0] - 2026-12-01")
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("page", "url", "dated", "told"),
    [
        ("[start](docs/index.md)", f"Project-URL: Repository, {URL}\n", "[0.1.0] - 2026-12-01",
         "1 relative ones, such as `docs/index.md`"),
        (f"[start]({URL})", "", "[0.1.0] - 2026-12-01", "should have URLs"),
        (f"[start]({URL})", f"Project-URL: Repository, {URL}\n", "[Unreleased]",
         "should have a section `## [0.1.0] - YYYY-MM-DD`"),
    ],
)  # fmt: skip
def test_what_is_missing_is_told(
    tmp_path: Path, page: str, url: str, dated: str, told: str
) -> None:
    done = check(tmp_path, page, url, dated)
    assert done.returncode == 1
    assert told in done.stdout
    assert len(done.stdout.splitlines()) == 1
