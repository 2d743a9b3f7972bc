"""The verbs as tools of an assistant: schemas from the questions, answers short enough to read.

A tool is what `POST /api/VERB` is: the same fields, limits and refusals, and no file of the user is
ever opened. The same schemas serve function calling. `foretell mcp` serves them over the Model Context
Protocol, by its official Python SDK, with the catalogue and published runs as resources.
"""

import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from foretell import __version__
from foretell.errors import BadInput
from foretell.records import dataclass
from foretell.specs.questions import question_type
from foretell.specs.questions.flags import QuestionField, most_wanted, offered
from foretell.web import answers, lists
from foretell.web.limits import Limits

Schema = dict[str, Any]
DIGITS = 4
"""Digits of a number in a short answer."""
MOST_ROWS, MOST_DEEP, MOST_TEXT = 8, 5, 6000
"""Rows of a list, levels and characters of a short answer."""
MOST_FIELDS, MOST_WORDS, MOST_MORE = 6, 56, 200
"""Fields of a tool's schema, and characters about one of them and about the rest."""
TYPES: Mapping[str, Any] = {
    "text": "string", "document": "string", "words": "string", "whole": "integer", "decimal": "number",
    "switch": "boolean", "settings": "array", "texts": "array", "names": "array", "rows": "array",
    "table": "object", "named": "string",
}  # fmt: skip
"""Types of JSON by the kind of a field; else a text or a number."""
SHORT = {
    "model": "Id such as llama-3.1-70b",
    "system": "Id such as h100-sxm",
    "measured": 'Measured runs, as "tp8 pp4: 15.2 s"',
    "set": "Overrides, as network.node.latency_s=2us",
}
"""What some fields are, in fewer words than their help."""
KINDS = ("chips", "systems", "models")
NEEDED = {
    "read": ("text", "the text of a launch"),
    "catalog": ("kind", ", ".join(KINDS)),
    "catalog show": ("name", "an id or alias"),
}
"""What tools that are no verbs must have."""
LISTED = ("catalog", "catalog show", "read")
"""Lists that are tools too, and the reader of a launch."""
WHOLE = ("presentation", "read_back", "interval", "intervals")
"""What of an answer is never cut: its headline and labelled numbers, every value of a launch, intervals."""
ABOUT: Mapping[str, str] = {
    "estimate": "Step time, tokens/s, MFU, memory and energy of training a model, with intervals; with "
    "tokens the days and GPU-hours of the run.",
    "search": "The fastest parallel plans (tp, pp, ZeRO ...) that fit.",
    "explain": "Where a training step's time and memory go, and what would move them.",
    "memory": "GiB of every pipeline stage over a training step, and its peak.",
    "simulate": "A training step event by event: bubbles, overlap, stragglers.",
    "compare-plans": "Why plan a is faster or slower than plan b.",
    "sensitivity": "What the step time gains if a number of the hardware were better.",
    "improve": "What a launch script would gain from other flags, and which.",
    "diagnose": "Why a measured run or service is slower than predicted.",
    "post-train": "Time, memory and cost of a step of SFT, DPO, PPO, GRPO ...",
    "serve": "TTFT, TPOT, throughput, memory and cost of a deployment under a load.",
    "size": "How many GPUs a service needs for a rate and latency targets, and the cost.",
    "fleet": "How many GPUs several models need together.",
    "compare": "Which system is cheapest or fastest for a model.",
    "scaling": "Throughput of strategies over numbers of GPUs.",
    "codesign": "The front of cost and performance over designs (a study as an object).",
    "optimise": "Designs searched by trial (a study as an object).",
    "network": "Time and bandwidth of a collective.",
    "cost chip": "USD of a die.",
    "cost package": "USD of a package with memory.",
    "cost system": "USD of a cluster over its years, or rented.",
    "cost run": "USD, MWh and CO2 of a training run.",
    "cost token": "USD and joules of a million tokens served.",
}
"""What each tool is for; other verbs are described by their name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReply:
    """What a tool answers."""

    record: dict[str, Any]
    """The answer as JSON, cut to what can be read; whole where that was asked for."""
    failed: bool
    """Whether the input was refused."""

    @property
    def text(self) -> str:
        """The record as text."""
        return json.dumps(self.record, ensure_ascii=False, default=str)


def tools() -> list[Schema]:
    """Every tool: name, what it answers, and the JSON schema of its input.

    A schema has the fields that are wanted most, so that all of them together are short; the rest go into
    `more` by their names.
    """
    found = [_verb_tool(verb) for verb in answers.VERBS]
    kinds = {"type": "string", "enum": [*KINDS]}
    found.append(
        _tool("catalog", "Ids of the chips, systems or models that are known.", {"kind": kinds})
    )
    name = _text("An id or alias of a chip, a system or a model.")
    found.append(
        _tool(
            "catalog show",
            "Every number of a chip, system or model, with its source.",
            {"name": name},
        )
    )
    about = "What a launch script or manifest says: every value with its key and line, and what it lacks."
    found.append(_tool("read", about, {"text": _text("The file, as it is.")}))
    return found


def _verb_tool(verb: str) -> Schema:
    """The tool of a verb."""
    fields = offered(question_type(verb), "web")
    shown = most_wanted(fields, MOST_FIELDS)
    properties = {field.called: _property(field) for field in shown}
    rest = [field.called for field in fields if field not in shown]
    if rest:
        properties["more"] = {
            "type": "object",
            "description": textwrap.shorten(
                f"Also: {' '.join(rest)}", MOST_MORE, placeholder=" ..."
            ),
        }
    properties["full"] = {"type": "boolean", "description": "The whole answer."}
    needed = [field.called for field in fields if field.needed]
    return _tool(verb, ABOUT.get(verb, f"What `foretell {verb}` answers."), properties, needed)


def _property(field: QuestionField) -> Schema:
    """A field in a few words."""
    said = (field.flag.help or field.called).partition(";")[0].partition(" (")[0].rstrip(".")
    kind: Any = TYPES.get(field.flag.kind, ["string", "number"])
    if field.flag.kind in ("named", "rows", "settings"):
        said = SHORT.get(field.called, said)
    return {"type": kind, "description": said[:MOST_WORDS]}


def _text(about: str) -> Schema:
    return {"type": "string", "description": about}


def _tool(
    verb: str, about: str, properties: Mapping[str, Schema], needed: Sequence[str] | None = None
) -> Schema:
    """A tool with the fields that it must have; all of them where nothing else is stated."""
    schema: Schema = {"type": "object", "properties": dict(properties)}
    if required := list(properties if needed is None else needed):
        schema["required"] = required
    return {"name": tool_name(verb), "description": about, "input_schema": schema}


def tool_name(verb: str) -> str:
    """A verb as a tool's name: letters and underscores."""
    return verb.replace(" ", "_").replace("-", "_")


