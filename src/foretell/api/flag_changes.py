"""What differs between a launch and the better one, flag by flag."""

from foretell.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagChange:
    """One flag that differs between a launch and the better one."""

    flag: str
    """The tool's name for it."""
    before: str | None
    """Its value in the launch; none: not given."""
    after: str | None
    """Its value in the better one; none: leave it out."""
