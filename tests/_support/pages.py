"""The blocks of code on the pages."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def blocks(page, language="python"):
    """The blocks of a page, by its path in the repository."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