def call(name: str, given: Mapping[str, Any], limits: Limits | None = None) -> ToolReply:
    """Answer one call; what is wrong with it is an answer too."""
    from foretell.web.worker import HINT, SHOWN, answer

    verbs = {tool_name(verb): verb for verb in (*answers.VERBS, *LISTED)}
    if name not in verbs:
        allowed = ", ".join(sorted(verbs))
        wrong = {"path": "tool", "message": f"{name} is no tool", "allowed": allowed}
        return ToolReply(record={"errors": [wrong]}, failed=True)
    asked = {key: value for key, value in given.items() if value is not None}
    full, more = bool(asked.pop("full", False)), asked.pop("more", {})
    if isinstance(more, Mapping):
        asked = {**{k: v for k, v in more.items() if v is not None}, **asked}
    refused = _checked(verbs[name], asked)
    if refused is not None:
        return ToolReply(record=refused, failed=True)
    status, _, content = answer(f"{SHOWN}{HINT}{verbs[name]}", asked, limits or Limits())
    found = json.loads(content)
    if isinstance(found, list):  # of the catalogue: its ids, which are what a question needs
        found = {"entries": found} if full else {"ids": [entry["id"] for entry in found]}
        return ToolReply(record=found, failed=False)
    record: dict[str, Any] = found
    record.get("presentation", {}).pop("tables", None)  # their rows are in the answer
    return ToolReply(record=record if full else short(record), failed=status != 200)


