"""The ledger's sections of README.md, docs/first-contact.md and docs/accuracy.md."""

from collections.abc import Callable
from pathlib import Path

from foretell.lab.first_contact import page
from foretell.lab.validate.published import Sections, with_written


def _of_ledger(write: Callable[[], str]) -> Callable[[Path], str]:
    """A section that needs no data beside the package."""
    return lambda _: write()


SECTIONS: Sections = tuple(
    (name, section, _of_ledger(write))
    for name, section, write in (
        ("README.md", "first contact", page.readme_text),
        ("docs/accuracy.md", "first contact", page.readme_text),
        ("docs/first-contact.md", "waves", page.waves_text),
        ("docs/first-contact.md", "known sources", page.known_text),
        ("docs/first-contact.md", "training sources", page.sources_text),
        ("docs/first-contact.md", "sealed waves", page.sealed_text),
        ("docs/first-contact.md", "before the ledger", page.history_text),
    )
)
"""Page, name of its section, and what writes it."""


def with_ledger(root: Path) -> dict[Path, str]:
    """The pages of a repository as the ledger is today."""
    return with_written(root, SECTIONS, root)
