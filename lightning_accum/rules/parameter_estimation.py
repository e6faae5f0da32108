"""The rates and time constants of a rule, from activity and the changes of weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast, final

import torch
from torch import Tensor, nn

from lightning_accum._checks import (
    check_shape,
    check_tensors,
    check_value,
    names_in,
    nearest,
    quoted,
)
from lightning_accum.cells.cell import Cell
from lightning_accum.cells.rule_trainer import RuleTrainer
from lightning_accum.engine.rule import Rule, rates_in, time_constants_in
from lightning_accum.updates import Accumulator

_ROUNDS, _STEP, _DONE = 60, 1e-4, 1e-7  # of the search for times: at most, difference, precision
_SCAN = (0.25, 0.5, 2.0, 4.0)  # of each time constant, from which the search begins
_ALIKE = 1e-7  # the smallest singular value of columns of length one that differ


@final
@dataclass(frozen=True)
class RateFit:
    """What :func:`fit_rates` found.

    Args:
        values: the rates and time constants, by name.
        errors: the standard error of each.
        explained: share of the changes' sum of squares that the rule explains, at most 1.
    """

    values: Mapping[str, float]
    errors: Mapping[str, float]
    explained: float

    def __str__(self) -> str:
        lines = [f"{name} = {v:.4g} ± {self.errors[name]:.1g}" for name, v in self.values.items()]
        return "\n".join([*lines, f"explained: {self.explained:.4%}"])


def fit_rates(
    rule: Rule | RuleTrainer,
    pre: Tensor,
    post: Tensor,
    change: Tensor,
    weight: Tensor | None = None,
    tune: str | Sequence[str] = (),
    **inputs: Tensor,
) -> RateFit:
    r"""Finds the rates with which a rule explains changes of weights best, by least squares.

    A change is linear in the rates, :math:`\Delta w = \sum_k \eta_k \, g_k(s, \tau)`, where each
    :math:`g_k` is what the rule makes of the activity with only one rate. So the rates are a
    linear regression; time constants :math:`\tau` are found by Gauss-Newton steps around it, after
    a scan from a quarter to four times where they begin. Standard errors are those of independent
    errors of equal size.

    Args:
        rule: the rule, with the sign of each rate, and where each time constant begins. A rate of 0
            stays 0. Or its trainer, for other options than the default.
        pre: ``[W, T, B, in]`` activity before the connection, in windows after each of which the
            weights were measured; ``[T, B, in]`` for one. With ``carry`` of the trainer they are
            pieces of one stream.
        post: ``[W, T, B, out]`` activity of the neurons.
        change: ``[W, out, in]`` the change of the weights in each window.
        weight: ``[W, out, in]`` the weights before each window, for rules that depend on them.
        tune: time constants to find too, such as ``["tc_post", "tc_pre"]``.
        **inputs: what the rule is called with, such as a reward ``[W, T, B]``.

    Returns:
        The values, their standard errors, and how much they explain.

    Raises:
        ValueError: if shapes do not fit, a rate has no effect on these weights, or two cannot be
            told apart; or if the rule depends on weights that are not given.

    Example:
        >>> import torch
        >>> from lightning_accum import STDP, RuleTrainer, Serial
        >>> generator = torch.Generator().manual_seed(0)
        >>> pre, post = (torch.rand(200, 1, n, generator=generator) < 0.1 for n in (9, 5))
        >>> layer = Serial(nn.Linear(9, 5, bias=False), nn.Identity())
        >>> secret = RuleTrainer(STDP(0.02, -0.01, tc_post=30.0, tc_pre=10.0), time_dim=0)
        >>> unit = secret.register_cell("cell", layer.cell)
        >>> unit.monitors["pre"](pre), unit.monitors["post"](post)
        (None, None)
        >>> secret()
        >>> change = unit.cell.updater.weight.update(layer.connection.weight)
        >>> found = fit_rates(STDP(1.0, -1.0), pre, post, change, tune=["tc_post", "tc_pre"])
        >>> {name: round(value, 3) for name, value in found.values.items()}
        {'lr_post': 0.02, 'lr_pre': -0.01, 'tc_post': 30.0, 'tc_pre': 10.0}
    """
    given = {"pre": pre, "post": post, "change": change, **inputs}
    given |= {} if weight is None else {"weight": weight}
    problem = _Problem(rule, given, names_in("tune", tune))
    logs = problem.tuned()
    rates, errors, slopes = problem.linearized(logs)
    spare = max(1, len(errors) - slopes.shape[1])
    covariance = torch.linalg.pinv(slopes.T @ slopes, hermitian=True)
    deviations = (covariance.diagonal() * errors.square().sum() / spare).sqrt().tolist()
    found = [*rates.tolist(), *logs.exp().tolist()]
    values = dict(zip((*problem.rates, *problem.tune), found, strict=True))
    for i, name in enumerate(problem.tune, len(problem.rates)):
        deviations[i] *= values[name]
    total = problem.change.square().sum().clamp(min=1e-300)
    explained = 1 - float(errors.square().sum() / total)
    return RateFit(values, dict(zip(values, deviations, strict=True)), explained)


class _Problem:
    """The changes that a rule makes of activity with one rate at a time, and those to explain."""

    def __init__(
        self, rule: Rule | RuleTrainer, given: dict[str, Tensor], tune: Sequence[str]
    ) -> None:
        check_tensors(**given)
        if given["pre"].ndim == 3:
            given = {name: value.unsqueeze(0) for name, value in given.items()}
        self.pre, self.post = given.pop("pre"), given.pop("post")
        sizes = (len(self.pre), self.post.shape[-1], self.pre.shape[-1])
        for name in ("change", "weight"):
            if name in given:
                should = f"the shape [windows, out, in] = {[*sizes]}, as `pre` and `post` are"
                should += " [windows, T, B, neurons]"
                check_shape(given[name].shape == sizes, name, given[name], should)
        if self.pre.ndim != 4 or self.pre.shape[:3] != self.post.shape[:3]:
            raise ValueError(
                "Arguments `pre` and `post` should be [windows, T, B, neurons] with the same"
                f" windows, T and B. Found {[*self.pre.shape]} and"
                f" {[*self.post.shape]}."
            )
        self.change = given.pop("change").detach().double().flatten()
        self.weight, self.inputs = given.pop("weight", None), given
        trainer = rule if isinstance(rule, RuleTrainer) else RuleTrainer(rule)
        self.rule, self.options, self.title = trainer.rule, trainer.options, trainer.title
        rates = rates_in(vars(self.rule))
        self.rates = {name: float(rate) for name, rate in rates.items() if rate}  # type: ignore[arg-type]
        if not self.rates:
            raise ValueError(
                f"Argument `rule` should have a rate that is not 0, with its sign. Found {rates}."
            )
        if states := self.rule.states():
            raise ValueError(
                f"Argument `rule` should learn only from activity. Found `{self.title}`,"
                f" which records {quoted(states)} of its neuron."
            )

        self.tune = tune
        self._check()

    @property
    def logs(self) -> Tensor:
        """The logarithms of the time constants with which the search begins."""
        known = time_constants_in(vars(self.rule))
        for name in self.tune:
            if name not in known:
                raise ValueError(
                    f"Argument `tune` should name time constants of `{self.title}`, which are"
                    f" {[*known]}. Found `{name}`{nearest(name, known)}"
                )
        return torch.tensor([known[name] for name in self.tune], dtype=torch.float64).log()

    def _check(self) -> None:
        """Raises a ``ValueError`` if rates cannot be found from these changes."""
        columns = self.columns(self.logs)
        known = self.weight is not None or torch.equal(columns, self.columns(self.logs, fill=0.5))
        should = f"the weights before each window, on which the change by `{self.title}` depends"
        check_value(known, "weight", self.weight, should)
        norms = columns.norm(dim=0)
        each = zip(self.rates, norms, strict=True)
        idle = quoted(name for name, norm in each if norm == 0)
        if idle or torch.linalg.svdvals(columns / norms).min() < _ALIKE:
            what = f"that {idle} change nothing" if idle else "changes that are proportional"
            raise ValueError(
                f"Rates {quoted(self.rates)} should each change weights in their own way. Found"
                f" {what} in this activity: show more spikes, or set one rate to 0."
            )

    def tuned(self) -> Tensor:
        """Returns the logarithms of the time constants with the least error."""

        def error(at: Tensor) -> float:
            return float(self.regress(at)[2].square().sum())

        logs, damping = self.logs, 1e-3
        for each in torch.eye(len(logs), dtype=torch.float64):
            logs = min((logs + math.log(f) * each for f in (1.0, *_SCAN)), key=error)
        for _ in range(_ROUNDS if len(logs) else 0):
            _, errors, slopes = self.linearized(logs)
            square = slopes.T @ slopes
            damped = square + damping * square.diagonal().clamp(min=1e-300).diag()
            step = torch.linalg.solve(damped, slopes.T @ errors)[-len(logs) :].clamp(-1.0, 1.0)
            if error(logs + step) <= float(errors.square().sum()):
                logs, damping = logs + step, damping / 10
            else:
                damping *= 10
            if float(step.abs().max()) < _DONE or damping > 1e12:
                break
        return logs

    def regress(self, logs: Tensor, rates: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Returns what each rate changes ``[n, k]``, the best rates ``[k]``, and errors ``[n]``."""
        columns = self.columns(logs)
        if rates is None:
            rates = torch.linalg.lstsq(columns, self.change.unsqueeze(1)).solution[:, 0]
        return columns, rates, self.change - columns @ rates

    def linearized(self, logs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the best rates, errors, and how changes grow with rates and logarithms."""
        columns, rates, errors = self.regress(logs)
        steps = _STEP * torch.eye(len(logs), dtype=torch.float64)
        ahead = [self.regress(logs + step, rates)[2] for step in steps]
        slopes = ((errors - each) / _STEP for each in ahead)
        return rates, errors, torch.stack([*columns.unbind(1), *slopes], 1)

    def columns(self, logs: Tensor, fill: float = 0.0) -> Tensor:
        """Returns the change by only one rate of one unit, for each rate, ``[n, k]``."""
        times = zip(self.tune, logs.exp().tolist(), strict=True)
        others = dict.fromkeys(self.rates, 0.0) | dict(times)
        each = (self._changes({**others, k: rate}, fill) / rate for k, rate in self.rates.items())
        return torch.stack([*each], 1)

    def _changes(self, settings: Mapping[str, Any], fill: float) -> Tensor:
        """Returns the change in each window, one after the other."""
        options: Any = {**vars(self.options), "time_dim": 0, "params": ("weight",)}
        trainer = RuleTrainer(replace(self.rule, **settings), **options)  # type: ignore[type-var]
        trainer.hosted = True  # so that nobody looks for what becomes of the changes
        size = self.pre.shape[-1], self.post.shape[-1]
        made = {"bias": False, "dtype": torch.float64, "device": self.pre.device}
        connection = nn.utils.skip_init(nn.Linear, *size, **made)  # draws no random numbers
        cell, found = Cell(connection, nn.Identity()), []
        unit = trainer.register_cell("cell", cell)
        pending = cast(Accumulator, trainer.updater_of("cell", "weight").weight)
        for i in range(len(self.pre)):
            given = torch.full((), fill) if self.weight is None else self.weight[i]
            connection.weight.data.copy_(given)
            for side, activity in (("pre", self.pre), ("post", self.post)):
                if side in unit.monitors:
                    unit.monitors[side](activity[i])
            trainer(**{name: value[i] for name, value in self.inputs.items()})
            change = pending.update(connection.weight)
            found.append(torch.zeros(size[::-1]) if change is None else change.clone())
            pending.clear()
        return torch.stack(found).flatten()
