"""Private names of torchmetrics."""

from typing import Any


def default_states(metric: Any) -> dict[str, Any]:
    """Returns the values to which ``reset`` sets the states of a metric, by name."""
    # The public `metric_state` returns only the current values.
    defaults: dict[str, Any] = metric._defaults
    return defaults


def forget_computed(metric: Any) -> None:
    """Has the next ``compute`` of a metric compute again."""
    # torchmetrics returns the last result until `update` or `reset` is called, also after states
    # were loaded or merged.
    metric._computed = None


def mark_updated(metric: Any) -> None:
    """Has a metric know that it holds data, if ``update`` was never called."""
    # `compute` warns unless `update` was called; the public `update_count` cannot be set.
    metric._update_count = max(metric.update_count, 1)


def is_synchronised(metric: Any) -> bool:
    """Returns whether a torchmetrics metric holds, at the moment, the states of all processes."""
    # `sync` and `unsync` are public; no public name tells which of them was called last.
    return bool(metric._is_synced)


def local_result(metric: Any) -> Any:
    """Returns the result of a torchmetrics metric in this process, without caching it."""
    # `compute` synchronises and caches, and torchmetrics reads whether to do so when a metric is
    # made.
    to_sync, metric._to_sync = metric._to_sync, False
    try:
        metric._computed = None
        return metric.compute()
    finally:
        metric._to_sync, metric._computed = to_sync, None


def known_keywords(metric: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns those keywords that ``update`` of a torchmetrics metric takes."""
    # A `MetricCollection` filters the keywords of its metrics by the same method.
    known: dict[str, Any] = metric._filter_kwargs(**kwargs)
    return known
