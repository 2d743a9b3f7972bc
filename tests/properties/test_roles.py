"""Names mean nothing: with another text at every reading of a name, every number stays what it was."""

import ast
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

import foretell
from foretell.catalog import model as catalog_model
from foretell.catalog import system as catalog_system
from foretell.catalog.software import software, software_names
from foretell.inputs.software import with_software
from foretell.simulation.memory_timeline import step_memory
from foretell.specs.plan import batch_of, parse_plan
from foretell.specs.plan_forms import MODULES, TARGET_SETS
from foretell.specs.plan_words import CHOICES
from foretell.specs.result import outputs
from foretell.specs.scenario import Job, Scenario
from foretell.training.answer import one_row, totals_of
from foretell.training.step import evaluate_rows
from foretell.training.tables import tables_of
from foretell.workload import ops
from foretell.workload.build import build
from foretell.workload.graph import Edge, LayerGraph, Saved
from foretell.workload.roles import EdgeRole, OpRole, Region, SavedRole

SOURCE = Path(foretell.__file__).parent
RECORDS = (ops.Gemm, ops.AttentionCore, ops.Pointwise, ops.Lookup, ops.Scan, Saved, Edge)
"""What carries a name and a role."""
CACHED = ("training", "serving", "simulation", "uncertainty")
"""Rooms that remember graphs, or what was made of them."""
BLANK = {
    OpRole: OpRole.OTHER,
    SavedRole: SavedRole.OTHER,
    EdgeRole: EdgeRole.HIDDEN,
    Region: Region.NONE,
}
"""What says nothing."""
GPUS = 8

DENSE = ("gpt2-xl", "llama-2-7b", "vit-b-16", "t5-base", "anthe")
MIXTURES = (
    "mixtral-8x7b",  # plain experts
    "deepseek-v3",  # latent attention, shared experts, prediction blocks
    "deepseek-v4-flash",  # indexer, merged keys, further maps of each region
    "gpt-oss-20b",  # clamps and biases of experts
    "qwen3-next-80b-a3b",  # delta rule, gated attention, a gate on the shared experts
    "nemotron-3-super-120b-a12b",  # state space, experts on a latent
)

PLAIN, CUT = "mbs1", "tp2 sp mbs1"
RECOMPUTED = ("none", "selective", "full", "full:2", *MODULES, "act+norm", "attention+mlp+moe")
WORDS = {
    "recompute": tuple(f"{CUT} recompute={one}" for one in RECOMPUTED)
    + tuple(f"{PLAIN} no-flash no-fused recompute={one}" for one in MODULES),
    "adapters": tuple(
        f"{words} lora=16 adapters={where}"
        for where in (*TARGET_SETS, "q+o+down", "all+ends")
        for words in (PLAIN, f"{CUT} tp_overlap=on recompute=products precision=fp8")
    ),
    "context": tuple(f"{CUT} cp2 cp_mode={mode}" for mode in CHOICES["cp_mode"]),
    "precision": tuple(f"{CUT} precision={one}" for one in CHOICES["precision"])
    + tuple(f"{PLAIN} precision=fp8 scaling={one}" for one in CHOICES["scaling"]),
    "framework": tuple(f"{CUT} tp_overlap=on framework={one}" for one in software_names())
    + tuple(f"{PLAIN} no-fused framework={one}" for one in software_names()),
    "optimizer": tuple(f"{PLAIN} optimizer={one}" for one in CHOICES["optimizer"]),
}
"""Of each kind of word, all that there are."""
EXPERTS = tuple(
    f"{CUT} ep4 dispatch={one}{rest}"
    for one in CHOICES["dispatch"]
    for rest in (
        "",
        " etp2 capacity=1.25",
        " tp_overlap=on lora=16",
        " precision=fp8 ep_overlap=on",
    )
)
"""Words of mixtures alone."""

Answers = dict[str, tuple[float, ...]]


def forget() -> None:
    """Clear what was remembered of graphs."""
    for name, module in list(sys.modules.items()):
        if name.startswith(tuple(f"foretell.{room}" for room in CACHED)):
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


def names_of(graph: LayerGraph) -> list[str]:
    """Every name in a layer."""
    return [part.name for parts in (graph.ops, graph.saved, graph.edges) for part in parts]


@pytest.fixture(scope="session")
def real_names() -> list[str]:
    """Names that operations, tensors and edges of some models have, and those of categories."""
    found = {"scores", "backward pass", "gradients", "layer.in", "", "x.lora_a", "y.once"}
    for name in (*DENSE, *MIXTURES):
        graph = build(catalog_model(name), batch=1.0, seq_len=64.0, flash=False)
        for part in (*graph.kinds, graph.embedding, graph.head):
            found |= set(names_of(part))
    return sorted(found)


