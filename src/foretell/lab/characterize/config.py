"""From a TOML file to the points of a characterisation; every problem at once.

    [run]          how: device, system, steps, warmup, timeout_s, profile, overlap
    [base]         what every point has: model, plan, processes, nodes, micro_batch, micro_batches, seq_len
    [vary]         the same names with lists: every combination
    [[point]]      further points, each [base] with its own values
    [model.NAME]   sizes of a model; other names are the catalogue's

A plan is the text that every verb takes, and what it says is what runs; `allowed_plan` has what can.
"""

import hashlib
import itertools
import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from foretell.errors import BadInput, Problem, at_path, bad_input, nearest_name, wrong
from foretell.interop.user_files import check_regular, is_there
from foretell.lab.characterize.models import DecoderSizes, Style, plan_of, plan_problems, sizes_of
from foretell.records import as_json, dataclass
from foretell.specs._base import Ge, Le
from foretell.specs.check import check_value, field_types
from foretell.specs.plan import Plan, parse_plan

Device = Literal["auto", "cuda", "cpu"]
Count = Annotated[int, Ge(0), Le(10_000)]
Duration = Annotated[float, Ge(0), Le(1e6)]
Positive = Annotated[float, Ge(1e-9), Le(1e6)]
Size = Annotated[int, Ge(1), Le(10**9)]
TABLES = ("run", "base", "vary", "point", "model")
OF_POINT: Mapping[str, Any] = {
    **dict.fromkeys(("model", "plan"), str),
    **dict.fromkeys(("processes", "nodes", "micro_batch", "micro_batches", "seq_len"), Size),
}
"""What a point may name, and what that is."""
DEFAULTS: Mapping[str, Any] = {"plan": "", "processes": 1, "nodes": 1, "micro_batches": 1}
DECISIVE = (
    "device", "steps", "seconds", "warmup", "warmup_s", "overlap", "share_gpus", "threads",
)  # fmt: skip
"""Settings that change what is measured."""
_json = as_json()
MOST_POINTS = 10_000
"""More points than anyone runs: a typing error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerSettings:
    """How points are run."""

    device: Device = "auto"
    """cuda (NCCL), cpu (gloo), or whichever there is."""
    system: str = ""
    """What predictions run with: an id of the catalogue, or a file of `calibrate fit`; empty: none."""
    steps: Annotated[int, Ge(1), Le(10_000)] = 5
    """Steps measured of each point, at least."""
    seconds: Duration = 0.0
    """How long steps are measured, at least."""
    warmup: Count = 3
    """Steps before these, at least."""
    warmup_s: Duration = 0.0
    """How long a lone process warms up, at least: a card at its power limit holds another clock."""
    timeout_s: Positive = 300.0
    """Longest time without a sign of life before a run counts as hung."""
    profile: bool = False
    """Whether one more step of each point is traced by PyTorch's profiler."""
    overlap: bool = True
    """Whether data-parallel messages run behind the passes."""
    memory_share: Positive = 1.0
    """Share of the device's memory that a predicted point may take before it is left out."""
    share_gpus: bool = False
    """Whether processes may take turns on a GPU: messages and memory are as on several, times are not."""
    threads: Count = 0
    """Threads of each process on a CPU; 0: the cores divided by the processes."""

    to_dict = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPoint:
    """One training job to be measured."""

    model: str
    """The model's name."""
    sizes: DecoderSizes
    """Its sizes."""
    plan: Plan
    """What runs, all degrees filled in."""
    processes: int
    """Processes of all nodes together."""
    nodes: int
    """Nodes that they are on."""
    micro_batches: int
    """Micro-batches of each replica and step."""
    seq_len: int
    """Tokens of a sequence."""

    @property
    def global_batch(self) -> int:
        """Sequences of a step."""
        return self.plan.dp * self.plan.micro_batch * self.micro_batches

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return self.global_batch * self.seq_len

    def to_dict(self) -> dict[str, Any]:
        """As JSON, the plan as its text."""
        return {**_json(self), "plan": str(self.plan)}

    @staticmethod
    def of_dict(table: Mapping[str, Any]) -> "JobPoint":
        """Back from `to_dict`."""
        return JobPoint(
            **{**table, "plan": parse_plan(table["plan"]), "sizes": DecoderSizes(**table["sizes"])}
        )

    @property
    def text(self) -> str:
        """One line."""
        batch = f"{self.global_batch} x {self.seq_len}"
        return f"{self.model}, {self.processes} processes, {batch}, {self.plan}"

    def key(self, settings: RunnerSettings) -> str:
        """What a finished point is known by: itself and all that changes what is measured."""
        how = {name: getattr(settings, name) for name in DECISIVE}
        text = json.dumps([self.to_dict(), how], sort_keys=True)
        return f"{self.model}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CharacterizeConfig:
    """A whole file."""

    settings: RunnerSettings
    """How."""
    points: tuple[JobPoint, ...]
    """What, in the file's order; no point twice."""


