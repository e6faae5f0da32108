"""One, two and four processes that divide a network have its spikes and weights to the bit."""

import copy
import itertools
import warnings

import pytest
import torch
import torch.distributed as dist
from round_trips import differences
from run_ranks import share
from subtests import turns
from torch import nn

import lightning_accum as la
import lightning_accum.nn.sparse_linear as sparse_linear
from lightning_accum.cells.network_checkpoints import load_shares, save_share
from lightning_accum.distributed.world import own_neurons
from lightning_accum.metrics import UpdateStatistics
from lightning_accum.nn import LIF, AdaptiveLIF, Linear, Rewire, SparseLinear, WinnerTakeAll
from lightning_accum.rules import learn_online, why_step_by_step

RANKS = 1, 2, 4
SIZES = {"E": 21, "I": 6}
ENDS = [*itertools.product(SIZES, repeat=2)]
STEPS, DTYPES = 150, {"float32": torch.float32, "float64": torch.float64}


def parts(density=0.4, **changes):
    """The neurons and the connections of a process."""
    own = {name: own_neurons(size) for name, size in SIZES.items()}
    neurons = {
        name: AdaptiveLIF(len(each), 8.0, theta_plus=0.01, refractory=2.0)
        for name, each in own.items()
    }
    connections = {
        (s, t): SparseLinear(
            SIZES[s], SIZES[t], density, bias=False, seed=changes.get("seed", 3) + i, targets=own[t]
        )
        for i, (s, t) in enumerate(ENDS)
    }
    return neurons, connections


def make(dtype, **changes):
    """A network whose excitatory synapses learn."""
    neurons, connections = parts(**changes)
    delays = {(s, t): 3 if s == t else 2 for s, t in ENDS}
    delays["I", "I"] = 1 + (4 * connections["I", "I"].draw(seed=6)).floor()
    made = la.Populations(neurons, connections, delays, split=True)
    made.to(dtype).requires_grad_(False)
    for name, each in made.connections.items():
        each.weight.copy_((0.1 + 0.15 * each.draw(seed=9)) * (1 if name[0] == "E" else -1))
    trainer = la.RuleTrainer(la.STDP(0.02, -0.02, tc_post=9.0, tc_pre=9.0))
    for target in SIZES:
        cell = made.cell("E", target)
        trainer.register_cell(target, cell).cell.updater.register_constraint(la.Clamp(0.08, 0.25))
    return made, trainer


def drive(made, seed, steps=STEPS):
    """Input of the own neurons; every process draws all."""
    generator = torch.Generator().manual_seed(seed)
    every = torch.rand(steps, 1, sum(SIZES.values()), generator=generator, dtype=torch.float64)
    return (0.35 * every)[:, :, made.columns].to(next(made.parameters()).dtype)


def of_network(made, trainer, spikes):
    """What a process has at the end, by neuron and by synapse."""
    found = {"spikes": spikes[:, 0].bool(), "columns": made.columns}
    found["gathered"] = made.gather(spikes)[:, 0].bool()
    for name, each in made.connections.items():
        found[name] = {"keys": keys_of(each), "weight": each.weight.detach().clone()}
    for name, neuron in made.neurons.items():
        found[name] = {"theta": neuron.theta, "voltage": neuron.voltage}
    carried = trainer.state_of("E").carried
    found["traces"] = {key.kind: value for key, value in carried.items()}
    return found


def keys_of(connection):
    outputs, inputs = connection.indices.long()
    return inputs * connection.total + outputs + connection.first


def whole(shares):
    """What the processes have together."""
    order = torch.cat([each["columns"] for each in shares]).argsort()
    found = {"spikes": torch.cat([each["spikes"] for each in shares], 1)[:, order]}
    assert all(torch.equal(each["gathered"], found["spikes"]) for each in shares)
    for name in (name for name in shares[0] if "_to_" in name):
        keys, weight = (
            torch.cat([each[name][key] for each in shares]) for key in ("keys", "weight")
        )
        found[name] = keys.sort()[0], weight[keys.argsort()]
    for name in SIZES:
        for key in ("theta", "voltage"):
            found[f"{name} {key}"] = torch.cat([each[name][key] for each in shares], -1)
    found["post"] = torch.cat([each["traces"]["post cumulative trace"] for each in shares], 1)
    found["pre"] = shares[0]["traces"]["pre cumulative trace"]
    assert all(torch.equal(each["traces"]["pre cumulative trace"], found["pre"]) for each in shares)
    return found


