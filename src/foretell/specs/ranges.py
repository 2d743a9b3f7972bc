"""Marks of a field's range, read by `foretell.specs.check`: `Annotated[float, Ge(0), Le(1)]`.

The package annotated-types has the same marks, and takes a twentieth of an estimate's start to load.
"""


class Ge:
    """Not below."""

    __slots__ = ("ge",)

    def __init__(self, ge: float) -> None:
        self.ge = ge

    def __repr__(self) -> str:
        return f"Ge({self.ge!r})"


class Le:
    """Not above."""

    __slots__ = ("le",)

    def __init__(self, le: float) -> None:
        self.le = le

    def __repr__(self) -> str:
        return f"Le({self.le!r})"
