"""Nested values, compared bit by bit, and what a file gives back."""

import io
import pickle
import warnings

from torch import Tensor, equal, load, save
from torch.utils._pytree import keystr, tree_flatten_with_path

from lightning_accum._extra_state import EXTRA, unpack


def differences(one, other):
    """Where two nested values differ; NaN is like NaN."""
    left, right = ({keystr(k): v for k, v in tree_flatten_with_path(x)[0]} for x in (one, other))
    every = left.keys() | right.keys()
    return [at for at in every if not (at in left and at in right and same(left[at], right[at]))]


def same(one, other):
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.dtype == other.dtype and equal(one.nan_to_num(7), other.nan_to_num(7))
    return type(one) is type(other) and bool(one == other)


def unpacked(module):
    """The state dict of a module, in which the extra states are what their vectors say."""
    state = module.state_dict()
    return {k: unpack(v, k) if k.endswith(EXTRA) else v for k, v in state.items()}


def by_file(value, weights_only=True):
    """Saves a value and loads it, without a warning."""
    file = io.BytesIO()
    save(value, file)
    file.seek(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return load(file, weights_only=weights_only)


def by_pickle(value):
    return pickle.loads(pickle.dumps(value))
