"""Checks what a release says of itself: its version, its changelog, and the links on its page.

The package index shows the README without the repository around it: a link or a picture that is
relative leads nowhere there. `make release-check` also builds the files and the pages, and lets
twine check the metadata.

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


def complaints(path: Path) -> list[str]:
    """Returns what does not hold of one file."""
    message = email.message_from_string(metadata(path))
    version, page = message["Version"], str(message.get_payload())
    found = []
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.M):
        found.append(
            f"`CHANGELOG.md` should have a section `## [{version}] - YYYY-MM-DD`. Found none: date"
            " the section `Unreleased`."
        )
    links = re.findall(r"\]\(<?([^)>\s]+)", page)
    relative = sorted({link for link in links if not re.match(r"https?://|#", link)})
    if relative:
        found.append(
            f"Links of the long description should be absolute. Found {len(relative)} relative"
            f" ones, such as `{relative[0]}`: give `Repository` in `[project.urls]`, and put it"
            " before them."
        )
    if not message.get_all("Project-URL"):
        found.append("The project should have URLs. Found none: add `[project.urls]`.")
    return found


def main() -> None:
    """Prints what does not hold, and exits with 1 if there is anything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    failed = False
    for path in parser.parse_args().files:
        for complaint in complaints(path):
            print(f"{path.name}: {complaint}")
            failed = True
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
