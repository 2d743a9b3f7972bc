"""Requests with a path in every field of the API, and files for the paths to name."""

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import foretell
from foretell.catalog import model as catalog_model
from foretell.interop.own_model import write_toml
from foretell.specs.questions import every_field, question_type
from foretell.studies.axes import FLAGS
from foretell.web.figures import KINDS
from foretell.web.names import FILES
from tests.surfaces.command import TOY

PACKAGE = Path(foretell.__file__).parent
CHIP = PACKAGE / "catalog" / "chips" / "h100-sxm.toml"

PLACE = {"model": "gpt2", "system": "h100-sxm", "gpus": 8, "global_batch": 8, "plan": "tp2"}
SERVICE = {"model": "gpt2", "system": "h100-sxm", "gpus": 1, "plan": "tp1"}
STUDY = {
    "study": {"kind": "training", "plan": "tp2"},
    "base": {"model": "gpt2", "system": "h100-sxm", "gpus": 8, "global_batch": 8, "rent": "own"},
    "vary": {"seq_len": [128]},
}
LAUNCH = (
    "torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1 "
    "--global-batch-size 8 --seq-length 128 --bf16"
)
QUESTIONS: dict[str, dict[str, Any]] = {
    "read": {"text": LAUNCH},
    "improve": {"launch": LAUNCH, "model": "gpt2", "system": "h100-sxm"},
    "diagnose": {
        "runs": ["tp2: 40 ms"], "model": "gpt2", "system": "h100-sxm", "gpus": 8, "global_batch": 8,
        "seq_len": 128,
    },
    **dict.fromkeys(("estimate", "search", "explain", "memory", "simulate", "simulate/trace"), PLACE),
    "compare-plans": {**{n: v for n, v in PLACE.items() if n != "plan"}, "a": "tp2", "b": "tp4"},
    "sensitivity": PLACE,
    "serve": {**SERVICE, "rate": 5, "simulate": True, "requests": 4},
    "size": {**SERVICE, "rate": 5, "simulate": False},
    "fleet": {"fleet": {"model": [{"model": "gpt2", "rate": 5, "gpus": 1}]}, "system": "h100-sxm",
              "simulate": False},
    "post-train": {"model": "gpt2", "gpus": "1xh100-sxm", "algorithm": "sft", "prompts": 1, "osl": 8},
    "compare": {"systems": ["h100-sxm"], "model": "gpt2", "gpus": 8, "plan": "tp2"},
    "scaling": {"models": ["gpt2"], "system": "h100-sxm", "gpus": 8, "strategies": "tp2"},
    "codesign": {"study": STUDY},
    "optimise": {"study": STUDY, "trials": 1},
    "network": {"system": "h100-sxm", "collective": "all-reduce", "bytes": "1MiB", "group": 8},
    "cost/chip": {"name": "h100-sxm"},
    "cost/package": {"name": "h100-sxm"},
    "cost/system": {"system": "h100-sxm"},
    "cost/run": PLACE,
    "cost/token": SERVICE,
}  # fmt: skip
"""A question that each verb answers quickly; one field at a time is replaced."""
SWEPT = {
    f"cost/{what}": question_type(f"cost {what}")
    for what in ("chip", "package", "system", "run", "token")
}
"""Whose fields the sweep of a cost may name in Python."""
LEFT_OUT = tuple(
    dict.fromkeys(
        name
        for field in every_field()
        if not field.on("web")
        for name in (field.called, field.name)
    )
)
"""Fields that some question has on other surfaces alone."""
SET = (
    "model.id", "model.family", "model.vocab_size", "model.model_type", "chip.id", "chip.name",
    "chip.architecture", "chip.kernels", "chip.design.node", "chip.design.base", "system.id", "system.name",
    "system.chip", "system.design.node", "network.node.topology", "network.tiers", "plan.framework",
    "plan.order", "job.gpus", "prices.source", "prices.provider", "prices.file", "prices.usd_per_chip_hour",
    "prices.processes.N5.wafer_usd", "file", "import",
)  # fmt: skip
"""Paths of `--set`, right and wrong ones."""
SYSTEM: dict[str, Any] = {
    "id": "mine",
    "name": "mine",
    "chip": {"base": "h100-sxm", "name": "x"},
    "network": {"node": {"size": 8, "bandwidth_bytes_per_s": "300 GB/s", "latency_s": "3 us"}},
}
MORE_KEYS = ("base", "design", "surface", "reference_system", "prices", "file", "path", "include",
             "import", "sources", "_name_or_path", "text_config", "quantization_config",
             "hf_quant_config", "auto_map", "stack", "encoder")  # fmt: skip