def _checked(verb: str, given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Problems of names and types, as the web API has them; None where there are none."""
    if verb in NEEDED and not isinstance(given.get(NEEDED[verb][0]), str):
        path, allowed = NEEDED[verb]
        return {"errors": [{"path": path, "message": "is missing", "allowed": allowed}]}
    if verb not in answers.VERBS:
        return None
    from pydantic import ValidationError

    from foretell.web.fields import body_model, errors_of, problems_of

    body = body_model(verb, question_type(verb))
    try:
        body.model_validate(dict(given))
    except ValidationError as error:
        problems = problems_of(_in_body(error.errors()), verb, {verb: body})
        return dict(errors_of(problems))
    return None


def _in_body(errors: Any) -> list[Any]:
    return [{**error, "loc": ("body", *error["loc"])} for error in errors]


def short(record: Mapping[str, Any]) -> dict[str, Any]:
    """An answer cut to what can be read: few digits, few rows, no tree below its first levels.

    What was left out is stated, and `full` has it.
    """
    cut: dict[str, Any] = {}
    for rows, deep in ((MOST_ROWS, MOST_DEEP), (5, 4), (3, 3), (2, 2), (1, 1)):
        cut = {
            key: value if key in WHOLE else _cut(value, rows, deep) for key, value in record.items()
        }
        if len(json.dumps(cut, default=str)) <= MOST_TEXT:
            return cut
    plain = {key: value for key, value in cut.items() if not isinstance(value, dict | list)}
    return {**plain, **{name: record[name] for name in WHOLE if name in record}}


def _cut(value: Any, rows: int, deep: int) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        if deep <= 0:
            return f"{len(value)} fields omitted; ask with full=true"
        return {key: _cut(one, rows, deep - 1) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        if deep <= 0:
            return f"{len(value)} rows omitted; ask with full=true"
        kept = [_cut(one, rows, deep - 1) for one in value[:rows]]
        left = len(value) - len(kept)
        return [*kept, f"{left} more omitted; ask with full=true"] if left else kept
    return value


if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

INSTRUCTIONS = (
    "Foretell predicts what a transformer costs before it is run: time, memory, parallel plan, energy and "
    "money of training, fine-tuning and serving. Name models and systems as the catalogue does (tools "
    "catalog and catalog_show); write gpus as 64xH100. Every answer has its 90 % interval and what was "
    "assumed: say both."
)
SCHEME = "foretell://"
MIME = "application/json"


def make_server() -> "Server[Any]":
    """The server, with no transport yet."""
    import mcp_types as types
    from anyio import to_thread
    from mcp.server.lowlevel import Server

    async def list_tools(context: Any, params: Any) -> Any:
        known = [types.Tool.model_validate(_described(one)) for one in tools()]
        return types.ListToolsResult(tools=known)

    async def call_tool(context: Any, params: Any) -> Any:
        found = await to_thread.run_sync(call, params.name, params.arguments or {})
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=found.text)],
            structured_content=found.record,
            is_error=found.failed,
        )

    async def list_resources(context: Any, params: Any) -> Any:
        about = {
            **{f"catalog/{kind}": f"Every one of the {kind} of the catalogue." for kind in KINDS},
            "accuracy": "Published training steps beside our predictions.",
        }
        known = [
            types.Resource(uri=SCHEME + name, name=name, description=text, mime_type=MIME)
            for name, text in about.items()
        ]
        return types.ListResourcesResult(resources=known)

    async def list_templates(context: Any, params: Any) -> Any:
        entry = types.ResourceTemplate(
            uri_template=SCHEME + "catalog/show/{name}",
            name="catalog entry",
            description="One chip, system or model with its sources.",
            mime_type=MIME,
        )
        return types.ListResourceTemplatesResult(resource_templates=[entry])

    async def read_resource(context: Any, params: Any) -> Any:
        text = await to_thread.run_sync(resource_text, str(params.uri))
        held = types.TextResourceContents(uri=params.uri, mime_type=MIME, text=text)
        return types.ReadResourceResult(contents=[held])

    return Server(
        "foretell",
        version=__version__,
        title="Foretell",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
    )


def _described(one: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": one["name"],
        "description": one["description"],
        "inputSchema": one["input_schema"],
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    }


def resource_text(uri: str) -> str:
    """What a resource holds, as JSON; ValueError where there is none of that name."""
    name = uri.removeprefix(SCHEME)
    if name == "accuracy":
        rows = lists.published_rows({})
        return json.dumps({"rows": len(rows), **short({"published": rows})}, default=str)
    kind = name.removeprefix("catalog/")
    if kind in KINDS:
        return json.dumps(lists.catalogue({"kind": kind}), default=str)
    if name.startswith("catalog/show/"):
        try:
            return json.dumps(lists.show_entry({"name": kind.removeprefix("show/")}), default=str)
        except BadInput as error:
            raise ValueError(str(error)) from None
    known = ", ".join(f"{SCHEME}catalog/{one}" for one in KINDS)
    raise ValueError(f"no resource {uri}; there are {known}, {SCHEME}accuracy")


async def serve_stdio() -> None:
    """Answer on standard input and output until they are closed."""
    from mcp.server.stdio import stdio_server

    server = make_server()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
