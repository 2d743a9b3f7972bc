"""`foretell scaling`."""

from typing import Annotated

from cyclopts import Parameter

from foretell.cli import names
from foretell.cli.flags import Json, Settings, SystemName, decimal, number
from foretell.cli.output import write_json
from foretell.errors import BadInput, Problem

Models = Annotated[
    str, Parameter(metavar="MODEL...", help="Catalogue ids, config.json files or TOML files.")
]
Gpus = Annotated[
    str, Parameter(metavar="N..M", help="Numbers of GPUs: 1..512 doubles; or a list, 8,16,24.")
]
Strategies = Annotated[
    str, Parameter(metavar="PLANS", help='Plans without dp, as in "zero1,zero3,tp4 zero1".')
]
Mode = Annotated[
    str | None,
    Parameter(
        metavar="weak|strong",
        help="Work grows with the GPUs, or stays; else strong where --global-batch is given.",
    ),
]
Words = Annotated[
    str, Parameter(metavar="WORDS", show_default=False, help="Words that all the plans share.")
]
MicroBatch = Annotated[
    str | None, Parameter(metavar="N", help="Sequences of a micro-batch; else 1.")
]
PerGpu = Annotated[
    str | None,
    Parameter(metavar="N", help="Weak: sequences of a step for each GPU; else a micro-batch."),
]
Batch = Annotated[
    str | None, Parameter(metavar="N", help="Strong: sequences per step, whatever the GPUs.")
]
Length = Annotated[
    str | None, Parameter(metavar="N", help="Tokens per sequence; else the model's own up to 4096.")
]
Target = Annotated[
    str | None, Parameter(metavar="N", help="Target tokens per sequence of an encoder-decoder.")
]
Floor = Annotated[
    str, Parameter(metavar="X", help="Efficiency below which a strategy has stopped scaling.")
]
Whole = Annotated[
    bool,
    Parameter(
        negative="",
        show_default=False,
        help="The study of docs/scaling-study.md, with measurements; no models are given.",
    ),
]
Drawn = Annotated[
    str | None,
    Parameter(
        name=("--plot", "--picture"),
        negative="",
        metavar="FILE",
        help="Write a picture: .svg, .html, or .png where a browser is.",
    ),
]


def scaling(
    *models: Models,
    system: SystemName = None,
    gpus: Gpus = "1..512",
    strategies: Strategies = "zero1,zero2,zero3",
    mode: Mode = None,
    plan: Words = "",
    micro_batch: MicroBatch = None,
    batch_per_gpu: PerGpu = None,
    global_batch: Batch = None,
    seq_len: Length = None,
    target_len: Target = None,
    floor: Floor = "0.8",
    set: Settings = (),
    study: Whole = False,
    picture: Drawn = None,
    json: Json = False,
) -> int:
    """Throughput of strategies over numbers of GPUs, what it is made of, and where it stops."""
    from foretell.report.picture_files import picture_file, write
    from foretell.report.scaling import scaling_text, study_text
    from foretell.report.scaling_picture import scaling_picture, study_picture

    file = picture_file("picture", picture) if picture else None
    if study:
        from foretell.studies.scaling.study import study as run_study

        if models or system is not None:
            message = "has models and systems of its own"
            raise BadInput([Problem(path="study", value=True, message=message)])
        whole = run_study()
        drawn, record, told = study_picture(whole), whole.to_dict(), study_text(whole)
        fits = True
    else:
        from foretell.studies.scaling.run import scaling as run

        found = run(
            *map(names.own_path, models),
            system=system,
            gpus=number(gpus),
            strategies=strategies,
            mode=mode,  # type: ignore[arg-type]
            plan=plan,
            micro_batch=number(micro_batch),
            batch_per_gpu=number(batch_per_gpu),
            global_batch=number(global_batch),
            seq_len=number(seq_len),
            target_len=number(target_len),
            floor=decimal(floor),
            set=set,
        )
        drawn, record, told = scaling_picture(found), found.to_dict(), scaling_text(found)
        fits = any(curve.fits_from is not None for curve in found.curves)
    if file is not None:
        write(file, drawn)
    if json:
        write_json(record)
    else:
        from foretell.report.console import show

        show(told)
    return 0 if fits else 1
