"""Flags of verbs that are asked on the command line alone, from the fields that questions have."""

from typing import Annotated, Any

from cyclopts import Parameter

from foretell.cli.command import number as number
from foretell.cli.command import parameter
from foretell.specs.questions.common import JSON, PLOT, SystemName, Workers
from foretell.specs.questions.flags import Flag, flag_of


def arg(about: str, metavar: str | None = None, **more: Any) -> Parameter:
    """An argument or a flag: one line about it, and the placeholder of its value."""
    return Parameter(help=about, metavar=metavar, **more)


def switch(about: str) -> Parameter:
    """A flag that is on or off."""
    return Parameter(help=about, negative="", show_default=False)


Json = Annotated[bool, parameter(JSON, default=False)]
Plot = Annotated[str | None, parameter(PLOT)]
System = Annotated[str | None, parameter(flag_of(SystemName))]
Processes = Annotated[str, parameter(flag_of(Workers), default="1")]
Top = Annotated[str, parameter(Flag(help="How many plans to keep.", metavar="N"), default="10")]
