"""An agent learns to balance a pole, with spiking neurons and local rules only.

Place cells, each of which prefers a state, spike by chance. Of the motor neurons one spikes in each
ms, the likelier the higher its potential, and the one with most spikes in 10 ms decides. A neuron
for the value predicts the rewards to come. What comes better than predicted, the TD error, is the
reward of every synapse, times its eligibility: the trace of presynaptic spikes, times the spikes of
a motor neuron less those that were likely, which makes their sum the gradient of the reward.
Nothing is propagated back through time or layers.

The controls: a rate of 0, a policy by chance, and with ``--controls``, which takes as long again,
agents that play their own games, but get the TD errors of one that has learned, in a random order.
The simple method draws linear policies at random, plays for as many decisions in all, and keeps the
best.

    python examples/cartpole.py [--seeds 5] [--controls 5] [--acrobot 1] [--short]
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable

import gymnasium
import lightning.pytorch as pl
import torch
from _experiment import arguments, report, save, spread
from _quiet import SILENT, quiet
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lightning_accum import CellSpec, CellTrainerCallback, Rule, Term
from lightning_accum.nn import Linear
from lightning_accum.rules import reward_modulated

STEPS, DECISIONS, GAMES = 10, 16, 8  # ms of a decision, decisions of a batch, games side by side
SPIKES, TC, GAMMA, LAMBDA = 50.0, 8.0, 0.99, 0.9  # spikes of a decision, ms, discount, eligibility
# Of each task: the first and last centre of place cells and their number, for each variable of the
# state; the reward of a decision, and of the last one of a game.
TASKS = {
    "CartPole-v1": ([(-2.4, 2.4, 3), (-2, 2, 3), (-0.21, 0.21, 7), (-2, 2, 5)], 0.0, -1.0),
    "Acrobot-v1": ([(-1, 1, 3)] * 4 + [(-6, 6, 4), (-12, 12, 4)], -0.01, 0.0),
}


class Neurons(nn.Module):
    """Leaky potentials, which pass from call to call; if neurons compete, one spikes in each ms."""

    def __init__(self, compete: bool) -> None:
        super().__init__()
        self.compete, self.potential, self.surprise = compete, torch.zeros(()), torch.zeros(())

    def forward(self, currents: Tensor) -> Tensor:
        """Spikes, or potentials, ``[T, B, N]``."""
        found = []
        for current in currents:
            self.potential = math.exp(-1 / TC) * self.potential + current
            found.append(self.potential)
        potentials, self.surprise = torch.stack(found), torch.ones_like(currents)
        if not self.compete:
            return potentials
        likely = potentials.softmax(-1)
        winner = torch.multinomial(likely.flatten(0, 1), 1).view(*likely.shape[:2], 1)
        spikes = torch.zeros_like(likely).scatter_(-1, winner, 1.0)
        self.surprise = spikes - likely
        return spikes


class Surprise(Rule):
    """The reward, times the eligibility of surprising spikes."""

    spikes = False  # the value is none
    lr: float
    tc_eligibility: float = -STEPS / math.log(GAMMA * LAMBDA)

    def states(self):
        return {"surprise": "surprise"}

    def terms(self, window):
        products = [Term(self.lr, window.state("surprise"), window.pre.trace(TC))]
        return reward_modulated(window, products, tc=self.tc_eligibility)


class Agent(pl.LightningModule):
    """Place cells → motor neurons and a value; plays, and learns from what follows."""

    def __init__(self, task: str, seed: int, given: list[Tensor] | None = None) -> None:
        super().__init__()
        self.automatic_optimization = False
        grid, self.step_reward, self.end_reward = TASKS[task]
        self.centres = [torch.linspace(*each) for each in grid]
        self.task, self.given, self.errors = task, given, list[Tensor]()
        self.games = play(task, GAMES)
        cells, actions = math.prod(map(len, self.centres)), self.games.single_action_space.n
        self.motor, self.value = (Linear(cells, int(n), bias=False) for n in (actions, 1))
        for connection in (self.motor, self.value):
            nn.init.zeros_(connection.requires_grad_(False).weight)
        self.motor_neurons, self.value_neuron = Neurons(True), Neurons(False)
        self.seen, _ = self.games.reset(seed=seed)
        self.reward, self.predicted, self.length = torch.zeros(3, GAMES)
        self.end, self.over, self.begun = torch.zeros(3, GAMES, dtype=torch.bool)
        self.lengths = list[float]()

    def place_cells(self, states: Tensor) -> Tensor:
        """Each cell's share of the spikes, ``[B, cells]``, in states ``[B, variables]``."""
        share = torch.ones(len(states), 1)
        for value, centres in zip(states.unbind(1), self.centres, strict=True):
            apart = (value.unsqueeze(1) - centres) / (centres[1] - centres[0])
            share = (share.unsqueeze(2) * (-2 * apart.square()).softmax(1).unsqueeze(1)).flatten(1)
        return share

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """The decision in each state, and its value."""
        likely = self.place_cells(states) * SPIKES / STEPS
        spikes = torch.rand(STEPS, *likely.shape) < likely
        counts = self.motor_neurons(self.motor(spikes)).sum(0)
        action = (counts + 0.5 * torch.rand_like(counts)).argmax(1)  # ties by chance
        return action, self.value_neuron(self.value(spikes))[-1, :, 0]

    def training_step(self, batch: int, batch_idx: int) -> dict[str, Tensor]:
        errors = torch.zeros(DECISIONS, STEPS, GAMES)
        for i in range(DECISIONS):
            action, predicted = self(torch.as_tensor(self.seen))
            # of the last decision, known now; a game that is over begins anew, whatever is decided
            error = self.reward + torch.where(self.end, 0.0, GAMMA * predicted) - self.predicted
            errors[i, 0] = torch.where(self.begun, 0.0, error)
            self.begun, self.predicted = self.over, predicted
            self.seen, _, end, late, _ = self.games.step(action.numpy())
            self.end, self.over = torch.as_tensor(end), torch.as_tensor(end | late)
            self.reward = torch.where(self.end, self.end_reward, self.step_reward)
            self.length += ~self.begun
            self.lengths += self.length[self.over].tolist()
            self.length[self.over] = 0.0
        self.errors.append(errors.flatten(0, 1))
        return {"reward": (self.given or self.errors)[batch_idx]}

    def configure_optimizers(self):
        return None


