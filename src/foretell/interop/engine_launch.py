"""What a command of a serving engine says, put together from what its reader found."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from foretell.interop.arguments import ArgumentTable
from foretell.interop.engine_flags import other_flags
from foretell.interop.kept_flags import own_flags
from foretell.interop.keys import Keys, LeftArguments, drop_unset, plan_words, read_back
from foretell.interop.launch import Launch, Tool


def service_launch(
    keys: Keys,
    given: ArgumentTable,
    tool: Tool,
    models: tuple[str, ...],
    gpus: int,
    values: Mapping[str, object],
    sources: Mapping[str, tuple[str, ...]],
    rest: LeftArguments,
) -> Launch:
    """The record of what was read; `models` may be the model's names, the likeliest first."""
    names = tuple(name for name in models if name)
    kept, job = dict(values), {"gpus": gpus}
    drop_unset(keys, kept, job, {"gpus": sources.get("tp", ()), **sources})
    values, chips = kept, job["gpus"]
    told = {"model": next(iter(names), None), "gpus": chips, **values}
    return Launch(
        tool=tool,
        models=names,
        gpus=chips,
        plan=plan_words(values),
        values=read_back(keys, told, sources),
        accelerator=given.accelerator,
        notes=tuple(keys.notes),
        doubts=tuple(keys.doubts),
        asks=tuple(keys.asks),
        ignored=rest.quiet,
        unmodelled=rest.bears,
        unknown=rest.unknown,
    )


def engine_launch(
    tool: Tool,
    given: ArgumentTable,
    keys: Keys,
    models: Sequence[str],
    gpus: int,
    values: Mapping[str, object],
    left: Sequence[str],
    sources: Mapping[str, tuple[str, ...]],
) -> Launch:
    """The launch; `left` names flags that were read and are not modelled, `sources` the flags of each value.

    Flags that nobody read are warnings or of no bearing, as `engine_flags.toml` has it; BadInput with all
    problems of the others.
    """
    flags = other_flags(tool)
    rest = keys.leftovers(flags.bears, flags.quiet)
    keys.raise_problems()
    named = tuple(name for name in left if name not in flags.quiet)
    rest = rest._replace(bears=tuple(dict.fromkeys((*named, *rest.bears))))
    found = service_launch(keys, given, tool, tuple(models), gpus, values, sources, rest)
    return replace(found, flags=own_flags(given, keys.pairs))
