"""LightningCLI that says which class or option was meant."""

import inspect
import re
from argparse import ArgumentError
from difflib import get_close_matches
from importlib import import_module
from pydoc import ErrorDuringImport, locate
from typing import Any

from lightning.pytorch.cli import ArgsType, LightningArgumentParser, LightningCLI

from lightning_accum._checks import nearest
from lightning_accum.callbacks.cell_trainer import CellTrainerCallback
from lightning_accum.engine.rule import OPTIONS

_REJECTED = re.compile(r"class_path '([\w.]+)':\s+Option '(\w+)' is not accepted")
_UNKNOWN = re.compile(r"class_path '([\w.]+)':|Expected a dot import path string: (\w+)")
# The packages of the classes that configurations name, in the order of the search.
_PLACES = (
    *(f"lightning_accum{place}" for place in (".callbacks", ".optim", "", ".rules")),
    *("lightning.pytorch.callbacks", "lightning.pytorch.loggers"),
    *("torch.optim", "torch.optim.lr_scheduler"),
)


class CellTrainerCLI(LightningCLI):
    """LightningCLI whose errors end with the option that was probably meant.

    ``LightningCLI`` prints how to call the program, and then why it rejects the configuration. This
    one prints only why; if a class that there is not, or an option that a class rejects, resembles
    a known one, it adds ``did you mean ...?``. The arguments are those of ``LightningCLI``.

    Example::

        if __name__ == "__main__":
            CellTrainerCLI(Patterns)  # python program.py fit --config=config.yaml
    """

    def init_parser(self, **kwargs: object) -> LightningArgumentParser:
        """Returns a parser that raises its errors."""
        return super().init_parser(**kwargs, exit_on_error=False)

    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        """Parses the arguments; prints an error and exits with 2 if they cannot be parsed."""
        try:
            super().parse_arguments(parser, args)
        except ArgumentError as error:
            lines = [str(error)]
            for path, name in _UNKNOWN.findall(str(error)):
                meant = _meant(path or name)
                if meant and _found(path) is None:
                    lines.append(f"There is no class `{path or name}`: did you mean `{meant}`?")
            for path, option in _REJECTED.findall(str(error)):
                owner: Any = locate(path)
                more = OPTIONS if owner is CellTrainerCallback else ()
                known = nearest(option, [*inspect.signature(owner).parameters, *more])
                lines += [f"`{owner.__name__}` has no option `{option}`{known}"]
            parser.exit(2, "error: " + "\n".join(dict.fromkeys(lines)) + "\n")


def _meant(path: str) -> str | None:
    """Returns the path of a class with this name, or with a similar one, if any."""
    head, _, name = path.rpartition(".")
    modules = [head, *_PLACES] if _found(head) else _PLACES
    known: dict[str, str] = {}
    for place in modules:
        module = import_module(place)
        for each in getattr(module, "__all__", dir(module)):
            if isinstance(getattr(module, each, None), type):
                known.setdefault(_plain(each), f"{place}.{each}")
    return next((known[each] for each in get_close_matches(_plain(name), known, 1, 0.7)), None)


def _plain(name: str) -> str:
    return name.casefold().replace("_", "")


def _found(path: str) -> object:
    """Returns what has a path; ``None`` if nothing has, or if it cannot be imported."""
    try:
        return locate(path) if path else None
    except ErrorDuringImport:
        return None
