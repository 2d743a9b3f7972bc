"""numba's compiler where it is installed; else functions stay as they are."""

import importlib.util
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
INSTALLED = importlib.util.find_spec("numba") is not None
"""Whether there is a compiler."""


def jit(function: F) -> F:
    """The compiled function; what was compiled is kept on the disk where that can be written."""
    if not INSTALLED:
        return function
    from numba import njit

    try:
        found: F = njit(cache=True, error_model="numpy")(function)
    except RuntimeError:  # no folder to keep it in
        found = njit(error_model="numpy")(function)
    return found
