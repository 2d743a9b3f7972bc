"""Arguments of vLLM that are tables: JSON behind the flag, or dotted flags for its keys.

`--compilation-config '{"cudagraph_mode": "NONE"}'`, `-cc.cudagraph_mode NONE` and `-O0` say the same
(vllm/utils/argparse_utils.py). Keys that are not modelled and bear on latency or memory are warnings as flags
are (interop/tools: `compilation_config.*`).
"""

import json
from collections.abc import Mapping
from typing import Any

from foretell.interop.keys import Keys
from foretell.interop.serving_words import drafter_word, known_drafter, largest

STORES = ("offload", "lmcache", "store", "flexkv", "hf3fs", "hisparse", "example", "sharedstorage")
"""Parts of the names of connectors that keep caches outside the chips rather than hand them on."""
SHORT: Mapping[str, tuple[str, ...]] = {
    "compilation_config": ("cc", "O"),
    "speculative_config": ("sc",),
}
"""Short names of tables."""


class TableArgument:
    """One table: its keys, and those that were read."""

    def __init__(self, keys: Keys, name: str) -> None:
        self.name = name
        self.values: dict[str, Any] = {}
        self._used: set[str] = set()
        for spelt in (name, *SHORT.get(name, ())):
            told = keys.raw(spelt)
            if isinstance(told, Mapping):
                self.values |= told
            elif isinstance(told, str) and told.lstrip().startswith("{"):
                self.values |= _json(keys, name, told)
            dotted = [key for key in keys.pairs if key.startswith(f"{spelt}.")]
            self.values |= {key[len(spelt) + 1 :]: keys.raw(key) for key in dotted}

    def get(self, key: str) -> Any:
        """The value of a key; None where it is not given."""
        self._used.add(key)
        return self.values.get(key)

    def left(self) -> list[str]:
        """Keys that were not read, as dotted names."""
        return [f"{self.name}.{key}" for key in self.values if key not in self._used]


def _json(keys: Keys, name: str, text: str) -> dict[str, Any]:
    """The JSON of an argument; empty where it is none."""
    try:
        table = json.loads(text)
    except (ValueError, RecursionError):
        if "$" in text:
            keys.ask(
                f"{name} has values that are not set in the file: the plan's words say them in --plan"
            )
        else:
            keys.problem(name, "is not JSON", text)
        return {}
    return table if isinstance(table, dict) else {}


def read_graphs(keys: Keys, left: list[str]) -> tuple[bool | None, int | None]:
    """Whether steps are replayed from graphs where that is said, and the largest batch that is captured.

    Level 0 has none (vllm/config/vllm.py: OptimizationLevel); a piecewise graph leaves attention out.
    """
    table = TableArgument(keys, "compilation_config")
    mode = str(table.get("cudagraph_mode") or "").upper().rpartition(".")[2]
    level = keys.text("optimization_level", "O")
    level = next((str(n) for n in range(4) if keys.flag(f"O{n}")), level)
    sizes = ("cudagraph_capture_sizes", "max_cudagraph_capture_size", "cuda_graph_sizes")
    own = largest(table.get(sizes[1])) or largest(table.get(sizes[0]))
    batch = own or largest(keys.raw(sizes[1])) or largest(keys.raw(sizes[0], sizes[2]))
    if mode == "PIECEWISE" or level == "1":
        left.append("compilation_config.cudagraph_mode")
    left += table.left()
    none = keys.flag("enforce_eager") or mode == "NONE" or level == "0"
    return (False if none else None), (None if none else batch)


def read_drafts(keys: Keys, left: list[str]) -> dict[str, object]:
    """Tokens that a draft proposes in each step, who does, and how many are kept where that is forced."""
    table = TableArgument(keys, "speculative_config")
    method = keys.text("spec_method") or table.get("method")
    model = keys.text("spec_model") or table.get("model")
    many = _number(table.get("num_speculative_tokens"), 1.0, 1000.0)
    many = many or keys.whole("spec_tokens", "num_speculative_tokens")
    forced = _number(table.get("synthetic_acceptance_length"), 1.0, 1000.0)
    table.get("rejection_sample_method")
    left += table.left()
    if not (method or model or many):
        return {}
    if many is None:
        many = _own_tokens(str(method or ""))
        if many is None:
            keys.doubt("speculative_config names no num_speculative_tokens, which its method needs")
            return {}
        keys.note(f"speculative_config names no number of tokens: {many}, the method's own")
    if method and not known_drafter(str(method)):
        left.append(f"speculative_config.method={method}")
    drafter = drafter_word(str(method or ""))
    if drafter is None and ((model and not method) or (method and not known_drafter(str(method)))):
        drafter = "model" if not method else "eagle3"
    found: dict[str, object] = {"draft_tokens": int(many), "drafter": drafter}
    if forced is not None and forced <= many + 1.0:
        found["accepted"] = forced - 1.0
    return found


def _number(value: object, low: float, high: float) -> float | None:
    """A number of a table or of a dotted flag; None where it is none, or out of range."""
    try:
        found = float(str(value))
    except ValueError:
        return None
    return found if low <= found <= high else None


def _own_tokens(method: str) -> int | None:
    """Tokens that a method drafts where none is told: a prediction block one for each of its layers
    (vllm/config/speculative.py); a suffix tree as deep as it may be."""
    if method.endswith("mtp"):
        return 1
    return 24 if method == "suffix" else None


def read_experts(keys: Keys, left: list[str]) -> int | None:
    """Redundant experts of the table of the load balancer, or of the older flag."""
    table = TableArgument(keys, "eplb_config")
    told = largest(table.get("num_redundant_experts"))
    left += table.left()
    return told or keys.whole("num_redundant_experts", low=0) or None


def read_transfer(keys: Keys, left: list[str]) -> None:
    """What a connector of caches says: one half of a split service, or caches kept outside the chips."""
    table = TableArgument(keys, "kv_transfer_config")
    if not table.values:
        keys.raw("kv_transfer_config")
        return
    connector, role = str(table.get("kv_connector") or ""), str(table.get("kv_role") or "")
    if any(part in connector.lower() for part in STORES) and role in ("", "kv_both"):
        left.append("kv_transfer_config")
        keys.note(f"{connector} keeps caches outside the chips: --simulate --kv-tiers with a trace or "
                  "sessions counts what comes back")  # fmt: skip
        return
    side = {"kv_producer": "prefill alone", "kv_consumer": "decode alone"}.get(role, "one side")
    keys.note(f"kv_transfer_config: this instance does {side}; --prefill-gpus and "
              "--prefill-plan describe the other side")  # fmt: skip
