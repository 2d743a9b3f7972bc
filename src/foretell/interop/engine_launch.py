"""What a command of a serving engine says, put together from what its reader found."""

from collections.abc import Mapping, Sequence

from foretell.interop.arguments import ArgumentTable
from foretell.interop.engine_flags import other_flags
from foretell.interop.kept_flags import own_flags
from foretell.interop.keys import Keys, plan_words, read_back
from foretell.interop.launch import Launch, Tool


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
    known = {"model": next(iter(models), None), "gpus": gpus, **values}
    return Launch(
        tool=tool,
        models=tuple(models),
        gpus=gpus,
        plan=plan_words(values),
        values=read_back(keys, known, sources),
        accelerator=given.accelerator,
        doubts=tuple(keys.doubts),
        notes=tuple(keys.notes),
        ignored=rest.quiet,
        unknown=rest.unknown,
        unmodelled=tuple(
            dict.fromkeys((*(name for name in left if name not in flags.quiet), *rest.bears))
        ),
        flags=own_flags(given, keys.pairs),
    )
