"""Turns rewards, a policy and its critic into an error, for rules that learn from one."""

import warnings
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from lightning_accum import _checks as checks
from lightning_accum.functional.dtypes import at_least_float32
from lightning_accum.functional.traces import reverse_trace


@final
@dataclass(frozen=True)
class ActorCriticError:
    r"""The error of a policy and of its critic, by the reward prediction error.

    .. math::
        \delta(t) &= r(t) + \gamma\, V(t + 1) - V(t), \qquad
        A(t) = \delta(t) + \gamma \lambda\, A(t + 1) \\
        \frac{\partial E}{\partial y_k(t)} &= A(t) \left(\pi_k(t) - 1_{a(t) = k}\right), \qquad
        \frac{\partial E}{\partial V(t)} = -c_V\, A(t)

    with the policy :math:`\pi = \operatorname{softmax}(y)`, the action :math:`a`, and the value
    :math:`V`, an output of the network like those of the policy.

    With :math:`\lambda = 1` it makes the change of the paper, in which :math:`\delta(t)` multiplies
    a trace of each synapse that decays by :math:`\gamma`: the sum is taken the other way round.

    Call it as ``error_of(outputs, actions, reward, following=None)`` with the outputs of the policy
    and the value last, ``[T, B, actions + 1]``; the index of the action of each step, ``[T, B]``,
    or -1 for none, from which only the critic learns; and the others as for :meth:`advantage`. Give
    the error to the rules of hidden neurons and readout, whose feedback has weights for the value.

    Args:
        gamma: discount :math:`\gamma` of the reward in one step.
        value_rate: rate :math:`c_V` of the critic, relative to that of the policy.
        decay: :math:`\lambda`, by how much less an output learns from a later :math:`\delta`; 0
            for the :math:`\delta` of the same step only.

    Raises:
        ValueError: if ``gamma`` or ``decay`` is not between 0 and 1.

    Example:
        >>> import torch
        >>> error_of = ActorCriticError(gamma=0.5, value_rate=1.0)
        >>> outputs = torch.zeros(2, 1, 3)  # two actions and the value, in two steps of one sample
        >>> error_of(outputs, torch.tensor([[0], [-1]]), torch.tensor([[0.0], [1.0]]))[:, 0]
        tensor([[-0.2500,  0.2500, -0.5000],
                [-0.0000,  0.0000, -1.0000]])

    Source:
        Bellec et al. 2020, doi:10.1038/s41467-020-17236-y, reward-based e-prop; with
        :math:`\lambda`: Schulman et al. 2016, arXiv:1506.02438.
    """

    gamma: float = 0.99
    value_rate: float = 0.5
    decay: float = 1.0

    def __post_init__(self) -> None:
        checks.check_finite(**vars(self))
        for name, value in (("gamma", self.gamma), ("decay", self.decay)):
            checks.check_value(0 <= value <= 1, name, value, "from 0 to 1")

    def advantage(self, value: Tensor, reward: Tensor, following: Tensor | None = None) -> Tensor:
        r"""Returns :math:`A`, ``[T, B]``: how much more reward comes than the critic predicted.

        Args:
            value: ``[T, B]`` the critic's prediction :math:`V`.
            reward: ``[T, B]`` the reward :math:`r` that follows each step.
            following: ``[B]`` the prediction after the last step; zero when ``None``, as after an
                episode's end.

        Raises:
            ValueError: if the shapes differ.
        """
        checks.check_floats(value=value)
        checks.check_tensors(reward=reward)
        if value.ndim != 2 or reward.shape != value.shape:
            raise ValueError(
                "Arguments `value` and `reward` should have one shape [T, B]. Found"
                f" {list(value.shape)} and {list(reward.shape)}."
            )
        value = value.detach().to(at_least_float32(value.dtype))
        last = value.new_zeros(value.shape[1]) if following is None else following.detach()
        fits, should = last.shape == value.shape[1:], f"shape [B], [{value.shape[1]}]"
        checks.check_shape(fits, "following", last, should)
        after = torch.cat([value[1:], last.to(value).unsqueeze(0)])
        delta = reward.to(value) + self.gamma * after - value
        return reverse_trace(delta, self.gamma * self.decay)

    def __call__(
        self, outputs: Tensor, actions: Tensor, reward: Tensor, following: Tensor | None = None
    ) -> Tensor:
        """Returns the error, the gradient of each sample's loss by the outputs."""
        checks.check_floats(outputs=outputs)
        checks.check_whole(actions=actions)
        if outputs.ndim != 3 or outputs.shape[-1] < 2 or actions.shape != outputs.shape[:2]:
            raise ValueError(
                "Arguments `outputs` and `actions` should have shapes [T, B, actions + 1] and"
                f" [T, B]. Found {list(outputs.shape)} and {list(actions.shape)}."
            )
        choices = outputs.shape[-1] - 1
        if actions.is_cpu and actions.numel():  # elsewhere, looking would wait for the device
            least, most = map(int, actions.aminmax())
            should = f"from 0 to {choices - 1}, or -1 in steps without an action"
            how = "give the index of an output of the policy, which are all but the last, the value"
            for each in (least, most):
                checks.check_value(-1 <= each < choices, "actions", each, should, how)
            if most < 0 and following is None:
                warnings.warn(
                    "Argument `actions` should have an action in some step for the policy to learn"
                    " from. Found -1, no action, in all steps of episodes that end there, so that"
                    " only the critic learns: give the index of the action that was chosen, or, if"
                    " the episodes go on, `following=`, the value after the last step.",
                    UserWarning,
                    stacklevel=2,
                )
        advantage = self.advantage(outputs[..., -1], reward, following).unsqueeze(-1)
        policy = outputs.detach()[..., :-1].to(advantage.dtype).softmax(-1)
        actions = actions.long().unsqueeze(-1)
        taken = torch.zeros_like(policy).scatter_(-1, actions.clamp(min=0), 1.0)
        actor = (actions >= 0) * advantage * (policy - taken)
        return torch.cat([actor, -self.value_rate * advantage], dim=-1)
