"""The processes and settings of a launch file, whatever its form."""

from pathlib import Path

from foretell.interop.forms.records import Launched


def launched(given: Path | str, folder: Path | None = None) -> Launched:
    """What a text launches; a `Path` is opened. `folder` is where files beside it lie, None where no file
    may be opened. BadInput where the text is too long, empty or of no form."""
    raise NotImplementedError