def run(dtype):
    """Two sequences in the loop."""
    made, trainer = make(dtype)
    made.exchange.room = 1  # spikes, more of which take longer rows
    reason = why_step_by_step(trainer, made, drive(made, 0))
    spikes = [learn_online(trainer, made, drive(made, seed)) for seed in range(2)]
    return {"why": reason or "", **of_network(made, trainer, torch.cat(spikes))}


def step_by_step():
    """The plain form: a call of the network and of the rule in each step."""
    made, trainer = make(torch.float64)
    spikes = learn_online(trainer, made, drive(made, 0, 60), update_every=2)
    return of_network(made, trainer, spikes)


def rewired():
    """Synapses after pruning and after Deep R, and statistics of what has changed."""
    made, trainer = make(torch.float64)
    pruned, deep = made.cell("E", "E").connection, made.cell("I", "E").connection
    of_share, of_sign = Rewire(share=0.3, start=0.2, seed=4), Rewire(sign=None, noise=0.3, seed=6)
    deep.weight.abs_().mul_(of_sign.signs(deep))
    learn_online(trainer, made, drive(made, 0))
    counts = [[of_share(pruned), of_sign(deep)] for _ in range(2)]
    before, statistics = pruned.weight.detach().clone(), UpdateStatistics(split=True)
    learn_online(trainer, made, drive(made, 1))
    both = dict(zip(("pos", "neg"), (before / 2, before / 3), strict=True))
    statistics.update(before, pruned.weight.detach(), **both, lower=0.08, upper=0.25)
    return {
        "counts": torch.tensor(counts).sum(0), "statistics": statistics.compute(),
        **{name: {"keys": keys_of(each), "weight": each.weight.detach().clone(),
                  "each": torch.bincount(each.outputs, minlength=each.out_features)}
           for name, each in (("pruned", pruned), ("deep", deep))},
    }  # fmt: skip


def resumed(folder, ranks):
    """What each number of processes ends with that goes on from what others saved."""
    found = {}
    for dtype in DTYPES:
        made, trainer = make(DTYPES[dtype])
        spikes = learn_online(trainer, made, drive(made, 0))
        Rewire(share=0.2, start=0.2)(made.cell("E", "E").connection)
        save_share(nn.ModuleList([made, trainer]), folder / f"{dtype} of {ranks}")
        spikes = learn_online(trainer, made, drive(made, 1))
        found[dtype] = {0: of_network(made, trainer, spikes)}
        for saved in (n for n in RANKS if (folder / f"{dtype} of {n}").exists()):
            made, trainer = make(DTYPES[dtype])
            load_shares(nn.ModuleList([made, trainer]), folder / f"{dtype} of {saved}")
            spikes = learn_online(trainer, made, drive(made, 1))
            found[dtype][saved] = of_network(made, trainer, spikes)
    return found


def raised(make_it):
    try:
        make_it()
    except (ValueError, RuntimeError) as error:
        return str(error)
    return ""


def errors(rank, ranks):
    """What is raised by what cannot be split, and by processes that differ."""
    neurons, connections = parts()
    EE = ("E", "E")

    def with_(**given):
        return lambda: la.Populations(neurons, {**connections, **given.pop("c", {})}, **given)

    dense = {EE: Linear(SIZES["E"], len(own_neurons(SIZES["E"])), bias=False)}
    losers = {**neurons, "I": LIF(len(own_neurons(6)), inhibition=WinnerTakeAll(0))}
    turned = dict([*neurons.items()][:: 1 - 2 * rank])  # in the other order in process 1
    made, trainer = make(torch.float64)
    return {
        "dense": raised(with_(c=dense, split=True)),
        "winners": raised(lambda: la.Populations(losers, connections, split=True)),
        "delays": raised(with_(delay=1 + rank, split=True)),
        "seeds": raised(lambda: make(torch.float64, seed=rank)),
        "order": raised(lambda: la.Populations(turned, connections, split=True)),
        "unsplit": raised(with_()),
        "steps": raised(lambda: learn_online(trainer, made, drive(made, 0, 5 + rank))),
        "few": raised(lambda: own_neurons(ranks - 1)),
    }


