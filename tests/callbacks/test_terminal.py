"""The table at the end of a fit is there to read, in a notebook and in a terminal."""

import os
import re
import subprocess
import sys

import pytest

# Fits with each bar, first with the package's own handler, then with one that the user has made.
PROGRAM = """
import contextlib, io, logging, sys
import lightning.pytorch as pl
from lightning.pytorch.callbacks import RichProgressBar, TQDMProgressBar
from lightning.pytorch.demos.boring_classes import BoringModel
from lightning_accum import UpdateMonitor

class Logged(BoringModel):
    def training_step(self, batch, i):
        loss = super().training_step(batch, i)["loss"]
        for name in ("a_loss", "b_loss", "c_loss"):
            self.log(name, loss.detach(), prog_bar=True)
        return loss

def fit(*bar):
    pl.Trainer(
        max_epochs=1, limit_train_batches=8, limit_val_batches=2, callbacks=[UpdateMonitor(), *bar],
        logger=False, enable_checkpointing=False, enable_model_summary=False, accelerator="cpu",
        enable_progress_bar=bool(bar),
    ).fit(Logged())

with contextlib.redirect_stderr(io.StringIO()) as notebook:
    fit()
print("in a notebook:", notebook.getvalue().count("weights of"), flush=True)
for bar in RichProgressBar, TQDMProgressBar:
    fit(bar())
own = logging.getLogger("lightning_accum.callbacks")
own.handlers = [logging.StreamHandler(sys.stdout)]
fit(RichProgressBar())
"""
COLUMNS = 80
TABLE = r"""Updates relative to the weights, in 8 steps:
weights of .*
layer .*
Train for 10 steps or more, so that this table can tell.
"""


def screen(written):
    """What a terminal shows in the end of what was written to it."""
    lines, row, column = {}, 0, 0
    for move, key, text in re.findall(r"\x1b\[\??([\d;]*)([A-Za-z])|([^\x1b])", written):
        if text == "\r":
            column = 0
        elif text == "\n":
            row += 1
        elif text:
            if column == COLUMNS:
                row, column = row + 1, 0
            lines[row, column] = text
            column += 1
        elif key in "AB":
            row += int(move or 1) * (1 if key == "B" else -1)
        elif key in "JK":
            gone = {(r, c) for r, c in lines if (r == row if key == "K" else r >= row)}
            assert key == "J" or move == "2" or column == 0
            lines = {at: each for at, each in lines.items() if at not in gone}
        else:
            assert key in "mhl", key
    rows = [
        "".join(lines.get((r, c), " ") for c in range(COLUMNS)).rstrip()
        for r in range(max(lines)[0] + 1)
    ]
    return "\n".join(rows) + "\n"


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs pseudo-terminals")
def test_the_table_is_not_erased_in_a_terminal():
    pytest.importorskip("rich")
    ours, its = os.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "LINES": "60", "TERM": "xterm"}
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    process = subprocess.Popen(command, stdout=its, stderr=its, env=environment)
    os.close(its)
    written = b""
    while True:
        try:
            if not (read := os.read(ours, 65536)):
                break
        except OSError:  # Linux says so that nobody writes to it any more
            break
        written += read
    os.close(ours)
    assert process.wait() == 0, written.decode()
    text = screen(written.decode())
    assert "in a notebook: 1\n" in text
    assert len(re.findall(f"^{TABLE}", text, re.MULTILINE)) == 3, text
