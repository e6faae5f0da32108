"""The long description of the package: the README, whose links lead to the project's address.

The package index shows the README without the repository around it, where a relative link leads
nowhere. The address is `Repository` in `[project.urls]` of pyproject.toml, and stands only there;
without one, links stay as they are, and `make release-check` says what is missing.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURES = (".png", ".svg")


def absolute(page: str, address: str, version: str) -> str:
    """Returns the page with each relative link made one to the files of a version's tag.

    Args:
        page: Markdown, with pictures and links as Markdown or as ``<img src="...">``.
        address: of the repository, such as ``https://example.org/name``.
        version: of the package; its tag is ``v`` and the version.
    """

    def join(match: re.Match[str]) -> str:
        before, path = match.groups()
        kind = "raw" if path.endswith(PICTURES) else "blob"
        return f"{before}{address.rstrip('/')}/{kind}/v{version}/{path}"

    return re.sub(r"""(\]\(|<img src=")(?![a-z]+:|#)([^)"\s]+)""", join, page)


class ReadmeHook(MetadataHookInterface):
    """Sets the dynamic field `readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Reads the README, and leads its links to the address, if there is one."""
        page = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        address = metadata.get("urls", {}).get("Repository")
        if address:
            page = absolute(page, address, metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": page}