def play(task: str, games: int) -> gymnasium.vector.VectorEnv:
    """Games side by side."""
    kind = "vector_entry_point" if task == "CartPole-v1" else "sync"
    return gymnasium.make_vec(task, num_envs=games, vectorization_mode=kind)


def learn(task: str, seed: int, batches: int, given: list[Tensor] | None = None) -> Agent:
    """An agent that has learned, from its own errors or from those that are given."""
    pl.seed_everything(seed, verbose=False)
    agent = Agent(task, seed, given)
    value = CellSpec("value", "value_neuron", overrides={"lr": 0.007})
    cells = {"motor": CellSpec("motor", "motor_neurons"), "value": value}
    options = {"time_dim": 0, "carry": True, "input_keys": ["reward"], "summary": False}
    learner = CellTrainerCallback(Surprise(0.9), cells, **options)
    trainer = pl.Trainer(max_epochs=1, callbacks=[learner], accelerator="cpu", **SILENT)
    trainer.fit(agent, DataLoader(range(batches), batch_size=None))
    return agent


def shuffled(errors: list[Tensor]) -> list[Tensor]:
    """The errors of all decisions, in a random order."""
    every = torch.stack(errors).view(-1, STEPS, GAMES)
    return [*every[torch.randperm(len(every))].view(len(errors), -1, GAMES)]


