"""Flags of verbs that are asked on the command line alone, from the fields that questions have."""

from typing import Annotated

from foretell.cli.command import number as number
from foretell.cli.command import parameter
from foretell.specs.questions.common import JSON, PLOT, SystemName, Workers
from foretell.specs.questions.flags import Flag, flag_of

Json = Annotated[bool, parameter(JSON, default=False)]
Plot = Annotated[str | None, parameter(PLOT)]
System = Annotated[str | None, parameter(flag_of(SystemName))]
Processes = Annotated[str, parameter(flag_of(Workers), default="1")]
Top = Annotated[str, parameter(Flag(help="How many plans to keep.", metavar="N"), default="10")]
