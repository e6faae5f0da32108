"""What the build adds: the compiled kernel, and the long description.

The kernel is built by scripts/build_kernel.py, in place also for an editable installation. A wheel
that has it is for one platform and any Python; without a C compiler the wheel is pure, and plain
torch does the kernel's work.

The long description is the README, whose links lead to the project's address: the package index
shows it without the repository around it, where a relative link leads nowhere. The address is
`Repository` in `[project.urls]` of pyproject.toml, and stands only there; without one, links stay
as they are, and `make release-check` says what is missing.
"""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface
from packaging.tags import platform_tags

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


def platform() -> str:
    """Returns the tag of this platform: on Linux by its C library, of which newer ones will do."""
    first, *others = platform_tags()
    return others[0] if first.startswith("linux_") and others else first


class KernelHook(BuildHookInterface[Any]):
    """Builds the compiled kernel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Builds it into the package, and says in the wheel's tag which platform it is for."""
        built = runpy.run_path(str(Path(self.root) / "scripts" / "build_kernel.py"))
        reason = built["build"]()
        artifacts = [built["RECORD"]] if reason else [built["RECORD"], built["LIBRARY"]]
        build_data["artifacts"] += [f"/{path.relative_to(self.root)}" for path in artifacts]
        if reason:
            self.app.display_warning(f"Without the compiled kernel: {reason}.")
        else:
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform()}"


class ReadmeHook(MetadataHookInterface):
    """Sets the dynamic field `readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Reads the README, and leads its links to the address, if there is one."""
        page = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        address = metadata.get("urls", {}).get("Repository")
        if address:
            page = absolute(page, address, metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": page}
