"""Raises at any line of the package, as a Ctrl-C or a lack of memory may come."""

import sys
from pathlib import Path

import torch

import lightning_accum

PACKAGE = str(Path(lightning_accum.__file__).parent)


class Interrupts:
    """Raises when the n-th line of the package runs, of a folder or a place; a trace function."""

    def __init__(self, n=sys.maxsize, error=KeyError, at=None, within=""):
        self.left, self.error, self.place, self.at = n, error, at, at and at[0]
        self.folder, self.seen, self.where = f"{PACKAGE}/{within}", {}, None

    def __call__(self, frame, event, arg):
        file = frame.f_code.co_filename
        return self.line if file.startswith(self.folder) and self.at in (None, file) else None

    def line(self, frame, event, arg):
        place = frame.f_code.co_filename, frame.f_code.co_name, frame.f_lineno
        if event == "line":
            self.seen.setdefault(place)
            self.left -= self.place in (None, place)
            if self.left == 0:
                self.where = place
                sys.settrace(None)
                raise self.error("on purpose")
        return self.line


def ends(run, tracer):
    """Whether an interrupt ended a run."""
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        run()
    except (tracer.error, SystemExit):
        return True
    finally:
        sys.settrace(before)
        # an interrupt at the very end of a `with` leaves it without its exit, as Python has it
        torch.set_grad_enabled(True)
    return False
