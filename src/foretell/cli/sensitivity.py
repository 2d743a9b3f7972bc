"""`foretell sensitivity`."""

from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Parameter

from foretell.cli.flags import (
    Concurrency,
    Json,
    ModelName,
    Plot,
    Price,
    Question,
    Rate,
    by_name,
    decimal,
)
from foretell.cli.output import no_as_json, write_json
from foretell.cli.plots import plot_file, write_plot
from foretell.cli.progress import late_bar
from foretell.errors import BadInput, Problem

TRAINING = ("global_batch", "seq_len", "target_len")
"""Flags of a question that a service has no use for."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """With any of these a service is asked about, not a training step."""

    isl: Annotated[str | None, Parameter(metavar="N", help="Of a service: tokens of a prompt.")] = (
        None
    )
    osl: Annotated[
        str | None, Parameter(metavar="N", help="Of a service: tokens of an answer.")
    ] = None
    concurrency: Concurrency = None
    rate: Rate = None
    engine: Annotated[
        str | None, Parameter(metavar="NAME", help="Of a service: vllm, trtllm, sglang, a profile.")
    ] = None

    def arguments(self) -> dict[str, Any]:
        """What was given."""
        given = by_name(self)
        return {
            name: value if name == "engine" else decimal(value)
            for name, value in given.items()
            if value is not None
        }


NOTHING_SET, NO_LOAD = Question(), Load()


def sensitivity(
    model: ModelName,
    *,
    question: Question = NOTHING_SET,
    load: Load = NO_LOAD,
    factor: Annotated[
        str,
        Parameter(metavar="X", help="What-ifs make each number so many times better, and worse."),
    ] = "2",
    replan: Annotated[
        bool,
        Parameter(negative="", show_default=False, help="Choose the plan of each what-if anew."),
    ] = False,
    rent: Annotated[
        str | None, Parameter(metavar="TERM", help="Of training: on-demand, own and the like.")
    ] = None,
    price: Price = None,
    plot: Plot = None,
    json: Json = False,
) -> int:
    """How time, cost and energy answer to every number of hardware, software and price."""
    from foretell.studies.sensitivity import sensitivities

    file = plot_file(plot)
    asked = question.arguments() | load.arguments()
    served = load.arguments()
    if served:
        wrong = [name for name in TRAINING if asked[name] is not None]
        wrong += ["rent"] if rent else []
        if wrong:
            raise BadInput([_of_training(name) for name in wrong])
    with no_as_json(json), late_bar("searches" if replan else "numbers") as progress:
        found = sensitivities(
            model,
            **{name: value for name, value in asked.items() if value is not None},
            factor=decimal(factor),
            replan=replan,
            price=decimal(price),
            progress=progress,
            **({"rent": rent} if rent else {}),
        )
    write_plot(file, "sensitivity", found.to_dict)
    if json:
        write_json(found.to_dict())
    else:
        from foretell.report.console import show
        from foretell.report.sensitivity import sensitivity_text

        show(sensitivity_text(found))
    return 0


def _of_training(name: str) -> Problem:
    flag = "--" + name.replace("_", "-")
    return Problem(path=flag, value=None, message="is of training, and a service is asked about")
