"""Cells of published post-training runs as they are printed: numbers, chips, models, lengths."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foretell.api.post_training_words import PLACEMENTS, algorithm_word, first_word, parts_on_host
from foretell.catalog.files import read_table
from foretell.catalog.model_names import find_model, stand_in
from foretell.catalog.names import exists, find
from foretell.catalog.post_training import recognise_loop
from foretell.errors import ProblemsError
from foretell.lab.validate.scores import UnsupportedRun
from foretell.specs.post_training import usual_prompt

Cells = Mapping[str, str]
WORDS = read_table(Path(__file__).with_name("post_training_words.toml"))
"""How cells and notes say things."""
PATTERNS = {name: re.compile(pattern) for name, pattern in WORDS["patterns"].items()}
"""Patterns of them."""
LAYER_WEIGHTS = 856e6
"""Weights of a layer of the dense shape that stands for it (Llama of 70 billion)."""


def number(cells: Cells, name: str) -> float | None:
    """A cell as a number, the middle of a range; None where it is none."""
    text = (cells.get(name) or "").strip()
    ends = [PATTERNS["figure"].match(part.strip()) for part in PATTERNS["range"].split(text)]
    read = [float(one[1].replace(",", "")) * (1e3 if one[2] else 1.0) for one in ends if one]
    return sum(read) / len(read) if read else None


def whole(cells: Cells, name: str) -> int | None:
    """A cell as a whole number."""
    value = number(cells, name)
    return None if value is None else round(value)


def lower(cells: Cells, name: str) -> str:
    """A cell in small letters; empty where it is blank."""
    return (cells.get(name) or "").strip().lower()


def chip_of(cells: Cells) -> str:
    """The id of the chip or of its system; UnsupportedRun where none is known."""
    text = PATTERNS["times"].sub("", (cells.get("chip") or "").strip())
    parts = [text, *re.split(r"\s+or\s+|\(|,|/|\+", text)]
    # A memory that no chip of the name has is a variant of it.
    parts += [PATTERNS["memory"].sub("", part) for part in parts]
    for part in parts:
        for kind in ("chip", "system"):
            if part.strip() and exists(part, (kind,)):
                return find(part, (kind,)).id
    raise UnsupportedRun(f"the chip {text or '(blank)'} is not known")


def model_of(cells: Cells) -> str:
    """The model as it is printed, as its size in bytes says, or by the part of the text that names one."""
    text = (cells.get("model") or "").strip()
    size = PATTERNS["gigabytes"].search(text)
    if size:
        layers = max(round(0.5e9 * float(size[1]) / LAYER_WEIGHTS), 1)
        return f"llama:layers={layers},hidden=8192,heads=64,kv_heads=8,ffn=28672"
    if not text:
        raise UnsupportedRun("the model is not known")
    parts = [part.strip() for part in re.split(r"[()+,;]| with | and ", text)]
    return next((part for part in (text, *parts) if part and known_model(part)), text)


def known_model(name: str) -> bool:
    """Whether a name means one model of the catalogue, or has the shape of one."""
    try:
        return find_model(name) is not None or stand_in(name) is not None
    except ProblemsError:
        return True


def counts_of(cells: Cells) -> tuple[int | None, int | None, int | None]:
    """Chips of all pools, of the trainer and of the engine, as they are printed, or as the trainer's degrees
    or a node's chips say."""
    total, trainer, rollout = (
        whole(cells, f"{n}gpus{s}") for n, s in (("", "_total"), ("train_", ""), ("rollout_", ""))
    )
    times = PATTERNS["times"].search(cells.get("chip") or "")
    beside = next((int(many) for many in times.groups() if many), None) if times else None
    if not (total or trainer or rollout or beside):
        degrees = [whole(cells, f"train_{name}") for name in ("tp", "pp", "cp", "shard")]
        trainer = math.prod(degree or 1 for degree in degrees) if any(degrees) else None
        trainer = trainer or whole(cells, "gpus_per_node")
    return total or (None if trainer or rollout else beside), trainer, rollout