@pytest.fixture
def renamed(real_names: list[str]) -> Iterator[pytest.MonkeyPatch]:
    """Whoever reads a name is told one at random, mostly that of something else; nothing sets it."""
    random = Random(7)

    def told(record: object) -> str:
        return random.choice(real_names) if random.random() < 0.8 else f"{random.random():x^9}"

    with pytest.MonkeyPatch.context() as patch:
        for record in RECORDS:
            patch.setattr(record, "name", property(told, lambda self, name: None))
        yield patch
    forget()


def scenario_of(name: str) -> Scenario:
    model = catalog_model(name)
    job = Job(gpus=GPUS, global_batch=16, seq_len=min(1024, model.max_positions))
    return Scenario(
        model=model, system=catalog_system("dgx-b200"), job=job, software=software("generic")
    )


def trained(scenario: Scenario, words: str) -> tuple[float, ...]:
    """Step, peak and energy of a plan."""
    plan = parse_plan(words, GPUS)
    scenario, plans = with_software(scenario, plan), batch_of([plan])
    tables = tables_of(scenario, plans)
    rows = evaluate_rows(scenario, plans, tables)
    totals = one_row(totals_of(scenario, plans, tables, rows))
    joules = outputs(totals)["energy_joules"]
    return (
        float(rows.step_s[0]),
        *rows.memory.total[0].tolist(),
        joules,
    )


def answers(name: str) -> Answers:
    """Of every word."""
    forget()
    scenario = scenario_of(name)
    asked = [text for texts in WORDS.values() for text in texts]
    asked += EXPERTS if name in MIXTURES else ()
    return {text: trained(scenario, text) for text in asked}


@pytest.mark.parametrize("name", [*DENSE, *MIXTURES])
def test_time_memory_and_energy_do_not_depend_on_names(
    name: str, request: pytest.FixtureRequest
) -> None:
    before = answers(name)
    request.getfixturevalue("renamed")
    after = answers(name)
    assert [text for text, value in after.items() if value != before[text]] == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpt2-xl", "pp2 mbs1 recompute=act+norm"),
        ("deepseek-v3", CUT),
        ("qwen3-next-80b-a3b", f"{PLAIN} no-flash recompute=full:2"),
        ("anthe", f"{CUT} lora=8"),
    ],
)
def test_memory_over_a_step_does_not_depend_on_names(
    name: str, words: str, request: pytest.FixtureRequest
) -> None:
    def held() -> list[Any]:
        forget()
        step = step_memory(scenario_of(name), parse_plan(words, GPUS))
        return [(stage.line.peak, stage.line.at(stage.line.peak[1])) for stage in step.stages]

    before = held()
    request.getfixturevalue("renamed")
    assert held() == before


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("llama-2-7b", "tp2"),
        ("t5-base", "tp2"),
        ("deepseek-v3", "tp2 dp4 ep8"),
        ("qwen3-next-80b-a3b", "tp4"),
    ],
)
def test_service_does_not_depend_on_names(
    name: str, plan: str, request: pytest.FixtureRequest
) -> None:
    ask = partial(
        foretell.serve, name, system="dgx-h200", plan=plan, isl=1000, osl=200, concurrency=16
    )
    forget()
    before = ask(gpus=GPUS).to_dict()
    request.getfixturevalue("renamed")
    forget()
    assert ask(gpus=GPUS).to_dict() == before


def test_the_fixture_changes_every_name(request: pytest.FixtureRequest) -> None:
    model = catalog_model("deepseek-v3")
    before = build(model, batch=1.0, seq_len=64.0).kinds
    read = [names_of(kind) for kind in before]
    request.getfixturevalue("renamed")
    after = build(model, batch=1.0, seq_len=64.0).kinds
    assert [names_of(kind) for kind in (*before, *after)] != [*read, *read]
    assert names_of(after[0]) != names_of(after[0])


def always(value: object) -> property:
    """A field that is this whatever it is set to."""
    return property(lambda self: value, lambda self, other: None)


