"""`foretell catalog chips|systems|models|show`."""

from typing import Annotated

from foretell.cli import names
from foretell.cli.flags import Json, arg
from foretell.cli.output import write_json

Named = Annotated[
    str,
    arg(
        "Id or alias of a model, chip or system; or a config.json, its folder, a TOML file.",
        completer=names.entries,
    ),
]


def chips(*, json: Json = False) -> int:
    """List the chips."""
    return _list("chip", json)


def systems(*, json: Json = False) -> int:
    """List the systems."""
    return _list("system", json)


def models(*, json: Json = False) -> int:
    """List the models."""
    return _list("model", json)


def show(name: Named, *, json: Json = False) -> int:
    """One entry with the source of every value."""
    from foretell.report.entry import entry

    found = entry(names.own_path(name))
    if json:
        write_json(found)
    else:
        from foretell.report import console
        from foretell.report.entry import entry_text

        console.show(entry_text(found))
    return 0


def _list(kind: str, json: bool) -> int:
    from foretell.report.listing import listing

    found = listing(kind)
    if json:
        write_json(found)
    else:
        from foretell.report import console
        from foretell.report.listing import listing_text

        console.show(listing_text(found))
    return 0
