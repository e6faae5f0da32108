"""Classification by the class to which each neuron responds most."""

import sys
from typing import Any, Literal

import torch
from torch import Tensor

from lightning_accum._checks import (
    check_below,
    check_choice,
    check_counts,
    check_range,
    check_shape,
    check_tensors,
    check_whole,
)
from lightning_accum.functional import readout
from lightning_accum.metrics.update_statistics import AdditiveMetric
from lightning_accum.plot import pyplot

_VOTES = ("assigned", "proportional", "bayes")


class MaxRateClassifier(AdditiveMetric):
    r"""Labels neurons that learned without labels, and classifies by their rates.

    Over the samples that ``update`` sees, each neuron is assigned to the class with its highest
    mean rate, :math:`a_n = \arg\max_c \bar r_{cn}`. A sample is then given the class whose neurons
    fire most on average,

    .. math:: \hat y = \arg\max_c \frac{1}{|\{n : a_n = c\}|} \sum_{n : a_n = c} r_n

    or, with ``vote="proportional"``, the class with the highest mean over all neurons, each weighed
    by its share of the class, :math:`p_{cn} = \bar r_{cn} / \sum_k \bar r_{kn}`:

    .. math:: \hat y = \arg\max_c \frac{\sum_n p_{cn} r_n}{\sum_n p_{cn}}

    or, with ``vote="bayes"``, the class under which these rates are the most likely, if those of
    each neuron are independent Poisson counts with the class's mean:

    .. math::
        \hat y = \arg\max_c \sum_n \left( r_n \log \lambda_{cn} - \lambda_{cn} \right), \qquad
        \lambda_{cn} = \frac{\sum_{b\,:\,y_b = c} r_{bn} + \bar r_n}{S_c + 1}

    where :math:`S_c` counts the class's samples, and one sample more, with each neuron's mean rate
    :math:`\bar r_n` over classes, keeps the logarithm finite.

    The sums behind it add up over processes and in ``merge_state``, and are in the state dict.

    Args:
        num_neurons: number of neurons :math:`N`.
        num_classes: number of classes :math:`C`.
        vote: ``"assigned"``, ``"proportional"`` or ``"bayes"``.
        **kwargs: passed to :class:`torchmetrics.Metric`.

    Raises:
        ValueError: if a number is not positive, or ``vote`` is not one of its values.

    Example:
        >>> import torch
        >>> readout = MaxRateClassifier(num_neurons=3, num_classes=2)
        >>> readout.update(torch.tensor([[5, 0, 0], [1, 4, 0]]), torch.tensor([0, 1]))
        >>> readout.assignments
        tensor([ 0,  1, -1])
        >>> readout.predict(torch.tensor([[2, 1, 9], [2, 3, 0]]))
        tensor([0, 1])

    Source:
        Diehl & Cook (2015), doi:10.3389/fncom.2015.00099.
    """

    rate_sums: Tensor
    samples: Tensor

    def __init__(
        self,
        num_neurons: int,
        num_classes: int,
        vote: Literal["assigned", "proportional", "bayes"] = "assigned",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_counts(num_neurons=num_neurons, num_classes=num_classes)
        check_choice("vote", vote, _VOTES)
        self.num_neurons, self.num_classes, self.vote = num_neurons, num_classes, vote
        self._votes: tuple[Tensor, Tensor | None] | None = None
        self.add_sum("rate_sums", torch.zeros(num_classes, num_neurons))
        self.add_sum("samples", torch.zeros(num_classes, dtype=torch.long))

    @property
    def assignments(self) -> Tensor:
        """The class of each neuron, ``[N]``; −1 for a neuron that never fired."""
        # torchmetrics removes the dimension of a result with one element.
        assigned: Tensor = self.compute()
        return assigned.reshape(self.num_neurons)

    def update(self, rates: Tensor, labels: Tensor) -> None:
        """Adds labelled samples.

        Args:
            rates: rates or spike counts of shape ``[B, N]``, non-negative and finite, any dtype.
            labels: classes of shape ``[B]``, integers from 0 to ``num_classes - 1``.

        Values are checked only on the CPU: on an accelerator the check would wait for the device.
        Indexing with a wrong label fails there.

        Raises:
            TypeError: if the labels are not integers.
            ValueError: if a shape is wrong, a label out of range, or a rate negative, NaN or
                infinite.
        """
        self._check_rates(rates)
        check_whole(labels=labels)
        should = f"shape [{len(rates)}], one label for each row of `rates`"
        check_shape(labels.shape == rates.shape[:1], "labels", labels, should)
        check_below("labels", labels, self.num_classes)
        sums, samples = readout.class_rate_sums(rates, labels, self.num_classes)
        # Not in place: a state that was made in inference mode cannot be changed in place.
        self.rate_sums = self.rate_sums + sums
        self.samples = self.samples + samples

    def compute(self) -> Tensor:
        """Returns the class of each neuron, ``[N]``; −1 for a neuron that never fired."""
        mean_rates = self.rate_sums / self.samples.clamp(min=1).unsqueeze(1)
        # Computed here, because during `compute` the states are those of all processes.
        if self.vote == "bayes":
            self._votes = readout.bayes_votes(self.rate_sums, self.samples)
        else:
            shares = self.vote == "proportional"
            votes = readout.proportional_votes if shares else readout.assigned_votes
            self._votes = votes(mean_rates), None
        return readout.assign_classes(mean_rates)

    def predict(self, rates: Tensor) -> Tensor:
        """Classifies samples.

        The first call after an update combines the states of all processes, so that every process
        has to call it; later calls do not.

        Args:
            rates: rates or spike counts of shape ``[B, N]``, as for :meth:`update`.

        Returns:
            Classes of shape ``[B]``; the lowest class wins a tie, as for a silent sample if votes
            are not Bayes'. A class without neurons never wins, for Bayes' votes one for which no
            neuron has fired; −1 if no neuron has fired for any class.

        Raises:
            ValueError: if the shape is wrong, or a rate negative, NaN or infinite.
        """
        self._check_rates(rates)
        self.compute()
        assert self._votes is not None
        votes, offsets = self._votes
        offsets = None if offsets is None else offsets.to(rates.device)
        return readout.predict_class(rates, votes.to(rates.device), offsets)

    def plot(self, val: Tensor | None = None, ax: Any = None) -> Any:
        """Draws the number of neurons of each class as bars; the last bar is for no class."""
        assigned = (self.assignments if val is None else val.reshape(-1)).cpu()
        ax = pyplot("MaxRateClassifier.plot").subplots()[1] if ax is None else ax
        names = [*range(self.num_classes), "none"]
        sizes = torch.bincount(assigned % (self.num_classes + 1), minlength=len(names))
        ax.bar([str(name) for name in names], sizes.tolist())
        ax.set(xlabel="class", ylabel="neurons")
        return ax.figure, ax

    def _check_rates(self, rates: Tensor) -> None:
        check_tensors(rates=rates)
        fits = rates.ndim == 2 and rates.shape[1] == self.num_neurons
        should, mend = f"shape [B, {self.num_neurons}]", "sum or average spikes over time"
        check_shape(fits, "rates", rates, should, mend)
        if rates.is_floating_point():
            should = "be finite and not negative, as rates and spike counts are"
            how = ": sum or average spikes over time, and look for NaN in what the neurons get"
            check_range("rates", rates, sys.float_info.max, should, how)
