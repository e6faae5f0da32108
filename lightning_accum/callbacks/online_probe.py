"""The callback that reads out what layers have learned, beside their training."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

import lightning.pytorch as pl
import torch
from torch import Tensor, nn

from lightning_accum._checked_state import FLOATS, MAPPING, Kind, check_state, check_that
from lightning_accum._checks import check_below, check_choice, check_integers, names_in, nearest
from lightning_accum.callbacks._logging import LoggingCallback
from lightning_accum.distributed.world import summed
from lightning_accum.functional.readout import bayes_votes
from lightning_accum.observe import OutputMonitor
from lightning_accum.observe.reducer import Latest

Readout = Literal["linear", "nearest", "bayes"]
_MOST_FEATURES = 8192  # whose products fit in 512 MB


class OnlineProbe(LoggingCallback):
    r"""Logs how well a readout of a layer's activity tells the classes, beside any training.

    The readout gives a sample with activity :math:`x`, summed over the steps of a batch, the class
    with the highest score :math:`w_c \cdot x + b_c`:

    ==============  ================================================================================
    ``"linear"``    ridge regression on the classes as one-hot vectors
    ``"nearest"``   the class whose mean :math:`m_c` is nearest: :math:`w_c = 2 m_c`,
                    :math:`b_c = -\|m_c\|^2`
    ``"bayes"``     Poisson counts of independent neurons, as in
                    :class:`~lightning_accum.metrics.MaxRateClassifier`
    ==============  ================================================================================

    It is computed from sums over one epoch, without gradients, steps or random numbers, so the
    model trains bit for bit as without it. ``linear_probe/<layer>/train`` is the accuracy in an
    epoch by the readout of the epoch before, ``linear_probe/<layer>/val`` and ``.../test`` are
    those in validation and tests by the latest. Under DDP the sums of all processes make one
    readout. It is in the checkpoint.

    Args:
        layers: dotted paths of the modules whose output is read, at least one.
        num_classes: number of classes :math:`C`.
        readout: one of the above.
        time_dim: 0 for layers that return sequences ``[T, B, ...]``; ``None`` for ``[B, ...]``,
            also once for each step.
        labels: index or key of the labels ``[B]`` in a batch, or a function that finds them.
        ridge: penalty of the linear readout, relative to the features' mean variance.

    Raises:
        ValueError: if ``readout`` is not one of its values.
        AttributeError: when a fit begins, if a path leads to no module.

    Example:
        >>> probe = OnlineProbe("lif", num_classes=10, readout="bayes", time_dim=0)
        >>> trainer = pl.Trainer(callbacks=[probe], logger=False)
    """

    def __init__(
        self,
        layers: str | Sequence[str],
        num_classes: int,
        readout: Readout = "linear",
        time_dim: int | None = None,
        labels: int | str | Callable[[Any], Tensor] = 1,
        ridge: float = 1e-2,
    ) -> None:
        check_integers(num_classes=num_classes)
        check_choice("readout", readout, get_args(Readout))
        self.layers = names_in("layers", layers)
        self.num_classes, self.readout, self.ridge = num_classes, readout, ridge
        self.time_dim, self.labels = time_dim, labels
        self._monitors: dict[str, OutputMonitor] = {}
        self._sums: dict[str, dict[str, Tensor]] = {}  # of this epoch
        self._scores: dict[str, dict[str, Tensor]] = {}  # weights and biases of the readouts

    # ------------------------------------------------------------------ what is seen
    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Finds the layers."""
        modules = dict(pl_module.named_modules())
        for name in self.layers:
            if name not in modules:
                raise AttributeError(
                    "Argument `layers` should hold paths of modules of"
                    f" `{type(pl_module).__name__}`. Found `{name}`{nearest(name, modules)}"
                )
            self._monitors[name] = _sum_of(modules[name], self.time_dim)

    def teardown(self, *args: Any, **kwargs: Any) -> None:
        """Removes the hooks."""
        self._monitors = {}
        super().teardown()

    def _begin(self, *args: Any, **kwargs: Any) -> None:
        for monitor in self._monitors.values():
            monitor.clear()

    on_train_batch_start = on_validation_batch_start = on_test_batch_start = _begin

    def _seen(self, batch: Any) -> Iterator[tuple[str, Tensor, Tensor]]:
        """Yields each layer's activity ``[B, N]`` in a batch, with the labels."""
        labels = self._labels(batch)
        for name, monitor in self._monitors.items():
            total = monitor.peek()
            if total is None:
                raise RuntimeError(
                    f"Layer `{name}` of an OnlineProbe should be called in every batch. Found no"
                    " call: call the module, not its `forward`; or probe another layer."
                )
            if len(total) != len(labels):
                raise ValueError(
                    f"The output of layer `{name}` should have a sample for each label, as"
                    f" `[B, ...]`, or `[T, B, ...]` with `time_dim=0`. Found {len(total)} for"
                    f" {len(labels)} labels, `time_dim = {self.time_dim}`."
                )
            yield name, total.flatten(1), labels.to(total.device)

    def _labels(self, batch: Any) -> Tensor:
        try:
            found = self.labels(batch) if callable(self.labels) else batch[self.labels]
        except (IndexError, KeyError, TypeError):
            found = None
        if not isinstance(found, Tensor) or found.ndim != 1 or found.is_floating_point():
            what = type(batch).__name__
            raise TypeError(
                "Argument `labels` of an OnlineProbe should find integers `[B]` in a batch, by an"
                f" index, a key, or a function. Found `labels = {self.labels!r}` of a {what}."
            )
        check_below("labels", found, self.num_classes)
        return found.detach()

    # ------------------------------------------------------------------ accuracy
    @torch.no_grad()
    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: Any, **kwargs: Any
    ) -> None:
        """Tries the latest readout; a training batch adds to the sums of its epoch."""
        stage = "train" if trainer.training else "test" if trainer.testing else "val"
        for name, x, labels in self._seen(args[1]):
            if name in self._scores:
                weights, biases = (self._scores[name][key].to(x.device) for key in _SCORES)
                hits = ((x.to(weights) @ weights.T + biases).argmax(1) == labels).float()
                key, size = f"{self.readout}_probe/{name}/{stage}", len(x)
                share = hits.mean().nan_to_num()  # of no samples, which count for nothing
                pl_module.log(
                    key, share, on_step=False, on_epoch=True, batch_size=size, sync_dist=True
                )
            if stage == "train":
                sums = self._sums.setdefault(name, {})
                for key, value in self._statistics(name, x, labels).items():
                    sums[key] = sums[key].to(x.device) + value if key in sums else value
        if stage == "train" and trainer.is_last_batch:
            self.on_train_epoch_end()  # a fit that resumes from here begins the next epoch

    on_validation_batch_end = on_test_batch_end = on_train_batch_end

    # ------------------------------------------------------------------ the readout
    @torch.no_grad()
    def on_validation_start(self, *args: Any) -> None:
        """Makes the readouts from the batches of the epoch so far, in all processes."""
        for name, local in self._sums.items():
            total = {key: summed(value.clone()) for key, value in local.items()}
            self._scores[name] = dict(zip(_SCORES, self._solve(**total), strict=True))

    def on_train_epoch_end(self, *args: Any) -> None:
        """Makes the readouts from the batches of the epoch."""
        self.on_validation_start()
        self._sums = {}

    def _statistics(self, name: str, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        x = x.to(torch.float32 if x.device.type == "mps" else torch.float64)
        classes = nn.functional.one_hot(labels, self.num_classes).to(x)
        found = {"sums": classes.T @ x, "counts": classes.sum(0)}
        if self.readout == "bayes" and x.is_cpu and bool((x < 0).any()):
            raise ValueError(
                f"Layer `{name}` of an OnlineProbe with `readout='bayes'` should give counts or"
                " rates. Found negative values: take `readout='linear'`."
            )
        if self.readout == "linear":
            if x.shape[1] > _MOST_FEATURES:
                raise ValueError(
                    f"Layer `{name}` of an OnlineProbe with `readout='linear'` should have at most"
                    f" {_MOST_FEATURES} features. Found {x.shape[1]}: probe a pooled layer, or take"
                    " `readout='nearest'`."
                )
            found["products"] = x.T @ x
        return found

    def _solve(
        self, sums: Tensor, counts: Tensor, products: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Returns the weights ``[C, N]`` and biases ``[C]`` of the scores."""
        if self.readout == "bayes":
            return bayes_votes(sums, counts)
        if products is None:
            means = sums / counts.clamp(min=1).unsqueeze(1)
            seen = torch.where(counts > 0, 0.0, -torch.inf)
            return 2 * means, seen - means.square().sum(1)
        number, mean = counts.sum(), sums.sum(0) / counts.sum()
        centred = products - number * mean.outer(mean)
        across = sums - counts.outer(mean)  # of centred features and classes
        centred.diagonal().add_((self.ridge * centred.diagonal().mean()).clamp(min=1e-12))
        weights = torch.linalg.solve(centred, across.T).T
        return weights, counts / number - weights @ mean

    # ------------------------------------------------------------------ survival
    @property
    def state_key(self) -> str:
        """What tells several probes apart in a checkpoint."""
        return f"OnlineProbe-{self.readout}-{'-'.join(self.layers)}"

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_monitors": {}}

    def state_dict(self) -> dict[str, Any]:
        """Returns the sums of the epoch, and the readouts."""
        return {"sums": {**self._sums}, "scores": {**self._scores}}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Takes the sums and the readouts from a checkpoint.

        Raises:
            RuntimeError: if it is not the state of such a probe; then nothing has changed.
        """
        place, known = f"`{self.state_key}`", {*self.layers}
        own = Kind(f"a mapping of {known}", lambda v: MAPPING.fits(v) and v.keys() <= known)
        check_state(place, state_dict, {"sums": own, "scores": own})
        sums = {key: _SUMS[key] for key in _SUMS if key != "products" or self.readout == "linear"}
        for key, shapes in (("sums", sums), ("scores", _SCORES)):
            for name, parts in state_dict[key].items():
                _check_parts(f"{place}, `{key}` of `{name}`,", parts, shapes, self.num_classes)
        self._sums = {name: {**parts} for name, parts in state_dict["sums"].items()}
        self._scores = {**state_dict["scores"]}


# The dimensions of what is saved of a layer: C classes, N features.
_SUMS = {"sums": "CN", "counts": "C", "products": "NN"}
_SCORES = {"weights": "CN", "biases": "C"}


def _check_parts(place: str, parts: Any, shapes: Mapping[str, str], classes: int) -> None:
    """Raises a ``RuntimeError`` unless parts of a state are tensors of these shapes."""
    check_state(place, parts, dict.fromkeys(shapes, FLOATS))
    sizes = {"C": classes, "N": next(map(parts.get, shapes)).shape[-1:].numel()}
    for key, dimensions in shapes.items():
        shape = tuple(sizes[each] for each in dimensions)
        check_that(parts[key].shape == shape, place, f"a tensor {shape} as `{key}`", parts[key])


def _sum_of(module: nn.Module, time_dim: int | None) -> OutputMonitor:
    """Returns a monitor that sums what a layer returns in a batch, over its steps."""
    total = Latest()

    def add(output: Tensor) -> Tensor:
        step = output.sum(0) if time_dim == 0 else output
        return step.float() if (known := total.peek()) is None else known + step

    return OutputMonitor(module, "", total, eval_update=True, map_=add)
