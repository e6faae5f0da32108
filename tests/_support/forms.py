"""Evaluates the terms of rules in a form that is not chosen by its costs."""

import functools
from contextlib import contextmanager
from unittest import mock

from lightning_accum.engine import accumulate, forms
from lightning_accum.engine.forms import Form, unmoved_side

FORMS = ("auto", "plain", "dense", "pre", "post")


@contextmanager
def evaluated_in(form):
    """Forces a form of sums of a matrix, and gives the ``backend`` for it."""
    if form in ("auto", "plain"):
        yield form
        return

    def forced(products, combine):
        side = unmoved_side(products, combine) if form == "dense" else form
        return [Form(form, side, tuple(range(len(products))))]

    with mock.patch.object(accumulate, "forms_of", forced), mock.patch.object(forms, "_SMALL", 0):
        yield "auto"


def in_forms(name):
    """Runs a test in the form that an argument names, which the test gets as a ``backend``."""

    def decorate(test):
        @functools.wraps(test)
        def run(*args, **kwargs):
            with evaluated_in(kwargs[name]) as backend:
                test(*args, **{**kwargs, name: backend})

        return run

    return decorate
