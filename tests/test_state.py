from __future__ import annotations

import copy

import torch

from lightning_accum._state import StateModule


def holding(**state: torch.Tensor | None) -> StateModule:
    module = StateModule()
    module._state = state
    return module


def test_transient_tensors_are_neither_parameters_nor_buffers():
    module = holding(v=torch.ones(2), w=None)
    assert not list(module.parameters())
    assert not list(module.buffers())
    assert list(module.state_dict()) == list(StateModule().state_dict())


def test_what_is_saved_and_what_is_loaded_are_copies():
    module, fresh = holding(v=torch.ones(2), w=None), StateModule()
    saved = module.state_dict()
    fresh.load_state_dict(saved)
    module._state["v"].fill_(2.0)
    assert fresh._state["v"].tolist() == [1.0, 1.0]
    fresh._state["v"].fill_(3.0)
    again = StateModule()
    again.load_state_dict(saved)
    assert again._state["v"].tolist() == [1.0, 1.0]
    assert again._state["w"] is None


def test_they_move_and_are_copied_with_the_module():
    module = torch.nn.Sequential(holding(v=torch.ones(2), n=torch.ones(2, dtype=torch.int64)))
    twin = copy.deepcopy(module).to(torch.float64)
    assert twin[0]._state["v"].dtype == torch.float64
    assert twin[0]._state["n"].dtype == torch.int64
    assert module[0]._state["v"].dtype == torch.float32
