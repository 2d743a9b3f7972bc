"""Models in our own TOML: the records of `foretell.specs` field by field.

The keys are the names of the fields, tables nest as the records do, and what has a default may be
left out. Two things are added: `kind` says which record a mixer or a feed-forward part is (see
`KINDS`), and `repeat` in a layer stands for that many equal layers in a row:

    id = "small"
    family = "gpt"
    kind = "decoder"
    max_positions = 2048
    embedding = { vocab = 50257, positions = 2048 }
    head = { outputs = 50257, tied = true }

    [stack]
    hidden = 768
    final_norm = "layer"

    [[stack.layers]]
    repeat = 12
    norm_kind = "layer"
    mixers = [{ kind = "attention", heads = 12, kv_heads = 12, head_dim = 64 }]
    ffn = { kind = "dense", width = 3072, gated = false, activation = "gelu" }

`write_toml` gives this text back, so that reading what was written gives the same model.
"""

import json
import tomllib
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from foretell.errors import BadInput, Problem, bad_input, nearest_name, wrong
from foretell.interop.user_files import check_file, is_too_deep
from foretell.specs.block import Block
from foretell.specs.ffn import Dense, Experts
from foretell.specs.mixers import Attention, DeltaNet, LatentAttention, Mamba2, Replacement
from foretell.specs.model import Layer, Model
from foretell.workload.blocks import block_kinds

KINDS: dict[str, type] = {
    "attention": Attention,
    "latent": LatentAttention,
    "mamba2": Mamba2,
    "deltanet": DeltaNet,
    "replacement": Replacement,
    "dense": Dense,
    "experts": Experts,
}
"""`kind` of a mixer or a feed-forward part, and its record."""
NAMES = {record: kind for kind, record in KINDS.items()}
ZERO_OK = frozenset({"outputs", "norms", "width"})
"""Whole numbers that may be 0 though their default is not."""
MOST = 10**9
"""Largest width, count or table."""
TOTALS = frozenset({"parameters", "extra_parameters", "own_tables"})
"""Fields that count weights, which may be more than `MOST`."""
TOTAL_MOST = 10**15
LAYERS_MOST = 10_000


