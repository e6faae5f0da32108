"""The gallery: a page for each of ``examples/``, written when the pages are built.

A page has the example's docstring, picture, output and source. The pictures and outputs were made
before: most examples take longer to run than all pages to build. `python scripts/record.py` runs
them and keeps what they print.
"""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path
from typing import Any

from one_file import EXAMPLES, one_file
from sphinx.util import logging

logger = logging.getLogger(__name__)

# Examples by what they show, with the titles of their pages.
SECTIONS = {
    "Learn without labels": {
        "receptive_fields": "Receptive fields from photographs",
        "digits_stdp": "Handwritten digits by STDP",
        "conv_wta": "Filters of a convolution by competition",
        "softhebb_stack": "Two layers of convolutions by soft competition",
        "conv_stdp": "Filters of a spiking convolution by STDP",
        "oja_pca": "Principal components by Oja and Sanger",
        "drifting_pca": "Components of a stream that drifts",
        "bcm_selectivity": "Selective neurons by BCM",
        "foreign_neurons": "Neurons of snnTorch, Norse and SpikingJelly",
        "no_optimizer": "Digits without an optimizer",
        "events_tonic": "Directions of a bar, from events by Tonic",
    },
    "Learn from reward or from an error": {
        "cartpole": "Balance a pole, from reward",
        "reversal": "Answers that change, from reward",
        "distal_reward": "Find the synapse that a late reward is for",
        "reward_xor": "XOR from reward",
        "reward_xor_temporal": "XOR of spike trains from reward",
        "reward_decision": "Decide between digits, from reward",
        "s2_stdp": "Decide between digits, from labels",
        "pattern_generation": "Generate patterns by e-prop",
        "evidence_accumulation": "Accumulate evidence by e-prop",
        "digits_rows": "Digits row by row by e-prop",
        "speech": "Speakers by their vowels, by e-prop",
        "digits_ottt": "A deep network by OTTT",
    },
    "Learn alongside backpropagation": {
        "pattern_completion": "Complete patterns by fast weights",
        "hybrid_backprop": "STDP under a backprop head",
        "manual_optimization": "Manual optimization",
    },
    "Compare with experiment and theory": {
        "stdp_window": "The STDP window",
        "triplet_frequency": "Triplet STDP and the frequency of pairings",
        "homeostasis": "Homeostasis of firing rates",
        "rule_recovery": "A hidden rule, recovered by its gradient",
        "brunel": "Ten million plastic synapses in real time",
    },
    "Optimizers and streams": {
        "cnn_optimizers": "A CNN with any optimizer, by LightningCLI",
        "compare_optimizers": "Optimizers side by side",
        "amsgrad_problem": "Where Adam fails and AMSGrad does not",
    },
}
DOCS = Path(__file__).resolve().parent.parent


def _linked(text: str) -> str:
    """Makes links of the DOIs and of arXiv's numbers in a text."""
    doi = r"doi:((?:[^\s,;()]|\([^\s()]*\))+)"
    text = re.sub(doi, r"[doi:\1](<https://doi.org/\1>)", text)
    return re.sub(r"arXiv:(\d+\.\d+)", r"[arXiv:\1](https://arxiv.org/abs/\1)", text)


def _imports(name: str) -> list[str]:
    """The package's names that an example imports, by itself or by way of its folder."""
    ours = {
        f"{node.module}.{alias.name}"
        for node in ast.walk(ast.parse(one_file(name)))
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
        if node.module.split(".")[0] == "lightning_accum"
    }
    return sorted(ours, key=lambda name: name.rpartition(".")[2].lower())