"""Keys that a described model or system may have besides."""
NAMES_FILES = (
    "model", "system", "name", "models", "systems", "arrivals", "prices", "study", "measured", "runs",
)  # fmt: skip
"""Fields that take a path on the command line: with one they are always refused here."""


class Probe(NamedTuple):
    """One request, and where in it the path stands."""

    method: str
    path: str
    body: Any
    where: str
    refused: bool
    """Whether the answer must be an error."""


class Canary(NamedTuple):
    """Files that a reader of ours would accept, with a token in each."""

    folder: Path
    token: str

    def spellings(self, name: str) -> list[str]:
        """Every spelling of the file that suits a field, and the others by their full path."""
        file = self._file(name)
        whole = self.folder / file
        found = [
            str(whole), f"../{self.folder.name}/{file}", f"./{file}", file, f"~/{file}",
            f"file://{whole}", quote(str(whole), safe=""), f"C:\\{file}", f"C:/{file}",
            f"\\\\host\\share\\{file}", f"link-{file}", f"h100-sxm/../{file}", f" {whole}",
            f"@{whole}", f"8x{whole}", "bare", str(self.folder / "folder"), "folder", "/etc/passwd",
            str(CHIP),
        ]  # fmt: skip
        others = ("system.toml", "model.toml", "prices.csv", "requests.csv", "requests.jsonl")
        found += [str(self.folder / other) for other in others if other != file]
        return found

    def _file(self, name: str) -> str:
        kinds = {"model": "model.toml", "models": "model.toml", "arrivals": "requests.csv",
                 "prices": "prices.csv", "study": "study.toml", "workload": "study.toml"}  # fmt: skip
        return kinds.get(name, "system.toml")

    def some(self, name: str) -> list[str]:
        """One spelling, for positions of which there are many."""
        return [str(self.folder / self._file(name))]


