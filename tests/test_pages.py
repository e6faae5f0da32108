"""What stands on the documentation's pages runs as a reader pastes it: nothing hidden helps it.

`make docs` runs each page's blocks in order, in one fresh namespace. So a page that hides none of
them can be pasted into an empty file.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
PAGES = sorted(
    path
    for path in (*DOCS.glob("*.md"), *DOCS.glob("rules/*.md"), *DOCS.glob("tutorials/*.md"))
    if path.name != "changelog.md"
)
# Blocks that `make docs` does not run. The list should only shrink.
NOT_RUN = {
    "distributed.md": 3,  # run by tests/distributed/test_ddp_page.py, in several processes
    "foreign-neurons.md": 5,  # run by tests/neurons, where the libraries are installed
    "from-other-libraries.md": 5,  # likewise
    "nir.md": 2,  # likewise
    "three-factor.md": 3,  # one trains for a minute, two need others: test_three_factor_page.py
}
HIDDEN = {
    "testsetup": r"^ *[`:]{3,}\{testsetup\}",
    "testcleanup": r"^ *[`:]{3,}\{testcleanup\}",
    "a hidden block": r"^ *:hide:",
    "code that only tests see": r"^ *>>> .*# *doctest: *\+SKIP",
    "a namespace of its own": r"^ *[`:]{3,}\{(?:testcode|doctest)\} +\S",
    "a cell without its code": r"remove[-_](?:cell|input)|hide[-_](?:cell|input)",
    "a cell that may fail": r"raises-exception|skip-execution",
}


def test_there_are_pages() -> None:
    assert len(PAGES) > 20


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_page_hides_code(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [what for what, pattern in HIDDEN.items() if re.search(pattern, text, re.M)] == []


def test_all_python_on_the_pages_runs() -> None:
    counts = {
        page.name: len(re.findall(r"^ *```(?:python|py|pycon)\b", page.read_text("utf-8"), re.M))
        for page in PAGES
    }
    assert {name: count for name, count in counts.items() if count} == NOT_RUN