def read_toml(path: Path) -> Model:
    """The model of a TOML file; every problem at once as `BadInput`."""
    check_file(path)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise _bad(path, "there is no such file") from None
    except OSError as error:
        raise _bad(path, f"cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise _bad(path, "is not UTF-8 text") from None
    except RecursionError:
        raise _bad(path, "is nested too deeply") from None
    except ValueError as error:
        raise _bad(path, f"is not TOML: {error}") from None
    if is_too_deep(table):
        raise _bad(path, "is nested too deeply")
    return read_table(table, id=path.stem, name=path.name)


def read_table(table: dict[str, Any], *, id: str, name: str = "model") -> Model:
    """The model of a parsed table; `id` where the table has none."""
    problems: list[Problem] = []
    model = _record(Model, {"id": id, **table}, f"{name}: ", problems)
    if isinstance(model, Model) and not problems:
        _rules(model, f"{name}: ", problems)
    if problems or not isinstance(model, Model):
        raise BadInput(problems)
    return model


def write_toml(model: Model) -> str:
    """The model as TOML that `read_toml` reads back; defaults are left out."""
    lines = _pairs(model, skip=("stack", "encoder"))
    for name in ("stack", "encoder"):
        stack = getattr(model, name)
        if stack is None:
            continue
        lines += ["", f"[{name}]", *_pairs(stack, skip=("layers",))]
        for layer, repeat in _runs(stack.layers):
            lines += ["", f"[[{name}.layers]]"]
            if repeat > 1:
                lines.append(f"repeat = {repeat}")
            lines += _pairs(layer)
    return "\n".join(lines) + "\n"


# ---- reading ------------------------------------------------------------------------------------


def _record(record: type, table: object, path: str, problems: list[Problem]) -> object:
    """The record that a table gives, or None with problems."""
    if not isinstance(table, dict):
        _say(problems, path, "is not a table", table)
        return None
    if "kind" in table and table["kind"] == _kind(record):  # said where it need not be
        table = {key: value for key, value in table.items() if key != "kind"}
    before = len(problems)
    known = {field.name: field for field in fields(record)}
    hints = get_type_hints(record)
    given: dict[str, Any] = {}
    for key, value in table.items():
        if key not in known:
            near = nearest_name(key, known)
            _say(problems, path + key, f"is not a field of a {record.__name__}", nearest=near)
            continue
        low = 0 if key in ZERO_OK or known[key].default == 0 else 1
        given[key] = _value(hints[key], value, path + key, problems, low)
    for key, field in known.items():
        if key not in table and _required(field):
            if NoneType in get_args(hints[key]):  # TOML has no null: left out is none
                given[key] = None
            else:
                _say(problems, path + key, "is missing")
    return record(**given) if len(problems) == before else None


def _value(hint: Any, value: Any, path: str, problems: list[Problem], low: int) -> Any:
    """The value as the field's type wants it, or None with a problem."""
    origin, choices = get_origin(hint), get_args(hint)
    if origin in (UnionType, Union):
        records = [choice for choice in choices if is_dataclass(choice)]
        roles = [
            choice for choice in choices if isinstance(choice, type) and issubclass(choice, Block)
        ]
        if roles or len(records) > 1:
            return _kinded(records, roles, value, path, problems)
        plain = next(choice for choice in choices if choice is not NoneType)
        return _value(plain, value, path, problems, low)
    if origin is tuple:
        return _many(choices[0], value, path, problems)
    if origin is Literal:
        if value not in choices:
            _say(problems, path, "is none of these", value, ", ".join(map(str, choices)))
        return value
    if is_dataclass(hint):
        return _record(hint, value, f"{path}.", problems)  # type: ignore[arg-type]
    return _plain(hint, value, path, problems, low)


def _plain(hint: Any, value: Any, path: str, problems: list[Problem], low: int) -> Any:
    """A whole number in range, a flag or a text."""
    if hint is int:
        whole = isinstance(value, int) and not isinstance(value, bool)
        most = TOTAL_MOST if path.rpartition(".")[2] in TOTALS else MOST
        if not whole or not low <= value <= most:
            allowed = f"a whole number from {low} to {most}"
            _say(problems, path, "is no whole number in range", value, allowed)
    elif hint is float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 < value <= MOST:
            _say(problems, path, "is no number above 0", value)
    elif not isinstance(value, hint):
        names = {bool: "true or false", str: "a text"}
        _say(problems, path, "is of the wrong kind", value, names.get(hint))
    return value


def _many(hint: Any, value: Any, path: str, problems: list[Problem]) -> tuple[Any, ...]:
    """A list of records or texts; equal layers in a row may be written once with `repeat`."""
    if not isinstance(value, list):
        _say(problems, path, "is not a list", value)
        return ()
    made: list[Any] = []
    for index, item in enumerate(value):
        here, repeat = f"{path}[{index}]", 1
        if hint is Layer and isinstance(item, dict) and "repeat" in item:
            repeat = item["repeat"]
            whole = isinstance(repeat, int) and not isinstance(repeat, bool)
            if not whole or not 1 <= repeat <= LAYERS_MOST:
                allowed = f"a whole number from 1 to {LAYERS_MOST}"
                _say(problems, f"{here}.repeat", "is no number of layers", repeat, allowed)
                repeat = 1
            item = {key: held for key, held in item.items() if key != "repeat"}
        made += [_value(hint, item, here, problems, 1)] * repeat
    if hint is Layer and not 1 <= len(made) <= LAYERS_MOST:
        allowed = f"1 to {LAYERS_MOST} layers"
        _say(problems, path, f"has {len(made)} layers", allowed=allowed)
    return tuple(made)


def _kinded(
    records: list[Any], roles: list[type], value: Any, path: str, problems: list[Problem]
) -> object:
    """One of several records, stated by `kind`; blocks of a role are looked for where no other has it."""
    known: dict[str, type] = {NAMES[record]: record for record in records}
    if roles and not (isinstance(value, dict) and value.get("kind") in list(known)):
        blocks = block_kinds().items()
        known |= {kind: block for kind, block in blocks if issubclass(block, tuple(roles))}
    names = [*known]
    allowed = ", ".join(names)
    if not isinstance(value, dict) or "kind" not in value:
        _say(problems, f"{path}.kind", "is missing", allowed=allowed)
        return None
    kind = value["kind"]
    if kind not in names:
        near = nearest_name(kind, names) if isinstance(kind, str) else None
        _say(problems, f"{path}.kind", "is unknown", kind, allowed, near)
        return None
    return _record(known[kind], value, f"{path}.", problems)


def _rules(model: Model, path: str, problems: list[Problem]) -> None:
    """What must hold between fields."""
    for name, stack in (("stack", model.stack), ("encoder", model.encoder)):
        for layer in dict.fromkeys(stack.layers if stack is not None else ()):
            for mixer in layer.mixers:
                if isinstance(mixer, Attention) and mixer.heads % mixer.kv_heads:
                    message = f"{mixer.heads} heads cannot share {mixer.kv_heads} kv_heads evenly"
                    _say(problems, f"{path}{name}.layers", message)
                if isinstance(mixer, Attention) and mixer.factor and _low_rank(mixer):
                    message = "maps cannot be factorised beside low ranks, gates or shared keys"
                    _say(problems, f"{path}{name}.layers", message)
            if isinstance(layer.ffn, Experts) and layer.ffn.top_k > layer.ffn.experts:
                message = f"top_k = {layer.ffn.top_k} of {layer.ffn.experts} experts"
                _say(problems, f"{path}{name}.layers", message)
    if (model.kind == "encoder-decoder") != (model.encoder is not None):
        _say(problems, f"{path}encoder", f"does not go with kind {model.kind!r}")
    if model.head.tied and model.head.outputs != model.embedding.vocab:
        message = f"tied to a table of {model.embedding.vocab} rows"
        _say(problems, f"{path}head.outputs", message, model.head.outputs)


def _low_rank(mixer: Attention) -> bool:
    """Whether the maps before the scores are others than queries, keys and values."""
    plain = mixer.owns_kv and not mixer.value_is_key and mixer.output_gate != "element"
    return not plain or mixer.q_rank is not None


def _say(
    problems: list[Problem],
    path: str,
    message: str,
    value: object = None,
    allowed: str | None = None,
    nearest: str | None = None,
) -> None:
    problems.append(wrong(path, value, message, allowed, nearest))


def _kind(record: type) -> str | None:
    """The name of a record that is known by its kind."""
    return record.kind if issubclass(record, Block) else NAMES.get(record)


def _required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _bad(path: Path, message: str) -> BadInput:
    return bad_input(str(path).encode("utf-8", "backslashreplace").decode(), None, message)


# ---- writing ------------------------------------------------------------------------------------


def _pairs(record: Any, skip: tuple[str, ...] = ()) -> list[str]:
    """`key = value` for each field that is not at its default."""
    return [
        f"{field.name} = {_text(getattr(record, field.name))}"
        for field in fields(record)
        if field.name not in skip and getattr(record, field.name) not in (field.default, None)
    ]


def _text(value: Any) -> str:
    """A value as inline TOML; JSON's strings, numbers and flags are TOML's too."""
    if is_dataclass(value):
        pairs = _pairs(value)
        if kind := _kind(type(value)):
            pairs.insert(0, f'kind = "{kind}"')
        return "{ " + ", ".join(pairs) + " }" if pairs else "{}"
    if isinstance(value, tuple):
        items = [_text(item) for item in value]
        return "[" + ", ".join(items) + "]"
    return json.dumps(value, ensure_ascii=False)


def _runs(layers: tuple[Layer, ...]) -> list[tuple[Layer, int]]:
    """Equal layers in a row as (layer, how many)."""
    runs: list[tuple[Layer, int]] = []
    for layer in layers:
        if runs and runs[-1][0] == layer:
            runs[-1] = (layer, runs[-1][1] + 1)
        else:
            runs.append((layer, 1))
    return runs
