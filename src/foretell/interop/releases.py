"""Releases of the tools that plans are written for: `megatron-core@0.14`, `vllm@0.32`.

A writer takes the newest release at or below the one that is named, so that 0.14.1 is written as 0.14 is.
Each release here was checked against its own sources (tests/interop/test_releases.py; tools/flag_tables.py).
"""

from collections.abc import Mapping

from foretell.errors import bad_input, nearest_name
from foretell.interop.launch import SERVING, TRAINING, Tool
from foretell.records import dataclass

RELEASES: Mapping[Tool, tuple[str, ...]] = {
    "megatron": ("0.14", "0.15", "0.16"),
    "torchtitan": ("0.2", "0.3"),
    "deepspeed": ("0.19",),
    "vllm": ("0.32",),
    "sglang": ("0.5",),
    "trtllm": ("1.0",),
}
"""Releases that are written, the newest last: it is meant where none is named."""
CALLED: Mapping[str, Tool] = {
    "megatron-core": "megatron", "megatron-lm": "megatron", "megatron-bridge": "megatron",
    "mcore": "megatron",
    "tensorrt-llm": "trtllm", "tensorrt_llm": "trtllm",
}  # fmt: skip
"""Other names of tools."""
OURS: Mapping[Tool, str] = {"megatron": "megatron-core"}
"""What a tool's releases are numbered by, where that is not its own name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRelease:
    """A tool of one release."""

    tool: Tool
    """Which."""
    version: str
    """Its release, as in 0.16."""

    @property
    def called(self) -> str:
        """As a user would ask for it."""
        return f"{OURS.get(self.tool, self.tool)}@{self.version}"

    def at_least(self, *version: int) -> bool:
        """Whether it is this release or a later one."""
        return _parts(self.version) >= version


def release_of(text: str, *, serving: bool, path: str = "export") -> ToolRelease:
    """The release that a text names; BadInput with those that are written."""
    word, _, version = text.strip().lower().partition("@")
    known = SERVING if serving else TRAINING
    tool = CALLED.get(word, word)
    found = next((one for one in known if one == tool), None)
    if found is None:
        near = nearest_name(word, [*known, *(name for name, one in CALLED.items() if one in known)])
        raise bad_input(path, text, "unknown", _allowed(known), near)
    made = RELEASES[found]
    if not version:
        return ToolRelease(tool=found, version=made[-1])
    parts = _parts(version)
    fits = [one for one in made if parts and _parts(one) <= parts]
    if not fits or parts[0] != _parts(fits[-1])[0]:
        raise bad_input(path, text, "is no release that is written here", _allowed((found,)))
    return ToolRelease(tool=found, version=fits[-1])


def _allowed(tools: tuple[Tool, ...]) -> str:
    return ", ".join(f"{OURS.get(one, one)}@{v}" for one in tools for v in RELEASES[one])


def _parts(version: str) -> tuple[int, ...]:
    """0.14.1 as numbers; none where it is no release."""
    words = version.removeprefix("v").split(".")
    return tuple(map(int, words)) if all(word.isdigit() and len(word) < 6 for word in words) else ()