def chips_of(cells: Cells) -> dict[str, Any]:
    """Chips and placement; both pools where they are apart."""
    chip = chip_of(cells)
    total, trainer, rollout = counts_of(cells)
    known = total or trainer or rollout
    if not known:
        raise UnsupportedRun("the number of chips is not known")
    kind = placement_of(cells)
    if kind == "colocated":
        return {"gpus": f"{known}x{chip}", "placement": kind}
    if trainer is None and rollout is not None and total and total > rollout:
        trainer = total - rollout
    if not trainer:
        return {"gpus": f"{total}x{chip}", "placement": kind}
    others = rollout or max((total or 2 * trainer) - trainer, 1)
    return {
        "trainer_gpus": f"{trainer}x{chip}",
        "rollout_gpus": f"{others}x{chip}",
        "placement": kind,
    }


def placement_of(cells: Cells) -> str:
    """Where trainer and engine are; pools that are printed with chips of their own are apart."""
    printed = first_word(f"{lower(cells, 'placement')} {lower(cells, 'staleness')}", PLACEMENTS)
    own = lower(cells, "placement").replace("_", " ")
    pools = whole(cells, "train_gpus"), whole(cells, "rollout_gpus"), whole(cells, "gpus_total")
    if not own and all(pools[:2]) and pools[2] in (None, (pools[0] or 0) + (pools[1] or 0)):
        return printed if printed == "async" else "split"
    return first_word(own, PLACEMENTS) or printed or "colocated"


def turns_in(text: str) -> int | None:
    """Turns of a trajectory that a text names."""
    found = PATTERNS["turns"].search(text)
    return int(found[1]) if found else None


def drafts_in(text: str) -> str | None:
    """The drafter and its drafts that a text names: MTP depth 3."""
    found = PATTERNS["drafts"].search(text)
    return f"{found[1]}:{found[2]}" if found else None


def stored_words(cells: Cells) -> list[str]:
    """The format of the engine's weights."""
    text, formats = lower(cells, "precision_rollout"), WORDS["formats"].items()
    return [f"weights={word}" for name, word in formats if text.startswith(name)][:1]


def offload_arguments(cells: Cells) -> dict[str, Any]:
    """What lives on the host outside the trainer's phases."""
    found = parts_on_host(lower(cells, "offload"))
    return {"offload": found} if found else {}


def lengths_of(cells: Cells) -> tuple[float | None, float | None, int | None]:
    """Mean prompt and answer and the longest answer; what is printed of whole sequences, less the prompt."""
    isl, most = number(cells, "mean_prompt"), number(cells, "max_prompt")
    isl = usual_prompt(most) if isl is None and most else isl
    mean, limit = number(cells, "mean_response"), whole(cells, "max_response")
    total, longest = number(cells, "mean_total_len"), whole(cells, "max_total")
    total = total or number(cells, "seq_len")
    prompt = usual_prompt(None) if isl is None else isl
    if mean is None and total:
        mean = max(total - prompt, 1.0)
    if limit is None and longest:
        limit = max(round(longest - prompt), 1)
    return isl, mean, limit


def framework_of(cells: Cells) -> str:
    """The loop's word, with the release that is printed. verl's logs name its first engine `fsdp`: where no
    release is printed, they are of one before its second (0.5)."""
    loop = recognise_loop(cells.get("framework") or "")
    release = re.match(r"v?(\d+(?:\.\d+)+)", (cells.get("framework_version") or "").strip())
    if release:
        return f"{loop}@{release[1]}"
    silent = not (cells.get("framework_version") or "").strip()
    first = loop == "verl" and silent and lower(cells, "train_engine") == "fsdp"
    return "verl@0.4" if first else loop


def degree_words(cells: Cells) -> list[str]:
    """The trainer's degrees above one."""
    degrees = {word: whole(cells, f"train_{word}") for word in ("tp", "pp", "cp", "ep")}
    return [f"{word}{degree}" for word, degree in degrees.items() if degree and degree > 1]


def algorithm_of(cells: Cells, usual: str) -> str:
    """The algorithm by our name; `usual` where none is printed, or none that is known."""
    text = lower(cells, "algorithm")
    if re.search(r"no rollout|trainer step|update only", text):
        return "update"
    return (algorithm_word(text) if text else None) or usual


def staleness_of(cells: Cells) -> dict[str, Any]:
    """How far ahead rollouts may be: a number in the cell, with its words."""
    text = lower(cells, "staleness")
    found = re.search(r"\d+(?:\.\d+)?", text)
    if found is None:
        return {}
    value = float(found[0])
    partial = "partial" in text or 0.0 < value < 1.0 or "stream" in text
    return {"staleness": value, "partial": partial}