def read_config(given: str | Path | Mapping[str, Any]) -> CharacterizeConfig:
    """The points of a file or of its table; BadInput with all that is wrong."""
    folder = Path.cwd()
    if not isinstance(given, Mapping):
        folder, given = Path(given).absolute().parent, _table(Path(given))
    return _ConfigReader(given, folder).config()


def _table(path: Path) -> dict[str, Any]:
    check_regular(path)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}"
    except UnicodeDecodeError:
        message = "is not UTF-8 text"
    except (ValueError, RecursionError) as error:
        message = f"is not TOML: {error}"
    raise bad_input("config", str(path), message)


class _ConfigReader:
    """One reading, and what is wrong so far."""

    def __init__(self, table: Mapping[str, Any], folder: Path) -> None:
        self.table, self.folder = table, folder
        self.problems: list[Problem] = []
        self.known: dict[str, DecoderSizes | None] = {}

    def config(self) -> CharacterizeConfig:
        """The whole, or BadInput."""
        for name, value in self.table.items():
            if name not in TABLES:
                self._bad(name, None, "no such table", TABLES)
            elif not isinstance(value, list if name == "point" else Mapping):
                self._bad(name, value, "is not a table" if name != "point" else "is not a list")
        if self.problems:
            raise BadInput(self.problems)
        for name, sizes in self.table.get("model", {}).items():
            self.known[name] = self._sizes(f"model.{name}", sizes)
        settings = self._settings()
        points = [p for path, row in self._rows() if (p := self._point(path, row)) is not None]
        if not points and not self.problems:
            self._bad("vary", None, "there is no point: [base], [vary] or [[point]] must name one")
        if self.problems:
            raise BadInput(self.problems)
        return CharacterizeConfig(settings=settings, points=tuple(dict.fromkeys(points)))

    def _bad(
        self, path: str, value: object, message: str, names: Sequence[str] | str | None = None
    ) -> None:
        near = None
        if names is not None and not isinstance(names, str):
            word = value if isinstance(value, str) else path.rpartition(".")[2]
            near, names = nearest_name(word, names), ", ".join(names)
        self.problems.append(wrong(path, value, message, names, near))

    def _checked(
        self, path: str, given: Mapping[str, Any], hints: Mapping[str, Any], needed: Sequence[str]
    ) -> bool:
        """Whether every name is known and every value what it should be, and nothing needed is missing."""
        before = len(self.problems)
        for name, value in given.items():
            if name in hints:
                self.problems += check_value(value, hints[name], f"{path}.{name}")
            else:
                self._bad(f"{path}.{name}", value, "no such key", list(hints))
        for name in needed:
            if name not in given:
                self._bad(f"{path}.{name}", None, "missing")
        return len(self.problems) == before

    def _settings(self) -> RunnerSettings:
        given = dict(self.table.get("run", {}))
        if not self._checked("run", given, field_types(RunnerSettings), ()):
            return RunnerSettings()
        system = given.get("system", "")
        if system and is_there(self.folder / system, folder=False):
            given["system"] = str((self.folder / system).resolve())
        return RunnerSettings(**given)

    def _rows(self) -> list[tuple[str, dict[str, Any]]]:
        """Every combination of [vary] on [base], then the single points."""
        base, vary = dict(self.table.get("base", {})), dict(self.table.get("vary", {}))
        for name, values in list(vary.items()):
            if not isinstance(values, list) or not values:
                self._bad(f"vary.{name}", vary.pop(name), "is not a list of values")
        if math.prod(len(v) for v in vary.values()) > MOST_POINTS:
            self._bad("vary", None, f"more than {MOST_POINTS} points")
            return []
        rows = []
        if vary or not self.table.get("point"):
            rows = [
                ("vary", {**base, **dict(zip(vary, values, strict=True))})
                for values in itertools.product(*vary.values())
            ]
        for index, own in enumerate(self.table.get("point", [])):
            if isinstance(own, Mapping):
                rows.append((f"point[{index}]", {**base, **own}))
            else:
                self._bad(f"point[{index}]", own, "is not a table")
        return rows

    def _point(self, path: str, row: dict[str, Any]) -> JobPoint | None:
        if not self._checked(path, row, OF_POINT, ("model", "seq_len")):
            return None
        before = len(self.problems)
        row = {**DEFAULTS, **row}
        sizes = self._model(path, row["model"])
        try:
            plan = plan_of(row["plan"], row["processes"], row.get("micro_batch"))
        except BadInput as error:
            self.problems += error.problems
            return None
        if sizes is None:
            return None
        if row["processes"] % row["nodes"]:
            self._bad(f"{path}.nodes", row["nodes"], f"do not divide {row['processes']} processes")
        found = plan_problems(plan, sizes, row["processes"], row["seq_len"])
        self.problems += [at_path(p, f"{path}.{p.path}") for p in found]
        if len(self.problems) > before:
            return None
        names = ("model", "processes", "nodes", "micro_batches", "seq_len")
        return JobPoint(sizes=sizes, plan=plan, **{name: row[name] for name in names})

    def _model(self, path: str, name: str) -> DecoderSizes | None:
        if name not in self.known:
            self.known[name] = self._of_catalogue(path, name)
        return self.known[name]

    def _of_catalogue(self, path: str, name: str) -> DecoderSizes | None:
        from foretell.catalog import model

        try:
            found = sizes_of(model(name))
        except BadInput as error:
            self.problems += error.problems
            return None
        if found is None:
            message = "is no plain decoder with a head of its own, which is what the runner builds"
            self._bad(f"{path}.model", name, message, "a table [model.NAME] of sizes")
        return found

    def _sizes(self, path: str, table: Any) -> DecoderSizes | None:
        if not isinstance(table, Mapping):
            self._bad(path, table, "is not a table")
            return None
        given = {"kv_heads": table.get("heads"), **table}
        style = given.setdefault("style", "llama")
        if style == "gpt":
            given.setdefault("positions", 1024)
        hints = dict.fromkeys(field_types(DecoderSizes), Size) | {"style": Style}
        if not self._checked(path, given, hints, ("hidden", "layers", "heads", "ffn", "vocab")):
            return None
        before = len(self.problems)
        sizes = DecoderSizes(**given)
        if sizes.hidden % (2 * sizes.heads):
            self._bad(f"{path}.heads", sizes.heads, f"{sizes.hidden} is no even width for each")
        if sizes.heads % sizes.kv_heads:
            self._bad(f"{path}.kv_heads", sizes.kv_heads, f"{sizes.heads} heads cannot share them")
        if sizes.positions and style == "llama":
            self._bad(f"{path}.positions", sizes.positions, "llama's are rotary: it has no table")
        return sizes if len(self.problems) == before else None
