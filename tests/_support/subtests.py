"""Cases of a cheap property as turns of one test, where items of their own would take longer."""

import functools
import inspect


def turns(names, cases):
    """As ``pytest.mark.parametrize``, in one item; a turn that fails is printed."""
    parts, every = [name.strip() for name in names.split(",")], list(cases)
    assert every, names

    def decorate(test):
        signature = inspect.signature(test)
        assert all(name in signature.parameters for name in parts), names

        @functools.wraps(test)
        def run(*args, **kwargs):
            for case in every:
                given = dict(zip(parts, case if len(parts) > 1 else [case], strict=True))
                try:
                    test(*args, **kwargs, **given)
                except BaseException:
                    print("In the turn of", given)
                    raise

        rest = [each for name, each in signature.parameters.items() if name not in parts]
        run.__signature__ = signature.replace(parameters=rest)
        return run

    return decorate