@pytest.mark.parametrize("kind", [*WORDS, "experts"])
def test_every_kind_of_word_reads_roles(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without roles and regions the numbers are others: what stays under new names is not blind to them."""
    scenario = scenario_of("deepseek-v3")
    texts = {**WORDS, "experts": EXPERTS}[kind]
    forget()
    before = [trained(scenario, text) for text in texts]
    forget()
    for record in RECORDS:
        for field in ("role", "region"):
            plain = BLANK[type(record.__dataclass_fields__[field].default)]
            monkeypatch.setattr(record, field, always(plain))
    after = [trained(scenario, text) for text in texts]
    monkeypatch.undo()
    forget()
    assert all(a != b for a, b in zip(after, before, strict=True))


# ---- no formula reads a name --------------------------------------------------------------------

ROOMS = (
    "workload", "sharding", "kernels", "network", "schedules", "training", "serving", "simulation",
    "uncertainty",
)  # fmt: skip
"""Where formulas are."""
ALLOWED = {
    "kernels/traced_ops.py: op.name.partition('.')": "the operator that was called, not a label",
    "kernels/traced_ops.py: PASSES.get(op.name.partition('.')[2], PassForm())": "the same operator",
    "training/traced_memory.py: 'dropout' not in graph.ops[graph.op[row]].name": "the same operator",
    "sharding/traced_tensor.py: op.name == 'aten.embedding_dense_backward'": "the same operator",
    "training/traced_memory.py: tensor.name.startswith(f'{path}.')": "modules by their path in a trace",
    "kernels/power.py: table[field.name]": "fields of a record, by which its file is read",
    "kernels/families/choose.py: _carried().get(chosen.family.name, WIDEST)": "a kernel family",
    "network/library_catalog.py: table.get(field.name)": "fields of a record",
    "network/library_catalog.py: values[field.name]": "fields of a record",
    "network/library_catalog.py: field.name not in table": "fields of a record",
    "workload/towers.py: tower.name == name": "the tower that a flag asks for",
    "serving/requests/prefixes.py: self.from_tier[tier[0].name]": "a tier of memory, by which hits count",
    "network/tier_checks.py: tier.name in by_hand": "tiers that the user sets by name",
    "network/stack.py: a.name == algorithm": "the algorithm that the user asks for",
    "sharding/context.py: op.name.removesuffix('.core')": "the name of what stands beside it",
    "simulation/memory_timeline.py: kept.get(tensor.name, 0.0)": "bytes by name, to be printed",
    "simulation/memory_timeline.py: kept[tensor.name]": "bytes by name, to be printed",
    "simulation/program.py: messages[0].name.rsplit(' ', 1)": "the name of another message",
}
"""Names that are read, and why: none is that of an operation, a kept tensor or an edge in a formula."""


def is_name(node: ast.AST) -> bool:
    """Whether an expression is `something.name`, or a text made of it."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return is_name(node.func.value)
    if isinstance(node, ast.Subscript):
        return is_name(node.value)
    return isinstance(node, ast.Attribute) and node.attr == "name"


def readings(tree: ast.AST) -> Iterator[ast.AST]:
    """Where a name decides something: compared, looked into, looked up by, matched."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, comparators=others):
                found = any(is_name(one) for one in (left, *others))
            case ast.Call(func=ast.Attribute(value=value, attr=attr), args=args):
                looked_up = attr in ("get", "pop", "setdefault", "index") and args
                found = is_name(value) or bool(looked_up and is_name(args[0]))
            case ast.Subscript(slice=place):
                found = is_name(place)
            case ast.Match(subject=subject):
                found = is_name(subject)
            case _:
                found = False
        if found:
            yield node


def test_no_formula_reads_a_name() -> None:
    found = set()
    for room in ROOMS:
        for path in (SOURCE / room).rglob("*.py"):
            where = path.relative_to(SOURCE).as_posix()
            for node in readings(ast.parse(path.read_text(encoding="utf-8"))):
                text = ast.unparse(node.subject if isinstance(node, ast.Match) else node)
                found.add(f"{where}: {text}")
    assert found == set(ALLOWED)


@pytest.mark.parametrize(
    ("text", "many"),
    [
        ("op.name == 'norm'", 1),
        ("'up' in op.name", 1),
        ("op.name.endswith('.up')", 1),
        ("cuts[op.name](op)", 1),
        ("cuts.get(tensor.name)", 1),
        ("op.name.split('.')[0] == 'moe'", 2),
        ("match tensor.name:\n    case 'moe.in': pass", 1),
        ("Saved(name=f'{op.name}.lora')", 0),
        ("op.role is OpRole.UP", 0),
    ],
)
def test_what_counts_as_reading(text: str, many: int) -> None:
    assert len(list(readings(ast.parse(text)))) == many
