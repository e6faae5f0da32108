"""What mypy has to find in a rule of a user's own, and in how rules are made: `make types`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from typing_extensions import assert_type

from lightning_accum import BCM, STDP, EProp, Rule, RuleTrainer, Term
from lightning_accum.engine import Window


class Own(Rule):
    lr: float
    tc_pre: float = 20.0

    def check(self) -> None:
        super().check()
        self.tc_pro  # type: ignore[attr-defined]  # noqa: B018

    def terms(self, window: Window) -> Sequence[Term]:
        assert_type((self.lr, window.dt), tuple[float, float])
        self.lr_pots  # type: ignore[attr-defined]  # noqa: B018
        return [Term(self.lr, window.post, window.pre.trace(self.tc_pre))]


def mistakes() -> None:  # is read, not run
    RuleTrainer(Own(0.1, 10.0), dt=0.5, carry=False)
    Own()  # type: ignore[call-arg]
    Own(lr="fast")  # type: ignore[arg-type]
    Own(0.1, dt=0.5)  # type: ignore[call-arg]
    Own(0.1, 10.0, 1.0)  # type: ignore[call-arg]
    RuleTrainer(Own(0.1), timedim=0)  # type: ignore[call-arg]
    RuleTrainer(0.1)  # type: ignore[arg-type]

    RuleTrainer(STDP(0.1, -0.1, 20.0, 20.0, trace_mode="nearest"), params=["bias"])
    STDP(0.1, -0.1, trace_mode="closest")  # type: ignore[arg-type]
    EProp(0.1, tc_readout=None, threshold=1.0)

    rule = BCM(0.1)
    assert_type(rule.tc_threshold, float)
    assert_type(dataclasses.replace(rule, lr=0.2), BCM)
    rule.tc_treshold  # type: ignore[attr-defined]  # noqa: B018
    rule.updat()  # type: ignore[attr-defined]
    rule.lr = 0.2  # type: ignore[misc]
