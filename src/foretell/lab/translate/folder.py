"""The folder of a translation run: settings, model, byte pairs, checkpoints, history.

    settings.json    what was asked, and how many lines it met
    model.toml       the model, as `foretell estimate` reads it
    tokenizer.json   the byte pairs
    checkpoint.pt    weights, optimizer and place in the text: where the run goes on
    best.pt          the weights with the least held-out loss
    history.jsonl    one line for each evaluation

Files are written beside and then renamed, so that a killed run leaves whole ones. Checkpoints hold
tensors and plain values and are read with `weights_only`: nothing in them is run.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretell.errors import bad_input
from foretell.interop.user_files import whole_file, write_whole

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from foretell.specs.model import Model

SETTINGS, MODEL, TOKENIZER = "settings.json", "model.toml", "tokenizer.json"
CHECKPOINT, BEST, HISTORY = "checkpoint.pt", "best.pt", "history.jsonl"


def read_settings(folder: Path) -> dict[str, Any] | None:
    """What a run was asked; none where the folder has no run."""
    path = folder / SETTINGS
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise bad_input("out", str(path), f"cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise bad_input("out", str(path), "is not a run's settings")
    return found


def write_json(path: Path, record: Any) -> None:
    """A record as JSON."""
    write_whole(path, json.dumps(record, indent=2, allow_nan=False) + "\n")


def read_model(folder: Path) -> "Model":
    """The run's model."""
    from foretell.interop.own_model import read_toml

    return read_toml(folder / MODEL)


def read_tokenizer(folder: Path) -> "Tokenizer":
    """The run's byte pairs."""
    from tokenizers import Tokenizer

    path = folder / TOKENIZER
    if not path.exists():
        raise bad_input("folder", str(folder), f"has no {TOKENIZER}")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001 - the library raises Exception itself
        raise bad_input("folder", str(path), f"is damaged: {error}") from None


def save_tensors(path: Path, record: dict[str, Any]) -> None:
    """Tensors and plain values."""
    import torch

    with whole_file(path) as beside:
        torch.save(record, beside)


def load_tensors(path: Path, device: str) -> dict[str, Any]:
    """What `save_tensors` wrote; anything else in the file is refused."""
    import pickle

    import torch

    try:
        found = torch.load(path, map_location=device, weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError, ValueError) as error:
        first = str(error).strip().splitlines()
        why = first[0][:120] if first else type(error).__name__
        raise bad_input("checkpoint", str(path), f"is damaged or is no checkpoint: {why}") from None
    if not isinstance(found, dict):
        raise bad_input("checkpoint", str(path), "is no checkpoint")
    return found
