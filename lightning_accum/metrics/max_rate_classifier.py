"""Classification by the class to which each neuron responds most: its equations, and the metric."""

import math
from typing import Any, Literal

import torch
from torch import Tensor

from lightning_accum import _checks as checks
from lightning_accum.metrics.update_statistics import AdditiveMetric
from lightning_accum.plot import pyplot

# Rates are [B, N], votes and mean rates [C, N], for B samples, N neurons and C classes. The votes
# for a class sum to one, or to zero if it has none; then it does not win. No class is -1.


def class_rate_sums(rates: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    r"""Sums each neuron's rates by class, :math:`R_{cn} = \sum_{b:\,y_b = c} r_{bn}`."""
    # Not a product with one-hot labels, because matrix products may be set to round their factors.
    index = labels.long()
    sums = torch.zeros(num_classes, rates.shape[1], device=rates.device)
    sums.index_add_(0, index, rates.detach().to(sums.dtype))
    counts = torch.zeros(num_classes, dtype=torch.long, device=rates.device)
    return sums, counts.index_add_(0, index, torch.ones_like(index))


def assign_classes(mean_rates: Tensor) -> Tensor:
    r"""Assigns each neuron to its most active class, :math:`a_n = \arg\max_c \bar r_{cn}`."""
    peak, winner = mean_rates.max(dim=0)
    return torch.where(peak > 0, winner, -1)


def assigned_votes(mean_rates: Tensor) -> Tensor:
    r"""Returns each neuron's vote for its class, :math:`V_{cn} = [a_n = c] / |\{m : a_m = c\}|`."""
    classes = torch.arange(mean_rates.shape[0], device=mean_rates.device)
    share = assign_classes(mean_rates) == classes.unsqueeze(1)
    return _averaging(share.to(mean_rates.dtype))


def proportional_votes(mean_rates: Tensor) -> Tensor:
    r"""Returns votes by each neuron's shares, :math:`p_{cn} = \bar r_{cn} / \sum_k \bar r_{kn}`."""
    # V_cn = p_cn / Σ_m p_cm: many neurons with a low rate for a class give it no advantage.
    total = mean_rates.sum(dim=0)
    return _averaging(mean_rates / total.where(total > 0, 1.0))


def bayes_votes(rate_sums: Tensor, samples: Tensor) -> tuple[Tensor, Tensor]:
    r"""Returns votes and offsets of :math:`\log p(r \mid c) = \sum_n V_{cn} r_n + o_c + \ldots`."""
    # V_cn = log(λ_cn / r_n), o_c = -Σ_n λ_cn, for the rates λ of `vote="bayes"`, and r their mean.
    count = samples.to(rate_sums.dtype).unsqueeze(1)
    seen = rate_sums.any(dim=1)
    mean_rates = rate_sums / count.clamp(min=1)
    average = mean_rates.sum(dim=0) / seen.sum().clamp(min=1)
    rate = (rate_sums + average) / (count + 1)
    votes = torch.where(average > 0, (rate / average).log(), 0.0)
    return votes, torch.where(seen, -rate.sum(dim=1), -torch.inf)


def predict_class(rates: Tensor, votes: Tensor, offsets: Tensor | None = None) -> Tensor:
    r"""Returns the class with the most votes, :math:`\arg\max_c \, o_c + \sum_n V_{cn} r_{bn}`."""
    if offsets is None:
        offsets = torch.where(votes.any(dim=1), 0.0, -torch.inf)
    scores = rates.to(votes.dtype) @ votes.T + offsets
    return torch.where((offsets > -torch.inf).any(), scores.argmax(dim=1), -1)


def _averaging(share: Tensor) -> Tensor:
    """Scales the votes for each class to a sum of one, or of zero if it has none."""
    mass = share.sum(dim=1, keepdim=True)
    return share / mass.where(mass > 0, 1.0)


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
        checks.check_integers(num_neurons=num_neurons, num_classes=num_classes)
        checks.check_value(num_neurons > 0, "num_neurons", num_neurons, "a positive integer")
        checks.check_value(num_classes > 0, "num_classes", num_classes, "a positive integer")
        checks.check_choice("vote", vote, _VOTES)
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
        checks.check_whole(labels=labels)
        should = f"shape [{len(rates)}], one label for each row of `rates`"
        checks.check_shape(labels.shape == rates.shape[:1], "labels", labels, should)
        checks.check_below("labels", labels, self.num_classes)
        sums, samples = class_rate_sums(rates, labels, self.num_classes)
        # Not in place: a state that was made in inference mode cannot be changed in place.
        self.rate_sums = self.rate_sums + sums
        self.samples = self.samples + samples

    def compute(self) -> Tensor:
        """Returns the class of each neuron, ``[N]``; −1 for a neuron that never fired."""
        mean_rates = self.rate_sums / self.samples.clamp(min=1).unsqueeze(1)
        # Computed here, because during `compute` the states are those of all processes.
        if self.vote == "bayes":
            self._votes = bayes_votes(self.rate_sums, self.samples)
        else:
            shares = self.vote == "proportional"
            votes = proportional_votes if shares else assigned_votes
            self._votes = votes(mean_rates), None
        return assign_classes(mean_rates)

    def predict(self, rates: Tensor) -> Tensor:
        """Classifies samples.

        The first call after an update combines the states of all processes, so that every process
        has to call it; later calls do not.

        Args:
            rates: as for :meth:`update`.

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
        return predict_class(rates, votes.to(rates.device), offsets)

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
        checks.check_tensors(rates=rates)
        fits = rates.ndim == 2 and rates.shape[1] == self.num_neurons
        should, mend = f"shape [B, {self.num_neurons}]", "sum or average spikes over time"
        checks.check_shape(fits, "rates", rates, should, mend)
        if rates.is_cpu and rates.is_floating_point() and rates.numel():
            low, high = (float(value) for value in rates.detach().aminmax())
            if not (low >= 0 and high < math.inf):  # which NaN is not either
                raise ValueError(
                    "Argument `rates` should be finite and not negative, as rates and spike counts"
                    f" are. Found values from {low:g} to {high:g}: pass spikes that are summed or"
                    " averaged over time, and look for NaN in what the neurons get."
                )