def mean_return(task: str, decide: Callable[[Tensor], Tensor], games: int = 100) -> float:
    """The mean return of games by decisions in each state; nothing learns."""
    arena, total = play(task, games), 0
    seen, _ = arena.reset(seed=1000)
    running = torch.ones(games, dtype=torch.bool)
    while running.any():
        seen, _, end, late, _ = arena.step(decide(torch.as_tensor(seen)).numpy())
        total += int(running.sum())
        running &= ~torch.as_tensor(end | late)
    return total / games * (1 if TASKS[task][2] else -1)


def policy_of(agent: Agent) -> Callable[[Tensor], Tensor]:
    """The decisions of an agent whose weights stay as they are."""
    agent.motor_neurons.potential = agent.value_neuron.potential = torch.zeros(())
    return lambda states: agent(states)[0]


def linear(weight: Tensor) -> Callable[[Tensor], Tensor]:
    """A linear policy, of ``[actions, variables]``."""
    return lambda states: (states @ weight.T).argmax(1)


def best_at_random(task: str, seed: int, decisions: int) -> Tensor:
    """The best of linear policies that are drawn until their games took so many decisions."""
    games, reached = play(task, 1), dict[float, Tensor]()
    torch.manual_seed(seed)
    while decisions > 0:
        weight = torch.randn(
            int(games.single_action_space.n), *games.single_observation_space.shape
        )
        found = mean_return(task, linear(weight), GAMES)
        decisions -= int(GAMES * abs(found))
        reached[found] = weight
    return reached[max(reached)]


def draw(agents: list[Agent], others: list[Agent], chance: float, path: str) -> None:
    """Draws the lengths of games over decisions, and how long they are at a rate of 0."""
    axes = Figure(figsize=(6, 3), layout="constrained").subplots()
    kinds = {"errors at random times": (others, "0.7"), "learned": (agents, "tab:blue")}
    for name, (each, colour) in kinds.items():
        for i, agent in enumerate(each):
            lengths = torch.tensor(agent.lengths).unfold(0, 10, 1).mean(1)
            decisions = torch.tensor(agent.lengths).cumsum(0)[9:]
            axes.plot(decisions, lengths, color=colour, lw=0.8, label=None if i else name)
    axes.axhline(chance, color="k", lw=1, ls=":", label="rate 0, a policy by chance")
    axes.set(xlabel="decisions", ylabel="length of the last ten games")
    axes.legend(frameon=False, fontsize=8)
    save(axes.figure, path, 120)


def main() -> None:
    args = arguments(
        __doc__, __file__, short="one seed, 2,560 decisions", seeds=5, acrobot=0, controls=0
    )
    quiet()
    torch.set_num_threads(1)
    task = list(TASKS)[args.acrobot]
    batches = ((20, 70) if args.short else (625, 1250))[args.acrobot]
    decisions, seeds = batches * DECISIONS * GAMES, range(args.seeds)
    start = time.process_time()
    agents = [learn(task, seed, batches) for seed in seeds]
    speed = args.seeds * decisions / (time.process_time() - start)
    given = [shuffled(agent.errors) for agent in agents[: args.controls]]
    others = [learn(task, 100 + i, batches, errors) for i, errors in enumerate(given)]
    actions = int(agents[0].games.single_action_space.n)
    policies = {
        "result": [policy_of(agent) for agent in agents],
        "rate 0": [policy_of(Agent(task, seed)) for seed in seeds],
        "a policy by chance": [lambda states: torch.randint(actions, (len(states),))] * len(seeds),
        "errors at random times": [policy_of(agent) for agent in others],
        "linear, best at random": [linear(best_at_random(task, i, decisions)) for i in seeds],
    }
    returns = {name: [mean_return(task, p) for p in each] for name, each in policies.items()}
    result, *controls, simple = {name: spread(x, "") for name, x in returns.items() if x}.items()
    print(f"mean return of 100 games after {decisions:,} decisions:")
    report(result[1], speed, dict(controls), dict([simple]))
    draw(agents, others, abs(statistics.mean(returns["rate 0"])), args.picture)


if __name__ == "__main__":
    main()
