"""A deployment as the command of an engine: the values below put behind the flags of its table (`writes`).

`--flag = "name"` writes the value of that name; `name>1` leaves one out; a key without dashes is one of the
engine's file of options, which is written before the command. What has no value is left out.
"""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import fields, replace

from foretell.errors import bad_input
from foretell.interop.arguments import parse_arguments, spell_key
from foretell.interop.edited_launch import changed_keys
from foretell.interop.launch import NO_TOOL, SERVING, Known, Launch, Tool, ToolArguments
from foretell.interop.tool_tables import table_of
from foretell.interop.tools import reader_of
from foretell.records import dataclass
from foretell.specs.deployment import Deployment
from foretell.specs.deployment_text import parse_deployment

HEADS = {"eagle3": "DRAFT_HEAD", "model": "DRAFT_MODEL", "dspark": "DRAFT_HEAD"}
"""What is to be named of a trained head and of a smaller model."""
OPTIONS_FILE = "extra.yml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A deployment to be written."""

    model: str
    """What the engine is to load: a repository, a folder or a name."""
    deployment: Deployment
    """How one instance is laid out; its memory_fraction by the rule of the engine that is written for."""
    batch: int | None = None
    """Sequences at once of one instance; None: what the deployment says, or the engine's own."""

    launch: Launch | None = None
    """The launch that it comes from, whose flags stay where they do not change."""
    as_read: Deployment | None = None
    """The deployment that the launch stated."""
    alone: bool = True
    """Whether it is the only instance."""
    narrowed: bool = True
    """Whether the weights are made narrow as they are loaded; else the checkpoint has their format."""

    @property
    def rank_sequences(self) -> int | None:
        """Sequences at once of one data-parallel rank."""
        if self.batch is None:
            return self.deployment.max_batch
        return -(-self.batch // self.deployment.dp)


def write_serving(tool: Tool, serving: Serving) -> ToolArguments:
    """A deployment as an engine's command, and what it does not say."""
    if tool not in SERVING:
        raise bad_input("export", tool, NO_TOOL, ", ".join(SERVING))
    text = write_command(tool, serving)
    if serving.launch is not None and serving.launch.flags and serving.as_read is not None:
        text = kept_command(tool, serving, text)
    launch = reader_of(tool)(parse_arguments(text), Known())
    meant = serving.deployment
    back = parse_deployment(launch.plan)
    notes = []
    for field in fields(Deployment):
        given, read = getattr(meant, field.name), getattr(back, field.name)
        if field.name == "max_batch":
            given = serving.rank_sequences
        if field.name == "accepted" or _close(given, read):
            continue
        if field.name in ("weights", "experts"):
            if given != "bf16" and not (field.name == "experts" and given == meant.weights):
                notes.append(
                    f"{field.name}={given}: {tool} takes it from a checkpoint in this format"
                )
            continue
        notes.append(f"{tool} writes {field.name}={read}, not {given}")
    return ToolArguments(tool=tool, text=text, notes=tuple(notes))


def _close(given: object, read: object) -> bool:
    """Equal, or numbers that print alike."""
    if isinstance(given, float) and isinstance(read, float):
        return abs(given - read) <= 1e-3 * max(abs(given), 1e-9)
    return given == read


def write_command(tool: Tool, serving: Serving) -> str:
    """The command, and before it the file of options where it needs one."""
    table, values = table_of(tool), _values(tool, serving)
    flags, inside = list[str](), dict[str, object]()
    for key, name in table.writes.items():
        field, more, _ = name.partition(">")
        value = values.get(field)
        if value is None or (more and value == 1):
            continue
        if key.startswith("-"):
            flags.append(f"{key} {shell_value(value)}".strip())
        else:
            inside[key] = value
    start = table.options["start"].format(serving.model)
    if not inside:
        return " ".join([start, *flags])
    command = " ".join([start, *flags, f"--config {OPTIONS_FILE}"])
    return "\n".join([f"cat > {OPTIONS_FILE} <<'EOF'", *_yaml(inside), "EOF", command])


PLACES = frozenset(
    """nnodes node_rank master_addr master_port dist_init_addr headless data_parallel_address
    data_parallel_rpc_port data_parallel_size_local data_parallel_start_rank data_parallel_rank""".split()
)
"""Flags that say where the ranks of one layout are; another layout has other places."""


def kept_command(tool: Tool, serving: Serving, written: str) -> str:
    """The written command with the flags of the launch that it comes from: what the two deployments say alike
    stays as it was, also what changes no answer. Not `alone`, it gets its port from the script around it."""
    assert serving.launch is not None
    assert serving.as_read is not None
    as_read = replace(serving, deployment=serving.as_read, batch=None)
    before, after = (_flags(text) for text in (write_command(tool, as_read), written))
    own = {spell_key(flag): flag for flag, _ in serving.launch.flags}
    changes = changed_keys(table_of(tool), own.__contains__, before, after)
    moved = any(changes.keys() & set(table_of(tool).fields[name]) for name in ("tp", "pp"))
    head = written.split("\n")[:-1]
    gone = {
        *(PLACES if moved else ()),
        *(() if serving.alone else ("port",)),
        *(("config",) if head else ()),
    }
    words = [table_of(tool).options["start"].format(serving.model)]
    for flag, value in serving.launch.flags:
        key = spell_key(flag)
        told = changes.pop(key, value)
        if key not in gone and told is not None:
            words.append(f"{flag} {told}".strip())
    more = changes if not head else {**changes, **{k: v for k, v in after.items() if k not in own}}
    words += [
        f"{_spelt(key, written)} {told}".strip() for key, told in more.items() if told is not None
    ]
    return "\n".join([*head, " ".join(words)])


def _flags(text: str) -> dict[str, str]:
    """Flags of a written command, with values as a shell takes them."""
    told = parse_arguments(text.rpartition("\n")[2]).pairs
    return {
        key: "" if value is True else shell_value(value)
        for key, value in told
        if key not in ("m", "model_path")
    }


def _spelt(key: str, command: str) -> str:
    """A flag as the writer spells it."""
    match = re.search(rf"--{re.escape(key).replace('_', '[-_]')}(?=\s|$)", command)
    return match[0] if match else f"--{key}"


def _yaml(values: Mapping[str, object]) -> list[str]:
    """Dotted keys as lines of YAML."""
    lines: list[str] = []
    for key, value in values.items():
        section, _, last = key.rpartition(".")
        if section and f"{section}:" not in lines:
            lines.append(f"{section}:")
        lines.append(f"{'  ' if section else ''}{last}: {shell_value(value)}")
    return lines


def _values(tool: Tool, serving: Serving) -> dict[str, object]:
    """What a table may write, by name; "" stands for a flag alone, None is left out."""
    d, each = serving.deployment, serving.rank_sequences

    def alone(on: bool) -> str | None:
        return "" if on else None

    narrow = {"fp8": "fp8", "fp8-block": "fp8"}.get(d.weights) if serving.narrowed else None
    cache = d.kv.startswith("fp8")
    values: dict[str, object] = {
        "tp": d.tp, "pp": d.pp, "dp": d.dp, "cp": d.cp, "ep": d.ep, "ranks": d.tp * d.dp * d.cp,
        "tp_dp": d.tp * d.dp, "spread": alone(d.ep > 1), "several": alone(d.dp > 1),
        "true_several": "true" if d.dp > 1 else None, "shared_prompts": alone(d.cp > 1),
        "max_context": d.max_context, "sequences": each, "max_tokens": d.max_tokens,
        "all_sequences": None if each is None else each * d.dp,
        "all_tokens": None if d.max_tokens is None else d.max_tokens * d.dp,
        "memory_fraction": d.memory_fraction, "quantization": narrow,
        "kv": "fp8" if cache else None, "kv_e4m3": "fp8_e4m3" if cache else None,
        "cache_bytes": round(1e9 * d.cache_gb) if d.cache_gb else None, "cache_tokens": d.cache_tokens,
        "cache_blocks": d.cache_tokens // 16 if d.cache_tokens else None,
        "stream_interval": d.stream_interval, "wait_steps": d.wait_steps or None,
        "eager": alone(not d.graph), "null_graphs": None if d.graph else "null",
        "offload_gb": f"{d.offload_gb:g}" if d.offload_gb else None,
    }  # fmt: skip
    if d.adapters:
        values |= {
            "lora": "",
            "lora_rank": d.adapter_rank,
            "lora_slots": d.adapter_slots or d.adapters,
        }
        values["lora_host"] = d.adapters if d.adapter_slots else None
    if d.draft_tokens:
        values |= _draft_values(tool, d)
    return values | (_wide_values(tool, d) if d.is_wide else {})


def _draft_values(tool: Tool, d: Deployment) -> dict[str, object]:
    """Who drafts how many tokens; heads and models that draft are to be named."""
    method = table_of(tool).options["methods"].get(d.drafter, d.drafter)
    head, own = HEADS.get(d.drafter), d.drafter == "mtp"
    table = {"method": method, "num_speculative_tokens": d.draft_tokens}
    chain = d.drafter != "ngram"
    return {
        "draft_method": method, "draft_model": head, "draft_tokens_and_last": d.draft_tokens + 1,
        "draft_table": json.dumps(table | ({"model": head} if head else {})),
        "draft_steps": d.draft_tokens if chain else None, "draft_branches": 1 if chain else None,
        "draft_tokens_mtp": d.draft_tokens if own else None,
        "draft_tokens_other": None if own else d.draft_tokens,
    }  # fmt: skip


def _wide_values(tool: Tool, d: Deployment) -> dict[str, object]:
    """What is assumed of a deployment with experts over many ranks (serving/wide_experts.py)."""
    own = table_of(tool).options.get("wide")
    if own is None:
        return {}
    waits = own["delay"] if d.wait_steps is None else round(d.wait_steps)
    balanced = d.eplb is not False
    copies = 32 if d.redundant_experts is None else d.redundant_experts
    told = own["chunk"] if d.max_tokens is None else d.max_tokens
    return {
        "all_tokens": told * d.dp,
        "wide_dispatch": "deepep" if d.dispatch in ("auto", "deepep") else None,
        "wide_delay": "" if waits else None,
        "wide_delay_passes": waits if waits not in (0, own["delay"]) else None,
        "wide_eplb": "" if balanced else None,
        "wide_redundant": copies if balanced and copies else None,
        "wide_tbo": None if d.tbo is False else "",
    }


def shell_value(value: object) -> str:
    """A value as a shell takes it; numbers without digits that say nothing."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return shlex.quote(value) if isinstance(value, str) and value else str(value)
