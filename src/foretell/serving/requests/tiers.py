"""Tiers of memory for caches as texts: `host:1TB@50GB/s ssd:8TB@6GB/s remote:100TB@10GB/s`."""

import re

from foretell.errors import BadInput, Problem
from foretell.records import dataclass
from foretell.serving.requests.records import KvTier

BYTES = {
    "MB": 1e6,
    "GB": 1e9,
    "TB": 1e12,
    "PB": 1e15,
    "MiB": 2.0**20,
    "GiB": 2.0**30,
    "TiB": 2.0**40,
}
"""Units of sizes."""
_TIER = re.compile(r"([a-z][a-z0-9_-]*):([0-9.]{1,12})([KMGTP]i?B)@([0-9.]{1,12})([KMGTP]i?B)/s")


@dataclass(frozen=True, slots=True, kw_only=True)
class TierGiven:
    """A tier as it is given, for one instance."""

    name: str
    """host, ssd, remote, ..."""
    size_bytes: float
    """What it holds."""
    bytes_per_s: float
    """How fast blocks come back."""

    def of_tokens(self, token_bytes: float) -> KvTier:
        """The tier in tokens of a cache."""
        return KvTier(
            name=self.name,
            tokens=self.size_bytes / token_bytes,
            s_per_token=token_bytes / self.bytes_per_s,
        )


def read_tiers(text: str) -> tuple[TierGiven, ...]:
    """Tiers of a text, the nearest first; every wrong word is reported."""
    found, problems = [], []
    for word in text.replace(",", " ").split():
        match = _TIER.fullmatch(word)
        known = match is not None and match[3] in BYTES and match[5] in BYTES
        numbers = [float(match[i]) for i in (2, 4) if match and _is_number(match[i])]
        if match is None or not known or len(numbers) < 2 or min(numbers) <= 0.0:
            problems.append(
                Problem(path="kv_tiers", value=word, message="is no tier of memory",
                        allowed="NAME:SIZE@RATE, such as host:1TB@50GB/s")
            )  # fmt: skip
            continue
        found.append(
            TierGiven(
                name=match[1], size_bytes=numbers[0] * BYTES[match[3]],
                bytes_per_s=numbers[1] * BYTES[match[5]],
            )
        )  # fmt: skip
    if problems:
        raise BadInput(problems)
    return tuple(found)


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) is not None
