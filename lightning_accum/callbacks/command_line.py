"""LightningCLI that says which option was meant."""

import inspect
import re
from argparse import ArgumentError
from pydoc import locate
from typing import Any

from lightning.pytorch.cli import ArgsType, LightningArgumentParser, LightningCLI

from lightning_accum._checks import nearest
from lightning_accum.callbacks.cell_trainer import CellTrainerCallback
from lightning_accum.engine.rule import OPTIONS

_REJECTED = re.compile(r"class_path '([\w.]+)':\s+Option '(\w+)' is not accepted")


class CellTrainerCLI(LightningCLI):
    """LightningCLI whose errors end with the option that was probably meant.

    ``LightningCLI`` prints how to call the program, and then why it rejects the configuration. This
    one prints only why; if a class rejects an option that resembles one of its own, it adds ``did
    you mean ...?``. The arguments are those of ``LightningCLI``.

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
            for path, option in _REJECTED.findall(str(error)):
                owner: Any = locate(path)
                more = OPTIONS if owner is CellTrainerCallback else ()
                known = nearest(option, [*inspect.signature(owner).parameters, *more])
                lines += [f"`{owner.__name__}` has no option `{option}`{known}"]
            parser.exit(2, "error: " + "\n".join(lines) + "\n")