def one_cannot(rank):
    """If one process cannot run the loop, all go step by step."""
    made, trainer = make(torch.float64)
    if rank == 1:
        made.cell("E", "E").connection.weight[0] = 7.0  # outside of its limits
    return {"spikes": learn_online(trainer, made, drive(made, 0, 20))}


def main(rank, ranks, folder):
    warnings.simplefilter("error", la.LocalLearningWarning)  # a share is nothing to warn of
    if ranks > 1:
        place = (folder / f"of {ranks}").as_uri()
        dist.init_process_group("gloo", init_method=place, rank=rank, world_size=ranks)
    found = {name: run(dtype) for name, dtype in DTYPES.items()}
    found |= {"step by step": step_by_step(), "rewired": rewired()}
    found["resumed"] = resumed(folder, ranks)
    if ranks == 2:
        found |= {"errors": errors(rank, ranks), "one cannot": one_cannot(rank)}
    return found


@pytest.mark.parametrize("dtype", DTYPES)
def test_processes_have_the_spikes_and_weights_of_one(found, dtype):
    alone, *others = (whole([each[dtype] for each in shares]) for shares in found.values())
    assert not found[1][0][dtype]["why"]
    assert all(not differences(alone, other) for other in others)
    weights = alone["E_to_E"][1]
    assert alone["spikes"].double().mean() > 0.01
    assert ((weights > 0.081) & (weights < 0.249)).any()
    assert weights.max() > 0.2499


def test_steps_by_themselves_are_those_of_one_process(found):
    alone, *others = (whole([each["step by step"] for each in all_]) for all_ in found.values())
    for other in others:
        torch.testing.assert_close(other, alone, rtol=1e-12, atol=1e-14)


