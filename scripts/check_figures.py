"""Checks that the figures of ``docs/science.md`` and ``docs/zoo.md`` stand in what was kept.

A section may use what the examples and benchmarks that it names printed (``docs/outputs``), and the
means, deviations and gains of their rows (``docs/zoo.json``), as they are or rounded. The values of
single seeds do not count. Other figures have to stand in a sentence with a link to where they were
published. Numbers without a percent sign may be settings, and stand in the source of an example or
benchmark that is named. On the page of the zoo, a row is a section.

    python scripts/check_figures.py
"""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import zoo

ROOT = Path(__file__).resolve().parent.parent
NUMBER = r"(?<![\w.,])(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?![\w]|\.\d)"
PERCENT = rf"({NUMBER})(?: ?± ?{NUMBER})?(?:(?: to | and |, |–){NUMBER})* ?%"
NAMED = r"(examples|benchmarks)/(\w+)\.py"


def numbers(text: str) -> set[str]:
    """The numbers of a text, without commas."""
    return {found.replace(",", "") for found in re.findall(NUMBER, text)}


def stands(number: str, kept: set[str]) -> bool:
    """Whether a number is kept, or is one of those rounded."""
    digits = len(number.partition(".")[2])
    return any(
        len(each.partition(".")[2]) >= digits
        and abs(float(each) - float(number)) <= 0.5 * 10**-digits + 1e-9
        for each in kept
    )


@cache
def printed(folder: str, name: str, spreads: bool = True) -> set[str]:
    """What an example or a benchmark printed, and its rows of the zoo say; with spreads or not."""
    found, output = set[str](), ROOT / "docs" / "outputs" / f"{name}.txt"
    if output.exists():
        text = output.read_text(encoding="utf-8").partition("\n")[2]
        found |= numbers(re.sub(r" \(seeds: .*?\)" + ("" if spreads else r"| ± [\d.]+"), "", text))
    kept = zoo.recall() if folder == "examples" else {}
    for row in (key for key in kept if zoo.ZOO[key].example == name):
        result = zoo.numbers(kept[row]["result"])
        others = {
            k: zoo.numbers(v) for kind in ("control", "simple") for k, v in kept[row][kind].items()
        }
        for values in (result, *others.values()):
            every = [value for seeds in values for value in seeds]
            found |= {f"{abs(statistics.mean(every)):.9f}", str(len(every))}
            if spreads:
                gain = zoo.gain(result, values)
                about = statistics.stdev(every), gain.mean, gain.error, gain.t, gain.p
                found |= {f"{abs(x):.9f}" for x in about} | {str(gain.freedom)}
    return found


@cache
def settings(folder: str, name: str) -> set[str]:
    """The numbers in a source."""
    source = ROOT / folder / f"{name}.py"
    return numbers(source.read_text(encoding="utf-8")) if source.exists() else set()


def plain(text: str) -> str:
    """A text without the targets of links, pictures, code, mathematics and years."""
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\]\([^)\s]*\)", "]", text)
    text = re.sub(r"`[^`]*`|\$[^$]*\$|\(\d{4}\)|CartPole-v1|Acrobot-v1|MNIST-5k", "", text)
    return text.replace(zoo.NBSP, " ")


def unsupported(section: str, *more: tuple[str, str]) -> Iterator[str]:
    """The numbers of a section that are not kept, nor published, nor a setting.

    Args:
        section: Markdown.
        *more: folder and name of what is named elsewhere.
    """
    sources = [*re.findall(NAMED, section), *more]
    kept = {number for source in sources for number in printed(*source, "±" in section)}
    chosen = {number for source in sources for number in settings(*source)}
    for sentence in re.split(r"(?<=[.:;])\s+(?=[A-Z\[`])", section):
        if re.search(r"\]\(https?:", sentence):
            continue
        text = plain(sentence)
        figures = {each for part in re.finditer(PERCENT, text) for each in numbers(part[0])}
        for number in numbers(text):
            setting = number not in figures and number in chosen
            if not setting and not stands(number, kept):
                yield f"{number} in: {' '.join(sentence.split())}"


def science(page: str) -> list[str]:
    """The unsupported numbers of the page of science, whose sections have headings."""
    return [each for part in re.split(r"^#+ ", page, flags=re.M) for each in unsupported(part)]


def table(page: str) -> list[str]:
    """The unsupported numbers of the page of the zoo, whose rows are lines."""
    head, _, study = page.partition(zoo.described(zoo.STUDY).partition("\n")[0])
    rows = [line for line in head.splitlines() if line.startswith("| [")]
    found = [each for row in rows for each in _row(row)]
    first = head.partition("\n## ")[0]
    found += unsupported(first, ("scripts", "zoo"), ("examples", "_data"))
    return [*found, *unsupported(study, ("benchmarks", zoo.STUDY.stem))]


def _row(row: str) -> Iterator[str]:
    """Of a row: the cells after the rule's, for those before are what the script says."""
    names = re.findall(NAMED, row)
    cells = "|".join(row.split("|")[3:]).replace(f"<{zoo.NBSP}0.001", "")
    yield from unsupported(cells, *names)


def main() -> None:
    """Lists the unsupported numbers, and fails if there is one."""
    docs = ROOT / "docs"
    found = science((docs / "science.md").read_text(encoding="utf-8"))
    found += table((docs / "zoo.md").read_text(encoding="utf-8"))
    if found:
        lines = "\n".join(found)
        sys.exit(f"Expected each figure in what was kept, or beside its source. Found:\n{lines}")


if __name__ == "__main__":
    main()
