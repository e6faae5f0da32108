"""Ways in which updates were lost, or something else than updates was counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from callback_helpers import RULE, Net, callback, loader, trainer

from lightning_accum import STDP
from lightning_accum.nn import LIF
from lightning_accum.optim import UpdateOptimizer


def test_a_rule_keeps_its_own_parameters(tmp_path: Path) -> None:
    net = Net()
    net.fc = torch.nn.Linear(6, 4, dtype=torch.float64)
    torch.nn.init.constant_(net.fc.weight, 0.4)  # so that neurons fire
    use = callback(STDP(**RULE, time_dim=0, params=("weight", "bias")))
    trainer(tmp_path, use).fit(net, loader(2))
    assert use.host.updaters["enc"].names == ("weight", "bias")


def test_what_others_do_in_the_same_step_is_no_update(tmp_path: Path) -> None:
    class Shifted(Net):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            super().training_step(batch, batch_idx)
            self.optimizers().step()
            with torch.no_grad():
                self.fc.weight.add_(100.0)

        def configure_optimizers(self) -> Any:
            return UpdateOptimizer(self.fc.parameters())

    use = trainer(tmp_path, callback(), log_every_n_steps=1)
    use.fit(Shifted(), loader(2))
    assert use.callback_metrics["updates/enc/weight/update_norm"] < 10.0


def test_what_is_not_looked_at_while_it_runs_is_told_when_statistics_are_logged(tmp_path: Path):
    class Stepwise(Net):
        """One step a batch, and what is not a spike in its last but one."""

        def training_step(self, batch: Any, batch_idx: int) -> None:
            self.lif.reset()
            x = batch[0][:, 0] * (0.5 if batch_idx == 3 else 1.0)
            self.lif(self.fc(x))

    for every in (1, 100):
        net = Stepwise()
        net.lif = LIF(4)
        use = callback(STDP(**RULE), log=every == 1)
        with pytest.raises(ValueError, match=r"Found 0\.5 before the connection of cell `enc`"):
            trainer(tmp_path, use, log_every_n_steps=every).fit(net, loader(5))
