"""`make release-check` names what keeps a release back, and passes one that is finished."""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

from lightning_accum import __version__

ROOT = Path(__file__).parents[1]
URL = "https://example.org/lightning-accum"
AT = f"Project-URL: Repository, {URL}\n"
DATED = "[0.1.0] - 2026-12-01"


def check(tmp_path, page, url, dated, platform="manylinux_2_28_x86_64"):
    """Runs the script of a repository with this changelog on a wheel with this page."""
    (tmp_path / "scripts").mkdir()
    script = shutil.copy(ROOT / "scripts" / "release_check.py", tmp_path / "scripts")
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## {dated}\n", encoding="utf-8")
    wheel = tmp_path / f"lightning_accum-0.1.0-py3-none-{platform}.whl"
    head = f"Metadata-Version: 2.4\nName: lightning-accum\nVersion: 0.1.0\n{url}"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("lightning_accum-0.1.0.dist-info/METADATA", f"{head}\n{page}\n")
    command = [sys.executable, script, str(wheel), str(wheel)]  # what is open is told once
    return subprocess.run(command, capture_output=True, text=True, check=False)


def page(tmp_path, repository):
    """Returns the long description that a build makes of this README, with an address or none."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    text = re.sub(r"^(# )?Repository = .*$", repository, text, flags=re.MULTILINE)
    assert repository in text
    (tmp_path / "lightning_accum").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    for name in ("README.md", "LICENSE", "hatch_build.py", "lightning_accum/__init__.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    return ProjectMetadata(str(tmp_path), PluginManager()).core.readme


def test_a_finished_release_passes(tmp_path):
    readme = page(tmp_path / "built", f'Repository = "{URL}"')
    done = check(tmp_path, f"{readme} and [below](#below)", AT, DATED)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_pages_links_lead_to_the_tag_if_there_is_an_address(tmp_path):
    readme = page(tmp_path / "one", f'Repository = "{URL}"')
    assert f"]({URL}/blob/v{__version__}/docs/quickstart.md)" in readme
    assert f'<img src="{URL}/raw/v{__version__}/docs/pictures/receptive_fields.png"' in readme
    assert f"]({URL}/raw/v{__version__}/docs/pictures/speed.svg)" in readme
    assert "](https://lightning.ai/docs/pytorch/stable/)" in readme
    assert page(tmp_path / "none", "") == (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("page", "url", "dated", "told"), [
    ("[a picture](a.png)", "", DATED, "Links of the README should lead to files"),
    ("[start](docs/index.md)", AT, DATED, "Found `docs/index.md`"),
    ('<img src="a.png" width="9">', AT, DATED, "Found `a.png`"),
    (f"[start]({URL})", AT, "[0.0.9] - 2026-01-01", "should have a section `## [0.1.0] - YYYY"),
    (f"[start]({URL})", AT, DATED, "should have the compiled kernel"),
    ("[log](CHANGELOG.md)", "", DATED, "Not decided yet: the address: set `Repository`"),
    (f"[start]({URL})", AT, "[Unreleased]", "Not decided yet: the date: in `CHANGELOG"),
])  # fmt: skip
def test_what_is_open_is_told(tmp_path, page, url, dated, told):
    done = check(tmp_path, page, url, dated, "any" if "kernel" in told else "manylinux_2_28_x86_64")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    if told.startswith("Not decided yet"):
        (line,) = lines
        assert line.startswith(told)
    else:
        assert told in done.stdout
        assert not lines[-1].startswith("Not decided yet")