def test_no_process_has_the_synapses_of_others(found):
    for name in ("E_to_E", "I_to_E"):
        counts = [[len(each["float64"][name]["keys"]) for each in all_] for all_ in found.values()]
        assert len({sum(each) for each in counts}) == 1
        assert max(counts[2]) <= -(-SIZES["E"] // 4) * counts[0][0] / SIZES["E"]


@pytest.mark.parametrize("name", ["pruned", "deep"])
def test_synapses_are_replaced_by_target_in_any_number_of_processes(found, name):
    every = []
    for shares in found.values():
        each = [share["rewired"][name] for share in shares]
        keys, weight = (torch.cat([one[key] for one in each]) for key in ("keys", "weight"))
        every.append((keys.sort()[0], weight[keys.argsort()], torch.cat([o["each"] for o in each])))
    assert not any(differences(every[0], other) for other in every[1:])
    counts = [sum(each["rewired"]["counts"] for each in all_) for all_ in found.values()]
    assert len({tuple(each.tolist()) for each in counts}) == 1
    assert min(counts[0]) >= 20
    outputs, inputs = every[0][0] % SIZES["E"], every[0][0] // SIZES["E"]
    assert len(every[0][0].unique()) == len(outputs)
    assert inputs.max() < SIZES["E" if name == "pruned" else "I"]
    assert every[0][2].unique().numel() == 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_any_number_of_processes_goes_on_to_the_bit(found, folder, dtype):
    expected = whole([each["resumed"][dtype][0] for each in found[1]])
    kinds = set()
    for ranks, shares in found.items():
        for saved in shares[0]["resumed"][dtype]:
            kinds.add((saved, ranks))
            assert not differences(expected, whole([s["resumed"][dtype][saved] for s in shares]))
    assert kinds >= {(1, 2), (2, 4), (1, 4)}
    made, trainer = make(DTYPES[dtype])  # here, in one process
    load_shares(nn.ModuleList([made, trainer]), folder / f"{dtype} of 4")
    spikes = learn_online(trainer, made, drive(made, 1))
    assert not differences(expected, whole([of_network(made, trainer, spikes)]))


def test_shares_of_several_runs_are_not_mixed(tmp_path):
    made = nn.ModuleList(make(torch.float64))
    save_share(made, tmp_path)
    (tmp_path / "1 of 2.pt").write_bytes((tmp_path / "0 of 1.pt").read_bytes())
    with pytest.raises(FileNotFoundError, match=r"all processes of one run.*'1 of 2.pt'"):
        load_shares(made, tmp_path)
    save_share(made, tmp_path)  # removes those of other runs
    load_shares(made, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["0 of 1.pt"]
    with pytest.raises(ValueError, match="one `Populations`"):
        save_share(nn.Linear(1, 1), tmp_path)


def test_a_share_has_the_biases_of_its_neurons(tmp_path):
    def connection(*own):
        return SparseLinear(4, 4, 0.5, seed=1, targets=range(*own))

    made = la.Populations({"N": LIF(4)}, {("N", "N"): connection(0, 4)}, split=True)
    whole_, shares = made.state_dict(), [(0, 1), (1, 4)]
    for rank, own in enumerate(shares):
        parts_ = {"connections.N_to_N": connection(*own), "neurons.N": LIF(own[1] - own[0])}
        state = {f"{n}.{k}": v for n, part in parts_.items() for k, v in part.state_dict().items()}
        share_ = {"own": {"N": own}, "state_dict": {**whole_, **state}}
        torch.save(share_, tmp_path / f"{rank} of 2.pt")
    other = la.Populations({"N": LIF(4)}, {("N", "N"): connection(0, 4)}, split=True)
    for each in other.parameters():
        nn.init.zeros_(each)
    load_shares(other, tmp_path)
    assert not differences(other.state_dict(), whole_)


def test_statistics_of_updates_are_of_all_shares(found):
    first, *others = (each["rewired"]["statistics"] for all_ in found.values() for each in all_)
    for other in others:
        torch.testing.assert_close(other, first, rtol=1e-6, atol=0.0)
    assert first["update_norm"] > 0
    assert first["at_upper"] > 0


@turns("name, message", [
    ("dense", r"a share for range\(.*targets = None`: connect them by"),
    ("winners", "inhibition` should be None"),
    ("delays", "same names, delays and seeds"), ("seeds", "same names, delays and seeds"),
    ("order", "in one order"), ("unsplit", r"in_features` should be 1\d, the size"),
    ("steps", r"as long in each process.*\[5, 6\]"),
    ("few", "at least 2, a neuron for each process. Found `size = 1`"),
])  # fmt: skip
def test_what_cannot_be_split_is_told_to_every_process(found, name, message):
    for each in found[2]:
        with pytest.raises(ValueError, match=message):
            raise ValueError(each["errors"][name])


def test_all_go_step_by_step_if_one_has_to(found):
    assert [len(each["one cannot"]["spikes"]) for each in found[2]] == [20, 20]


def test_memory_is_that_of_all_processes_of_a_machine(monkeypatch):
    monkeypatch.setattr(sparse_linear, "_free_memory", lambda: 1e5)
    SparseLinear(40, 40, 0.5, seed=0)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    with pytest.raises(MemoryError, match="free for each of 4 processes"):
        SparseLinear(40, 40, 0.5, seed=0)
    SparseLinear(40, 40, 0.5, seed=0, targets=range(10))


def test_a_share_of_explicit_synapses_has_those_of_its_targets():
    pairs = torch.rand(9, 5) < 0.5
    every = SparseLinear(5, 9, indices=pairs.nonzero().T, bias=False)
    half = SparseLinear(5, 9, indices=pairs.nonzero().T, bias=False, targets=range(4, 9))
    assert torch.equal(half.dense() != 0, every.dense()[4:] != 0)
    assert torch.equal(copy.deepcopy(half).draw(1), every.draw(1)[every.outputs >= 4])


if __name__ == "__main__":
    share(main)
