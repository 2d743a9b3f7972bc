"""The verbs as tools of an assistant: schemas from the questions, answers short enough to read.

A tool is what `POST /api/VERB` is: the same fields, limits and refusals, and no file of the user is
ever opened. The same schemas serve function calling.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from foretell.records import dataclass
from foretell.specs.questions import question_type
from foretell.web import answers
from foretell.web.limits import Limits

Schema = dict[str, Any]
DIGITS = 4
"""Digits of a number in a short answer."""
MOST_ROWS, MOST_DEEP, MOST_TEXT = 8, 5, 6000
"""Rows of a list, levels and characters of a short answer."""
LISTED = ("catalog", "catalog show", "read")
"""Lists that are tools too, and the reader of a launch."""
WHOLE = ("read_back",)
"""What of an answer is never cut: every value of a launch, and where it is from."""
ABOUT: Mapping[str, str] = {
    "estimate": "Time, rate, memory and energy of one training step of a model on a system.",
    "search": "The best parallel plans of a training job, ranked by step time.",
    "explain": "Where the time and memory of a training step go, and what would move them.",
    "memory": "What every pipeline stage holds over one training step, its peak and when.",
    "simulate": "One training step simulated event by event.",
    "compare-plans": "Why one parallel plan beats another, and whether that is certain.",
    "sensitivity": "How step time, cost and energy answer to every number of the system.",
    "serve": "Latencies, throughput, memory, cost and energy of one deployment under one load.",
    "size": "How many GPUs a service takes for a rate and latency targets, laid out how, at what cost.",
    "fleet": "How many GPUs several models take, each on its own or sharing chips, at what cost.",
    "compare": "Systems ranked by cost, then speed.",
    "scaling": "Throughput of parallel strategies over numbers of GPUs.",
    "codesign": "The front of performance and cost over architectural choices.",
    "optimise": "Architectures searched by trial for objectives within limits.",
    "network": "Time and bandwidth of one collective on a system.",
    "cost chip": "What the dies of a chip cost.",
    "cost package": "What a package with its dies and memory costs.",
    "cost system": "What a cluster costs: capital, years, hours, renting.",
    "cost run": "Money, energy and carbon of a training run.",
    "cost token": "Money, energy and carbon of a million tokens.",
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
    """Every tool: name, description and the JSON schema of its input."""
    from foretell.web.fields import body_model

    found = []
    for verb in answers.VERBS:
        schema = _plain(body_model(verb, question_type(verb)).model_json_schema())
        schema["properties"]["full"] = {
            "type": "boolean",
            "description": "The whole answer instead of a short one. Default: false.",
        }
        found.append(_tool(verb, ABOUT.get(verb, f"What `foretell {verb}` answers."), schema))
    kinds = {"type": "string", "enum": ["chips", "systems", "models"]}
    listed = {"type": "object", "properties": {"kind": kinds}, "required": ["kind"]}
    found.append(_tool("catalog", "Chips, systems or models that are known, by id.", listed))
    name = {"type": "string", "description": "An id or alias of a chip, a system or a model."}
    shown = {"type": "object", "properties": {"name": name}, "required": ["name"]}
    found.append(_tool("catalog show", "One entry of the catalogue with its sources.", shown))
    text = {
        "type": "string",
        "description": "A launch script, manifest or configuration, as it is.",
    }
    pasted = {"type": "object", "properties": {"text": text}, "required": ["text"]}
    about = (
        "What a launch of another tool says: every value with its key and line, and what it lacks."
    )
    found.append(_tool("read", about, pasted))
    return found


def _tool(verb: str, about: str, schema: Schema) -> Schema:
    return {"name": tool_name(verb), "description": about, "input_schema": schema}


def tool_name(verb: str) -> str:
    """A verb as a tool's name: letters and underscores."""
    return verb.replace(" ", "_").replace("-", "_")


def call(name: str, given: Mapping[str, Any], limits: Limits | None = None) -> ToolReply:
    """Answer one call; what is wrong with it is an answer too."""
    from foretell.web.worker import HINT, answer

    verbs = {tool_name(verb): verb for verb in (*answers.VERBS, *LISTED)}
    if name not in verbs:
        allowed = ", ".join(sorted(verbs))
        wrong = {"path": "tool", "message": f"{name} is no tool", "allowed": allowed}
        return ToolReply(record={"errors": [wrong]}, failed=True)
    asked = {key: value for key, value in given.items() if value is not None}
    full = bool(asked.pop("full", False))
    refused = _checked(verbs[name], asked)
    if refused is not None:
        return ToolReply(record=refused, failed=True)
    status, _, content = answer(f"{HINT}{verbs[name]}", asked, limits or Limits())
    found = json.loads(content)
    if isinstance(found, list):  # of the catalogue: its ids, which are what a question needs
        found = {"entries": found} if full else {"ids": [entry["id"] for entry in found]}
        return ToolReply(record=found, failed=False)
    record: dict[str, Any] = found
    return ToolReply(record=record if full else short(record), failed=status != 200)


def _checked(verb: str, given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Problems of names and types, as the web API has them; None where there are none."""
    if verb == "read" and not isinstance(given.get("text"), str):
        wrong = {"path": "text", "message": "is missing", "allowed": "the text of a launch"}
        return {"errors": [wrong]}
    if verb not in answers.VERBS:
        return None
    from pydantic import ValidationError

    from foretell.web.fields import body_model
    from foretell.web.wrong import errors_of, problems_of

    body = body_model(verb, question_type(verb))
    try:
        body.model_validate(dict(given))
    except ValidationError as error:
        problems = problems_of(_in_body(error.errors()), verb, {verb: body})
        return dict(errors_of(problems))
    return None


def _in_body(errors: Any) -> list[Any]:
    return [{**error, "loc": ("body", *error["loc"])} for error in errors]


def _plain(schema: Schema) -> Schema:
    """A schema without what a reader has no use for: titles, nulls and the ends of 53-bit numbers."""
    found: Schema = _walk(
        schema, lambda one: {k: v for k, v in one.items() if k not in ("title", "$defs")}
    )
    for about in found["properties"].values():
        kinds = [kind for kind in about.pop("anyOf", []) if kind.get("type") != "null"]
        about.pop("default", None)
        if len(kinds) == 1:
            about.update(kinds[0])
        elif kinds:
            about["anyOf"] = kinds
    plain: Schema = _walk(found, _without_ends)
    return plain


def _without_ends(one: Schema) -> Schema:
    wide = {"minimum": -(2**53), "maximum": 2**53, "maxLength": 2000}
    return {k: v for k, v in one.items() if wide.get(k) != v}


def _walk(value: Any, change: Callable[[Schema], Schema]) -> Any:
    if isinstance(value, dict):
        return change({key: _walk(one, change) for key, one in value.items()})
    return [_walk(one, change) for one in value] if isinstance(value, list) else value


def short(record: Mapping[str, Any]) -> dict[str, Any]:
    """An answer cut to what can be read: few digits, few rows, no tree below its first levels.

    What was left out is said, and `full` has it.
    """
    cut: dict[str, Any] = {}
    for rows, deep in ((MOST_ROWS, MOST_DEEP), (5, 4), (3, 3), (2, 2), (1, 1)):
        cut = {
            key: value if key in WHOLE else _cut(value, rows, deep) for key, value in record.items()
        }
        if len(json.dumps(cut, default=str)) <= MOST_TEXT:
            return cut
    plain = {key: value for key, value in cut.items() if not isinstance(value, dict | list)}
    kept = ("interval", *WHOLE)
    return {**plain, **{name: record[name] for name in kept if name in record}}


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