def _page(name: str, title: str) -> str:
    tree = ast.parse((EXAMPLES / f"{name}.py").read_text(encoding="utf-8"))
    paragraphs = (ast.get_docstring(tree) or "").split("\n\n")
    usage = [p for p in paragraphs if p.startswith("    ")]
    blocks = [f"# {title}", *(_linked(p) for p in paragraphs if p not in usage)]
    if (DOCS / "pictures" / f"{name}.png").exists():
        blocks.append(f"![{paragraphs[0].rstrip('.')}](../pictures/{name}.png)")
    output = DOCS / "outputs" / f"{name}.txt"
    if output.exists():
        short = output.read_text(encoding="utf-8").partition("\n")[0].endswith(" --short")
        if short:
            drawn = (DOCS / "pictures" / f"{name}.png").exists()
            picture = ", while the picture is of the full one" if drawn else ""
            blocks.append(
                f"This is what a **short run** (`--short`) prints, which learns less{picture}:"
            )
        blocks.append(f"```{{literalinclude}} ../outputs/{name}.txt\n:language: console\n```")
    else:
        logger.warning(
            "The gallery should show what each example prints. Found no"
            f" `docs/outputs/{name}.txt`: run `python scripts/record.py {name}`."
        )
    links = [f"{{py:obj}}`{path.rpartition('.')[2]} <{path}>`" for path in _imports(name)]
    blocks.append(f"It uses {', '.join(links)}.")
    options = "\n".join(textwrap.dedent(p) for p in usage)
    blocks += ["## Options", f"```bash\n{options}\n```"]
    blocks += [
        "## Source",
        f"{{download}}`{name}.py <{name}.py>` can be pasted into an empty file:",
    ]
    blocks[-1] += " what the example imports from its folder stands at its beginning."
    blocks.append(f"```{{literalinclude}} {name}.py\n:language: python\n```")
    return "\n\n".join(blocks) + "\n"


def _index() -> str:
    blocks = ["# Gallery", "Every program of `examples/`, with what it prints and draws. Each runs"]
    blocks[-1] += " with `--short` in seconds, which proves nothing, and takes its options from the"
    blocks[-1] += ' command line. They need `pip install "lightning-accum[examples]"`.'
    for section, titles in SECTIONS.items():
        cards = []
        for name, title in titles.items():
            picture = DOCS / "pictures" / f"{name}.png"
            image = f":img-top: ../pictures/{name}.png\n" if picture.exists() else ""
            tree = ast.parse((EXAMPLES / f"{name}.py").read_text(encoding="utf-8"))
            first = (ast.get_docstring(tree) or "").partition("\n")[0]
            options = f":link: {name}\n:link-type: doc\n{image}"
            cards.append(f":::{{grid-item-card}} {title}\n{options}\n{first}\n:::")
        grid = "\n\n".join(cards)
        blocks += [f"## {section}", f"::::{{grid}} 1 2 2 3\n:gutter: 3\n\n{grid}\n::::"]
    names = "\n".join(name for titles in SECTIONS.values() for name in titles)
    blocks.append(f"```{{toctree}}\n:hidden:\n\n{names}\n```")
    return "\n\n".join(blocks) + "\n"


def _write(app: Any) -> None:
    """Writes the pages that changed, and removes those of examples that are gone."""
    folder = DOCS / "gallery"
    folder.mkdir(exist_ok=True)
    found = {p.stem for p in EXAMPLES.glob("*.py") if not p.name.startswith("_")}
    shown = {name: title for titles in SECTIONS.values() for name, title in titles.items()}
    if found != shown.keys():
        logger.warning(
            "The gallery should show each example once. Found"
            f" {', '.join(sorted(found ^ shown.keys()))} only in `examples/` or only in the"
            " gallery: mend `SECTIONS` in `docs/_ext/gallery.py`."
        )
    pages = {"index.md": _index()}
    for name in found & shown.keys():
        pages |= {f"{name}.md": _page(name, shown[name]), f"{name}.py": one_file(name)}
    for path in folder.iterdir():
        if path.name not in pages:
            path.unlink()
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def _link_pages(app: Any, name: str, source: list[str]) -> None:
    """Leads links to an example, which work in a checkout too, to its page in the gallery."""
    source[0] = re.sub(r"\]\((?:\.\./)+examples/(\w+)\.py\)", r"](/gallery/\1.md)", source[0])


def setup(app: Any) -> dict[str, bool]:
    """Writes the pages before Sphinx looks for them."""
    app.connect("builder-inited", _write)
    app.connect("source-read", _link_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