def make_canary(folder: Path) -> Canary:
    """The files."""
    token = "canary" + secrets.token_hex(8)
    (folder / "folder").mkdir(parents=True)
    system = f'id = "{token}"\nname = "{token}"\nchip = "h100-sxm"\n[network.node]\nsize = 8\n'
    system += 'bandwidth_bytes_per_s = "300 GB/s"\nlatency_s = "3 us"\n'
    model = write_toml(replace(catalog_model("gpt2"), id=token))
    texts = {
        "system.toml": system,
        "bare": system,
        "model.toml": model,
        "folder/config.json": json.dumps({**TOY, "architectures": [token]}),
        "study.toml": f'[study]\nkind = "training"\n[base]\nmodel = "{token}"\n',
        "prices.csv": "InstanceType,AcceleratorName,AcceleratorCount,Price,SpotPrice,Region\n"
        f"{token},H100,8,40.0,20.0,{token}\n",
        "requests.csv": f"isl,osl,{token}\n100,10,1\n",
        "requests.jsonl": json.dumps({"isl": 100, "osl": 10, token: 1}) + "\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
        if "/" not in name:
            (folder / f"link-{name}").symlink_to(folder / name)
    return Canary(folder, token)


def probes(document: Mapping[str, Any], canary: Canary) -> Iterator[Probe]:
    """Every request: of each operation each field, each position in it, each spelling."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if method == "post":
                content = operation["requestBody"]["content"]["application/json"]["schema"]
                yield from body_probes(path, content, document["components"]["schemas"], canary)
            else:
                yield from query_probes(path, operation.get("parameters", ()), canary)
    for text in (*canary.spellings(""), "../app.py", "%2e%2e/app.py"):
        yield Probe("get", f"/static/{text}", None, "static", True)


def query_probes(path: str, parameters: Any, canary: Canary) -> Iterator[Probe]:
    """Of what is asked by GET: a part of the address, or a query."""
    if not parameters:
        yield Probe("get", path, None, "", False)
    for parameter in parameters:
        name = parameter["name"]
        for text in canary.spellings(name):
            if parameter["in"] == "path":
                yield Probe("get", path.replace(f"{{{name}}}", text), None, name, True)
            else:
                yield Probe("get", f"{path}?{name}={quote(text, safe='')}", None, name, False)


def body_probes(
    path: str, schema: Mapping[str, Any], schemas: Mapping[str, Any], canary: Canary
) -> Iterator[Probe]:
    """Of what is asked by POST: the fields of its body, of a figure those of a question in it."""
    for kind in schema.get("oneOf", [schema]):
        held = schemas[kind["$ref"].rpartition("/")[2]]["properties"]
        verb, around = path.removeprefix("/api/"), {}
        if "what" in held:
            around = {"what": held["what"]["const"]}
            verb = f"cost/{held['what']['const']}"
        many = "questions" in held
        if many:
            verb = KINDS[verb.removeprefix("figures/")].verb.replace(" ", "/")
            question = held["questions"]["items"]["$ref"].rpartition("/")[2]
            for name in ("names", "theme"):
                body = {"questions": [QUESTIONS[verb]], name: [canary.some(name)[0]]}
                yield Probe("post", path, body, name, False)
            held = schemas[question]["properties"]
        deep = not many and not around  # else a verb of its own has the same body
        for name, value, refused in changes(verb, held, canary, deep):
            body = {**around, **QUESTIONS[verb], name: value}
            yield Probe("post", path, {"questions": [body]} if many else body, name, refused)


def changes(
    verb: str, held: Mapping[str, Any], canary: Canary, deep: bool
) -> Iterator[tuple[str, Any, bool]]:
    """Field, what it is given, and whether that must be refused; `deep`: in every position of a table."""
    for name, field in held.items():
        kinds = {kind.get("type") for kind in field.get("anyOf", [field])}
        files = name in NAMES_FILES
        if "string" in kinds:
            every = files or deep or name == "gpus"
            texts = canary.spellings(name) if every else canary.some(name)
            yield from ((name, text, files) for text in texts)
        else:  # a number, a switch, a table
            yield from ((name, text, True) for text in canary.some(name)[:1])
        if name == "text":  # a dropped file, with a path in every place of it
            for table in (SYSTEM, TOY, STUDY):
                yield from (
                    (name, json.dumps(one), False) for one in spoilt(table, canary.some("")[0])
                )
            yield (
                name,
                LAUNCH + f" --load {canary.some('')[0]} --yaml-cfg {canary.some('')[0]}",
                False,
            )
        if name == "sweep":
            yield from ((name, *change) for change in sweeps(verb, canary, deep))
        elif name == "set":
            for path in turn(verb, SET) if deep else SET[:1]:
                yield name, [f"{path}={canary.some(path)[0]}"], False
            yield name, {path: canary.some(path)[0] for path in SET}, True
        elif "array" in kinds:
            for text in canary.spellings(name):
                yield name, [*QUESTIONS[verb].get(name, ()), text], files
                yield name, [{"id": "x", "chip": text, "model_type": text}], files
        elif name in ("study", "workload") and "object" in kinds:
            shapes = 6 if name == "study" else 2  # a mix has nothing that varies
            made = turn(verb, studies(canary, shapes)) if deep else ()
            yield from ((name, *change) for change in made)
            yield name, {**STUDY, "base": {"model": canary.some("model")[0]}}, True
        elif "object" in kinds and deep:
            for table in (SYSTEM,) if name == "system" else (TOY, {"id": "x", "stack": {}}):
                for made in turn(verb, spoilt(table, canary.some(name)[0])):
                    yield name, made, False
    for name in LEFT_OUT:
        if name not in held:
            yield name, canary.some(name)[0], True


def turn(verb: str, found: Iterable[Any]) -> Iterable[Any]:
    """All of some positions for a verb of each engine; one in four for others, which have the same reader."""
    if verb in ("estimate", "serve", "cost/system", "codesign"):
        return found
    return islice(found, list(QUESTIONS).index(verb) % 4, None, 4)


def sweeps(verb: str, canary: Canary, deep: bool) -> Iterator[tuple[Any, bool]]:
    """Sweeps over each field of the question that Python has, and over `--set` paths."""
    flags = [f.name for f in fields(SWEPT[verb])]
    for flag in dict.fromkeys((*flags, *LEFT_OUT)):
        files = flag in NAMES_FILES or flag in LEFT_OUT
        for text in (
            canary.spellings(flag) if deep and files and flag in flags else canary.some(flag)
        ):
            yield [f"{flag}={text}"], files
    text = canary.some("prices")[0]
    for spelled in ("--prices", " prices ", "--prices ", "PRICES", "prices.file"):
        yield [f"{spelled}={text}"], True
    yield from (([f"{path}={text}"], False) for path in SET)
    yield [f"prices={text},{text}", f"system={text}"], True


def studies(canary: Canary, shapes: int) -> Iterator[tuple[Any, bool]]:
    """Studies with a path in each table, under each flag of any verb and under those that are files."""
    flags = dict.fromkeys((*(f for verb in FLAGS.values() for f in verb), *LEFT_OUT, *SET))
    for flag in flags:
        named = flag in ("model", "system")
        for text in canary.spellings(flag) if named else canary.some(flag):
            for study in islice(in_tables(flag, text), shapes):
                yield study, named or flag in FILES
        if named:
            for made in spoilt(TOY if flag == "model" else SYSTEM, canary.some(flag)[0]):
                yield {**STUDY, "base": {**STUDY["base"], flag: made}}, False
    text = canary.some("study")[0]
    for table in ("study", "base", "vary", "objectives", "limits", "workload", "file", "import"):
        yield {**STUDY, table: text}, table in ("base", "workload")
        yield {**STUDY, table: {**STUDY.get(table, {}), "plan": text, "file": text}}, False
        yield {**STUDY, table: [text]}, False


def in_tables(flag: str, text: str) -> Iterator[dict[str, Any]]:
    """A study with a flag in its base, in its mix, and as a field that varies."""
    base = {**STUDY["base"], flag: text}
    yield {**STUDY, "base": base}
    rest = {n: v for n, v in STUDY["base"].items() if n != flag}
    yield {**STUDY, "base": rest, "workload": [{"name": "a", flag: text}, {"name": "b"}]}
    for varied in ([text], {"low": text, "high": text, "steps": 2}, {"values": [text]}, [[text]]):
        yield {**STUDY, "base": rest, "vary": {flag: varied}}


def spoilt(table: Mapping[str, Any], text: str) -> Iterator[dict[str, Any]]:
    """The table with the text in the place of each of its values, and under keys that it has not."""
    for key in (*table, *MORE_KEYS):
        yield {**table, key: text}
        if isinstance(table.get(key), Mapping):
            for inner in spoilt(table[key], text):
                yield {**table, key: inner}
        elif key not in table:
            yield {**table, key: {"base": text, "file": text, "model_type": text}}
