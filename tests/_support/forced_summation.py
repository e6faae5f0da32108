"""Evaluates the terms of rules in a form that is not chosen by its costs."""

import functools
from contextlib import contextmanager

import pytest

from lightning_accum.engine import summation_forms as forms
from lightning_accum.engine import window_changes as accumulate
from lightning_accum.engine.summation_forms import Form, unmoved_side
from lightning_accum.engine.term_operands import Product
from lightning_accum.sparse import event_sums, kernel_library

FORMS = ("auto", "plain", "dense", "pre", "post")


def products(terms):
    """Terms of signals with data, as the engine sums them."""
    return [Product(term, None) for term in terms]


@contextmanager
def evaluated_in(form, by="kernel"):
    """Forces a form of sums of a matrix, and who computes them; gives the ``backend`` for it."""

    def forced(products, combine):
        side = unmoved_side(products, combine) if form == "dense" else form
        return [Form(form, side, tuple(range(len(products))))]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forms, "_SMALL", 0)  # sums of small windows are combined, too
        if form not in ("auto", "plain"):
            patch.setattr(accumulate, "forms_of", forced)
        if by == "torch":
            patch.setattr(kernel_library, "library", lambda dtype: None)
        elif by == "torch, at last":
            patch.setattr(event_sums, "_fits", lambda *_: False)
        yield "plain" if form == "plain" else "auto"


def in_forms(name):
    """Runs a test in the form that an argument names, which the test gets as a ``backend``."""

    def decorate(test):
        @functools.wraps(test)
        def run(*args, **kwargs):
            with evaluated_in(kwargs[name]) as backend:
                test(*args, **{**kwargs, name: backend})

        return run

    return decorate
