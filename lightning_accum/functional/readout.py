"""Classification by the firing rates of neurons that were trained without labels.

Rates or spike counts are ``[B, N]`` for a batch and ``N`` neurons; votes and mean rates, which are
not negative, ``[C, N]`` for ``C`` classes. Votes for a class sum to one, or to zero if it has none;
then it does not win. The lowest class wins a tie. A neuron that never fired, and a sample for which
no class can win, have class -1.
"""

import torch
from torch import Tensor


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
    r"""Returns votes and offsets of :math:`\log p(r \mid c) = \sum_n V_{cn} r_n + o_c + \ldots`.

    They are :math:`V_{cn} = \log(\lambda_{cn} / \bar r_n)` and :math:`o_c = -\sum_n \lambda_{cn}`,
    for the rates of :class:`~lightning_accum.metrics.MaxRateClassifier` with ``vote="bayes"``.
    """
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
