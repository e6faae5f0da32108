"""A fit in which the first process has a batch more: `uneven_run.py RANK RANKS PORT FOLDER`."""

import lightning.pytorch as pl
import torch
from run_ranks import share, trainer
from torch import nn
from torch.utils.data import DataLoader

from lightning_accum import STDP, CellSpec
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.nn import LIF


class Head(pl.LightningModule):
    """A layer that learns by a rule, and a readout."""

    def __init__(self):
        super().__init__()
        self.fc, self.lif = nn.Linear(6, 4, bias=False).requires_grad_(False), LIF(4, time_dim=0)
        self.head, self.batches = nn.Linear(4, 2), 0

    def training_step(self, batch, batch_idx):
        self.batches += 1
        self.lif.reset()
        return self.head(self.lif(self.fc(batch.transpose(0, 1))).mean(0)).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.head.parameters(), 0.1)


def main(rank, ranks, folder):
    rule = STDP(0.01, -0.01, time_dim=0)
    learner = CellTrainerCallback(rule, {"enc": CellSpec("fc", "lif")}, log=False, summary=False)
    net, raised = Head(), ""
    loader = DataLoader(torch.ones(4 - rank, 5, 7, 6), batch_size=None)
    try:
        learners = [learner] if folder.name == "with" else []
        trainer(ranks, *learners, epochs=1).fit(net, loader)
    except BaseException as error:
        raised = type(error).__name__
    return {"raised": raised, "batches": net.batches}


if __name__ == "__main__":
    share(main, wait=False)
