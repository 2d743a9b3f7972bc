"""Scripts that start more than one server: copies side by side, or the two halves of a disaggregated service.

Every command that starts a server is read by itself, with what the script sets before it. A half is known by
its own flag (SGLang's --disaggregation-mode, Dynamo's --is-prefill-worker, vLLM's kv_role), else by the port
that a router is told. Commands of other programs (routers, benchmarks, curl) are left out.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from foretell.errors import BadInput, Problem
from foretell.interop.arguments import like_yaml
from foretell.interop.launch import Launch, ReadValue

SERVER = re.compile(
    r"\bvllm serve\b|sglang\.launch_server\b|\btrtllm-serve\b(?! disaggregated)"
    r"|vllm\.entrypoints\.openai\.api_server|\bdynamo\.(?:vllm|sglang|trtllm)\b"
    r"|\b(?:docker|podman) run\b[\s\S]*vllm/vllm-openai"
)
"""What starts a server."""
OTHER = re.compile(
    r"proxy|router|load_balanc|\bbench|benchmark|^\s*(?:curl|wait|sleep|echo|kill|pkill|trap|ray)\b"
    r"|\b(?:docker|podman) (?:pull|stop|rm|logs|ps|network|build|kill)\b"
    r"|dynamo\.frontend|trtllm-serve disaggregated",
    re.IGNORECASE,
)
"""Lines of other programs."""
MOST_SERVERS = 256
"""Servers that one script may start: each is read by itself."""
_PREFILL_PORTS = re.compile(r"--prefill(?:er)?(?:-hosts?-)?(?:-?ports?)?[ =]+((?:\S*\d{4,5}\s*)+)")
_PORT = re.compile(r"--port[ =]+(\d+)")
_ROLES = (
    ("prefill", re.compile(r"--disaggregation-mode[ =]+prefill|--is-prefill-worker|kv_producer")),
    ("decode", re.compile(r"--disaggregation-mode[ =]+decode|--is-decode-worker|kv_consumer")),
)


def server_texts(text: str) -> list[str]:
    """The script once for every server that it starts, the other commands blank, so that lines keep their
    numbers; none where it starts one server and nothing else."""
    if "<<" in text or not SERVER.search(text) or like_yaml(text) or text.lstrip()[:1] == "{":
        return []
    blocks = _blocks(text)
    servers = [at for at, block in enumerate(blocks) if SERVER.search(block)]
    others = {at for at, block in enumerate(blocks) if OTHER.search(block)} - set(servers)
    if len(servers) < 2 and not others:
        return []
    if len(servers) > MOST_SERVERS:
        raise BadInput(
            [Problem(path="import", value=len(servers), message="is too many servers of one script",
                     allowed=f"at most {MOST_SERVERS}")]
        )  # fmt: skip
    apart = {*servers}
    return [
        "\n".join(
            "\n" * block.count("\n")
            if at in others or (at in apart and at != mine)
            else block.rstrip().removesuffix("&")
            for at, block in enumerate(blocks)
        )
        for mine in servers
    ]


def _blocks(text: str) -> list[str]:
    """Lines of a script, those that a backslash continues together; comments are blank."""
    found: list[str] = []
    going = False
    for line in text.splitlines():
        kept = "" if line.lstrip().startswith("#") and not going else line
        if going:
            found[-1] += "\n" + kept
        else:
            found.append(kept)
        going = kept.endswith("\\")
    return found


def read_servers(text: str, read: Callable[[str], Launch]) -> Launch | None:
    """All servers of a script as one launch; None where the script is to be read as a whole."""
    texts = server_texts(text)
    if not texts:
        return None
    launches = [_without_half(read(one), one) for one in texts]
    roles = [_role(one, text) for one in texts]
    decoding = [launch for launch, role in zip(launches, roles, strict=True) if role != "prefill"]
    prefilling = [launch for launch, role in zip(launches, roles, strict=True) if role == "prefill"]
    if not decoding or not prefilling:
        return _side_by_side(launches)
    whole, half = _side_by_side(decoding), _side_by_side(prefilling)
    return joined_halves(whole, half.gpus or 1, half.plan, half.doubts)


def joined_halves(
    whole: Launch, prefill_gpus: int, prefill_plan: str, doubts: Sequence[str] = ()
) -> Launch:
    """A launch of decode instances with the chips and the layout of those that do prefill alone."""
    total = (whole.gpus or 1) + prefill_gpus
    rows = [replace(row, value=str(total)) if row.name == "gpus" else row for row in whole.values]
    rows += [
        ReadValue(name="prefill_gpus", value=str(prefill_gpus), origin="file", key="prefill"),
        ReadValue(name="prefill_plan", value=prefill_plan, origin="file", key="prefill"),
    ]
    return replace(
        whole,
        gpus=total,
        prefill_gpus=prefill_gpus,
        prefill_plan=prefill_plan,
        values=tuple(rows),
        doubts=tuple(dict.fromkeys((*whole.doubts, *doubts))),
    )


def _side_by_side(launches: Sequence[Launch]) -> Launch:
    """Servers of one kind: as many instances of the first; another layout is in doubt."""
    first = launches[0]
    if len(launches) == 1:
        return first
    total = sum(one.gpus or 1 for one in launches)
    rows = tuple(
        replace(row, value=str(total)) if row.name == "gpus" else row for row in first.values
    )
    doubts = [text for one in launches for text in one.doubts]
    if len({(one.plan, one.models) for one in launches}) > 1:
        doubts.append("several servers of different layouts: one layout at a time is computed")
    note = f"{len(launches)} servers side by side"
    return replace(
        first,
        gpus=total,
        values=rows,
        doubts=tuple(dict.fromkeys(doubts)),
        notes=(*first.notes, note),
    )


def _role(command: str, text: str) -> str:
    """prefill, decode, or nothing."""
    for role, pattern in _ROLES:
        if pattern.search(command):
            return role
    ports = {
        port for found in _PREFILL_PORTS.findall(text) for port in re.findall(r"\d{4,5}", found)
    }
    match = _PORT.search(command)
    return "" if match is None or not ports else "prefill" if match[1] in ports else "decode"


def _without_half(launch: Launch, command: str) -> Launch:
    """A server without the notes and doubts that it is one half: the other is at hand."""
    told = [text for text in launch.notes if "describe the other side" not in text]
    doubts = [text for text in launch.doubts if "one half of a disaggregated service" not in text]
    known = any(pattern.search(command) for _, pattern in _ROLES)
    return replace(launch, notes=tuple(told), doubts=tuple(doubts)) if known else launch
