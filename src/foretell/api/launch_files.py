"""Files with further arguments that lie beside a launch file: accelerate's, DeepSpeed's, an engine's YAML.

They are opened where the launch itself is a file of the user's, and only inside its folder. A server opens
none: there a launch is a text.
"""

from pathlib import Path

from foretell.interop.arguments import LARGEST_TEXT
from foretell.interop.launch import NamedFile
from foretell.interop.named_files import named_files
from foretell.interop.user_files import are_read, is_there

MOST_FILES = 4
"""Files that a launch and the files it names may name."""


def files_beside(text: str, launch: Path) -> tuple[NamedFile, ...]:
    """What the files say that a launch file names, where they lie beside it or below."""
    if not are_read():
        return ()
    folder = launch.resolve().parent
    found: list[NamedFile] = []
    texts = [text]
    while texts and len(found) < MOST_FILES:
        for key, name in named_files(texts.pop(0)):
            content = _content(folder, name)
            if content is not None and all(one.name != name for one in found):
                found.append(NamedFile(key=key, name=name, content=content))
                texts.append(content)
    return tuple(found[:MOST_FILES])


def _content(folder: Path, name: str) -> str | None:
    """The text of a file in the folder of the launch; None where it is elsewhere, or no text."""
    path = (folder / name).resolve()
    if Path(name).is_absolute() or not path.is_relative_to(folder):
        return None
    if not is_there(path, folder=False):
        return None
    try:
        if path.stat().st_size > LARGEST_TEXT:
            return None
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
