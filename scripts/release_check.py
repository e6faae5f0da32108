"""Checks what a release says of itself: its version, its changelog, and the links on its page.

`make release-check` also builds the files and the pages, and lets twine check the metadata. What is
not decided before a release, its date and the project's address, is told apart from what is wrong.

    .venv/bin/python scripts/release_check.py dist/*
"""

from __future__ import annotations

import argparse
import email
import re
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def metadata(path: Path) -> str:
    """Returns the metadata of a wheel or of a source distribution."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            (name,) = [n for n in wheel.namelist() if n.endswith(".dist-info/METADATA")]
            return wheel.read(name).decode()
    with tarfile.open(path) as archive:
        (name,) = [n for n in archive.getnames() if re.fullmatch(r"[^/]+/PKG-INFO", n)]
        found = archive.extractfile(name)
        assert found is not None
        return found.read().decode()


def findings(path: Path) -> tuple[list[str], list[str]]:
    """Returns what is not decided yet, and what is wrong, of one file."""
    message = email.message_from_string(metadata(path))
    version, page = message["Version"], str(message.get_payload())
    open_, wrong = [], []
    if path.name.endswith("-any.whl"):
        wrong.append("A wheel should have the compiled kernel. Found a pure one: no C compiler?")

    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.M):
        dated = f"`## [{version}] - YYYY-MM-DD`"
        if "\n## [Unreleased]\n" in changelog:
            open_.append(f"the date: in `CHANGELOG.md`, make {dated} of the section `Unreleased`.")
        else:
            wrong.append(f"`CHANGELOG.md` should have a section {dated}. Found none.")

    links = re.findall(r"""(?:\]\(<?|<img src=")([^)>"\s]+)""", page)
    relative = sorted({link for link in links if not re.match(r"https?://|#", link)})
    if not message.get_all("Project-URL"):
        open_.append("the address: set `Repository` in `[project.urls]` of `pyproject.toml`.")
        relative = [link for link in relative if not (ROOT / link).exists()]
        if relative:
            wrong.append(f"Links of the README should lead to files. Found `{relative[0]}`.")
    elif relative:
        wrong.append(
            f"Links of the long description should be absolute. Found `{relative[0]}`: see"
            " `absolute` in `hatch_build.py`."
        )
    return open_, wrong


def main() -> None:
    """Prints what is open and what is wrong, each once, and exits with 1 if there is anything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    told: dict[str, None] = {}  # in order
    for path in parser.parse_args().files:
        open_, wrong = findings(path)
        told.update(dict.fromkeys(f"Not decided yet: {finding}" for finding in open_))
        told.update(dict.fromkeys(f"{path.name}: {finding}" for finding in wrong))
    for line in told:
        print(line)
    sys.exit(1 if told else 0)


if __name__ == "__main__":
    main()
