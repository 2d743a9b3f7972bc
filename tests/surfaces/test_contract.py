"""What other programs rely on: flags, exit codes, JSON keys, plan text and --set paths."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

import foretell as package
from foretell.cli.app import LAB, make_app
from tests.surfaces.command import TOY, TOY_PARAMETERS, TOY_SYSTEM, foretell

LLAMA = ("llama-3.1-70b", "--system", "h100-sxm", "--gpus", "64", "--plan", "tp8 pp2 mbs1 zero1")
QUESTION = (
    "--model --system --gpus --global-batch --seq-len --target-len --set --measured --plan --json"
).split()
TRACED = [flag for flag in QUESTION if flag != "--measured"]
RUN = (
    "--tokens --failures-per-gpu-day --restart-s --checkpoint --checkpoint-interval "
    "--checkpoint-wait-s --storage-bandwidth"
).split()
SILICON = "--name --node --area --dies --package --die-to-die --volume --set --sweep --plot --json".split()
IMPORTS = "--import --accept-unknown --hub".split()
EXCHANGE = [*IMPORTS, *"--export --launcher --jsonl".split()]
PAID = "--rent --region --price --prices --years --utilisation".split()

FLAGS = {
    "estimate": [*QUESTION[:-1], *RUN, "--plot", *EXCHANGE, "--json"],
    "search": [*QUESTION[:-1], "--top", "--over", "--workers", "--plot", *EXCHANGE, "--json"],
    "memory": [*QUESTION[:-1], "--plot", "--out", *IMPORTS, "--json"],
    "simulate": [
        *QUESTION[:-1],
        *"--trace --detail --jitter --stragglers --slowdown --repeats --seed --plot".split(),
        *IMPORTS,
        "--json",
    ],
    "explain": [*QUESTION[:-1], "--plot", *IMPORTS, "--json"],
    "compare-plans": ["--model", "--a", "--b", *QUESTION[1:-2], "--plot", "--json"],
    "improve": (
        "--launch --model --system --gpus --global-batch --seq-len --isl --osl --concurrency --plan --free "
        "--accept-unknown --set --hub --export --launcher --json"
    ).split(),
    "serve": (
        "--model --system --gpus --isl --osl --concurrency --rate --plan --engine --price --prices "
        "--spread --prefix-hit --speculative --tuned --adapters --adapter-rank --adapter-slots "
        "--ttft --tpot --images --audio --prefill-gpus "
        "--prefill-plan --set --arrivals --seed --prefixes --prefix-tokens "
        "--routing --trace-unit --block-tokens --sessions --kv-tiers --simulate --lengths --autoscale "
        "--queue-limit --urgent --fail-at --preemption --requests --warmup --batching --tokens --within "
        "--steps --passes --rows --once --images-per-s --fit --measured --plot "
        "--import --accept-unknown --hub --export --launcher --jsonl --json"
    ).split(),
    "size": (
        "--model --rate --system --measured --isl --osl --ttft --tpot --tokens --within --percentile "
        "--headroom --gpus --plan --engine --speculative --tuned --adapters --adapter-rank --adapter-slots "
        "--prefix-hit --images --audio "
        "--price --prefill-gpus --prefill-plan --top --lengths --simulate --no-simulate "
        "--arrivals --seed --prefixes --prefix-tokens "
        "--routing --trace-unit --block-tokens --sessions --kv-tiers --requests --warmup --prices --set "
        "--pareto --export --launcher --plot --jsonl --json"
    ).split(),
    "fleet": (
        "--fleet --system --available --share --no-share --percentile --headroom --gpus --engine --price "
        "--simulate --no-simulate --prices --set --json"
    ).split(),
    "post-train": (
        "--model --algorithm --system --gpus --trainer-gpus --rollout-gpus --prompts --samples --isl --osl "
        "--max-osl --osl-end --lengths --updates --plan --rollout-plan --engine --speculative --critic "
        "--filtered --framework --placement "
        "--staleness --partial --sync --offload --reference --packing --micro-tokens --log-prob-mbs "
        "--reference-mbs --tool-time --turns --steps --price --set --fit --measured --trace --plot "
        "--import --accept-unknown --hub --export --jsonl --json"
    ).split(),
    "catalog chips": ["--json"],
    "catalog systems": ["--json"],
    "catalog models": ["--json"],
    "catalog show": ["--name", "--json"],
    "reference search": (
        "--model --strategy --chip --fast-domain --gpus --global-batch --seq-len --top --json".split()
    ),
    "reference study": ["--out", "--workers", "--plot", "--json"],
    "reproduce": "--work --figure --workers --out --json".split(),
    "network": (
        "--system --collective --bytes --group --placement --algorithm --neighbours --imbalance "
        "--set --plot --json"
    ).split(),
    "validate collectives": "--file --chip --software --leave-one-out --json".split(),
    "validate kernels": "--file --chip --software --leave-one-out --json".split(),
    "validate training": (
        "--file --leave-one-out --simulate --commands --anchors --seed --first-contact --after-learning "
        "--out --json"
    ).split(),
    "diagnose": [*TRACED[:-1], "--json"],
    "calibrate runs": "--out --model --system --gpus --plan --json".split(),
    "validate memory": "--file --first-contact --after-learning --out --json".split(),
    "validate serving": (
        "--file --leave-one-out --commands --anchors --seed --first-contact --after-learning "
        "--out --json"
    ).split(),
    "validate post-training": (
        "--file --leave-one-out --commands --anchors --seed --first-contact --after-learning --out "
        "--json"
    ).split(),
    "validate famous": "--file --json".split(),
    "validate cost": "--file --json".split(),
    "calibrate measure": (
        "--out --minutes --only --device --memory-share --short --retry-failed --processes "
        "--json".split()
    ),
    "calibrate fit": "--file --chip --out --plot --json".split(),
    "cost chip": SILICON,
    "cost package": SILICON,
    "cost system": (
        "--system --gpus --price --prices --years --utilisation --watts --set --sweep --plot --json".split()
    ),
    "sweep status": "--folder --json".split(),
    "sweep resume": "--folder --workers --executor --json".split(),
    "sweep export": "--folder --out --sql --json".split(),
    "sweep plot": "--folder --out --x --y --value --json".split(),
    "cost run": [
        *QUESTION[:-1], *RUN, *PAID, *IMPORTS, "--sweep", "--plot", "--json",
    ],
    "cost token": [
        *"--model --system --gpus --isl --osl --concurrency --rate --plan --engine --spread --set".split(),
        *PAID, *IMPORTS, "--sweep", "--plot", "--json",
    ],
    "characterize trace": [*TRACED[:-1], "--step", "--picture", "--json"],
    "scaling": (
        "--system --gpus --strategies --mode --plan --micro-batch --batch-per-gpu --global-batch "
        "--seq-len --target-len --floor --set --study --plot --picture --json"
    ).split(),
    "ui": "--port --host --workers --browser --no-browser --json".split(),
    "mcp": "--http --port --schemas --json".split(),
    "sweep front": "--folder --plot --json".split(),
    "codesign": "--study --out --workers --executor --yes --plot --json".split(),
    "optimise": "--study --trials --storage --out --resume --plot --json".split(),
    "buy": (
        "--model --budget --deadline --tokens --rate --users --isl --osl --pay --systems --region --years "
        "--utilisation --seq-len --global-batch --plan --set --report --json"
    ).split(),
    "compare": [
        *"--model --budget --gpus --workload --topologies --equal --by --global-batch --seq-len".split(),
        *"--target-len --plan --isl --osl --concurrency --tpot --ttft --engine --rent --price".split(),
        *"--years --utilisation --region".split(), *RUN, "--set", "--measured", "--why", "--plot", "--json",
    ],
    "changed": "--over --save --json".split(),
    "doctor": "--folder --results --json".split(),
    "completion": "--shell --json".split(),
    "characterize run": (
        "--config --out --dry-run --resume --timeout --system --node --master --json".split()
    ),
    "translate train": (
        "--model --source --target --vocab --width --layers --heads --ffn --form --batch --rate "
        "--dropout --max-source --max-target --held-out --epochs --steps --evaluate-every --patience "
        "--checkpoint-every --seed --precision --device --out --json"
    ).split(),
    "trace": "--module --inputs --loss --batch --seq-len --size --name --save --hub --json".split(),
    "translate run": (
        "--folder --batch --beam --length-penalty --device --last --file --json".split()
    ),
    "translate evaluate": (
        "--folder --batch --beam --length-penalty --device --last --source --target --lines --out "
        "--json"
    ).split(),
    "translate import-weights": "--file --tokenizer --out --model --json".split(),
    "translate make-text": "--source --target --lines --words --seed --json".split(),
    "sensitivity": [
        *QUESTION[:-1], *"--isl --osl --concurrency --rate --engine --spread".split(),
        *"--factor --replan --rent --price --years --utilisation --plot --json".split(),
    ],
}  # fmt: skip
"""Every verb and its flags: a change here is a change of the contract."""

ESTIMATE_KEYS = (
    "model system gpus plan plan_chosen fits step_s tokens_per_s tokens_per_s_per_gpu "
    "tflops_per_gpu mfu hfu peak_memory_bytes energy_joules limited_by interval breakdown memory "
    "assumptions overrides"
).split()
SEARCH_KEYS = (
    "plans plans_evaluated plans_pruned plans_feasible evaluation_seconds rejected".split()
)
LEAF_KEYS = "name value unit evidence children".split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("toy")
    (path / "config.json").write_text(json.dumps(TOY))
    (path / "system.toml").write_text(TOY_SYSTEM)
    return path


def toy(folder: Path, *more: str) -> tuple[str, ...]:
    """A small question."""
    system = ("--system", str(folder / "system.toml"), "--gpus", "16")
    return ("estimate", str(folder), *system, "--global-batch", "32", *more)


def answer(*arguments: str) -> Any:
    """The JSON of a command that answers."""
    outcome = foretell(*arguments, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    return outcome.json


DEGREES = "--tp --pp --ep --cp".split()
WORDS = [*DEGREES, *"--zero --mbs --precision --recompute".split()]
STEPS = (
    "estimate", "search", "memory", "simulate", "explain", "improve", "diagnose", "cost run",
    "characterize trace", "compare", "sensitivity", "buy",
)  # fmt: skip
TYPED = {
    "serve": DEGREES,
    "size": DEGREES,
    "cost token": DEGREES,
    "post-train": WORDS,
    **{verb: [*WORDS, "--framework"] for verb in STEPS},
}
"""Flags for words of a plan, behind `--plan`."""
ENCODED = "estimate", "search", "memory", "simulate", "explain", "cost run", "sensitivity"
for verb in ENCODED:
    at = FLAGS[verb].index("--plan")
    FLAGS[verb][at:at] = ["--images", "--audio", "--towers"]
for verb, words in TYPED.items():
    at = FLAGS[verb].index("--plan") + 1
    FLAGS[verb][at:at] = words


def verbs(app: Any, before: str = "") -> dict[str, list[str]]:
    """Flags of every verb of the command line."""
    found: dict[str, list[str]] = {}
    for name in app:
        if name.startswith("-") or name == "lab":  # its verbs are those without lab before them
            continue
        inner = app[name]
        if any(not word.startswith("-") for word in inner):
            found |= verbs(inner, f"{before}{name} ")
        else:
            names = [word for item in inner.assemble_argument_collection() for word in item.names]
            found[before + name] = [word for word in names if word.startswith("--")]
    return found


def test_flags_are_frozen() -> None:
    assert verbs(make_app()) == FLAGS


def leaves_sum(tree: dict[str, Any]) -> float:
    assert set(LEAF_KEYS) <= set(tree)
    if not tree["children"]:
        return float(tree["value"])
    total = sum(leaves_sum(child) for child in tree["children"])
    assert total == pytest.approx(tree["value"], rel=1e-9, abs=1e-12)
    return total


def test_estimate() -> None:
    record = answer("estimate", *LLAMA)
    assert set(ESTIMATE_KEYS) <= set(record)
    assert record["model"] == "llama-3.1-70b"
    assert record["gpus"] == 64
    assert record["plan_chosen"] is False
    assert record["fits"] in ("yes", "too_close")
    assert leaves_sum(record["breakdown"]) == pytest.approx(record["step_s"], rel=1e-9)
    assert leaves_sum(record["memory"]) == pytest.approx(record["peak_memory_bytes"], rel=1e-9)
    for low, high in record["interval"].values():
        assert 0.0 < low < record["step_s"] < high
    assert record["energy_joules"] > 64 * 100 * record["step_s"]
    per_gpu = record["tokens_per_s"] / 64
    assert record["tokens_per_s_per_gpu"] == pytest.approx(per_gpu, rel=1e-12)


def test_python_is_the_command_line(folder: Path) -> None:
    plan = "tp8 pp2 mbs1 zero1"
    record = package.estimate("llama-3.1-70b", system="h100-sxm", gpus=64, plan=plan).to_dict()
    assert json.loads(json.dumps(record)) == answer("estimate", *LLAMA)
    found = package.search(
        folder, system=folder / "system.toml", gpus=16, global_batch=32, top=3
    ).to_dict()
    told = answer("search", *toy(folder)[1:], "--top", "3")
    for one in (found, told):
        assert one.pop("evaluation_seconds") > 0
    assert json.loads(json.dumps(found)) == told


def test_search(folder: Path) -> None:
    record = answer("search", *toy(folder)[1:], "--top", "4")
    assert set(SEARCH_KEYS) <= set(record)
    assert len(record["plans"]) == 4
    trees = {"breakdown", "memory"}
    for plan in record["plans"]:
        assert set(ESTIMATE_KEYS) - trees <= set(plan)
        assert not trees & set(plan)
    steps = [plan["step_s"] for plan in record["plans"]]
    assert steps == sorted(steps)
    assert record["plans_evaluated"] >= record["plans_feasible"] >= 4
    assert record["plans"][0]["plan"] == answer(*toy(folder))["plan"]


def test_a_plan_fixes_what_is_not_searched(folder: Path) -> None:
    record = answer("search", *toy(folder)[1:], "--top", "3", "--plan", "precision=fp8 no-flash")
    assert all({"precision=fp8", "no-flash"} <= set(p["plan"].split()) for p in record["plans"])


def test_a_chosen_plan_is_said_and_its_text_means_the_same(folder: Path) -> None:
    chosen = answer(*toy(folder))
    assert chosen["plan_chosen"] is True
    assert any("chosen" in said for said in chosen["assumptions"])
    given = answer(*toy(folder, "--plan", chosen["plan"]))
    for key in ("plan", "step_s", "peak_memory_bytes", "breakdown", "memory"):
        assert given[key] == chosen[key]


def test_chips_and_system_in_one_flag() -> None:
    told = answer("estimate", "llama-3.1-70b", "--gpus", "64xH100", *LLAMA[5:])
    named = answer("estimate", *LLAMA)
    assert told["step_s"] == named["step_s"]
    assert told["gpus"] == 64
    twice = foretell("estimate", "llama-3.1-70b", "--gpus", "64xH100", "--system", "h200-sxm")
    assert twice.code == 2


@pytest.mark.parametrize("path", ["config.json", ""])
def test_a_model_of_ones_own(folder: Path, path: str) -> None:
    told = answer("estimate", str(folder / path), *toy(folder)[2:], "--plan", "tp2")
    assert told["model"] == folder.name
    shown = answer("catalog", "show", str(folder / path))
    assert shown["kind"] == "model"
    assert shown["parameters"] == shown["parameters_text"] == TOY_PARAMETERS
    assert shown["parameters_active"] == TOY_PARAMETERS


@pytest.mark.parametrize(
    ("setting", "faster"),
    [
        ("model.stack.layers.ffn.width=3072", False),
        ("model.num_hidden_layers=16", False),
        ("chip.memory_bandwidth_bytes_per_s=1 TB/s", False),
        ("chip.matrix_flop_per_s.bf16=500 TFLOP/s", False),
        ("system.chip.matrix_flop_per_s.bf16=2 PFLOP/s", True),
        ("network.node.bandwidth_bytes_per_s=400 Gbit/s", False),
        ("network.node.bandwidth_bytes_per_s=1.2 TB/s", True),
        ("network.tiers.1.bandwidth_bytes_per_s=1 TB/s", True),
        ("network.cluster.latency_s=1 ms", False),
        ("system.network.cluster.latency_s=1 ms", False),
        ("plan.recompute=full", False),
        ("job.seq_len=4096", False),
    ],
)
def test_set_reaches_every_record(folder: Path, setting: str, faster: bool) -> None:
    before = answer(*toy(folder, "--plan", "tp2 pp2"))
    after = answer(*toy(folder, "--plan", "tp2 pp2", "--set", setting))
    assert (after["step_s"] < before["step_s"]) is faster
    path, _, value = setting.partition("=")
    assert after["overrides"] == {path: value}
    assert before["overrides"] == {}


def test_set_is_taken_in_the_fields_unit(folder: Path) -> None:
    told = {
        answer(*toy(folder, "--plan", "tp2", "--set", f"network.node.bandwidth_bytes_per_s={v}"))[
            "step_s"
        ]
        for v in ("400 Gbit/s", "50 GB/s", "50e9", "50000000000")
    }
    assert len(told) == 1


def test_set_again_and_again(folder: Path) -> None:
    settings = ["chip.memory_bytes=10 GB", "network.node.latency_s=1us", "prices.pue=1.1"]
    words = [word for setting in settings for word in ("--set", setting)]
    told = answer(*toy(folder, "--plan", "tp2", *words))
    assert told["overrides"] == dict(setting.split("=") for setting in settings)
    assert told["memory_capacity_bytes"] == 10e9


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("chip.matrix_flop_per_s", "chip.matrix_flop_per_s.bf16"),
        ("system.chip", "system.chip.cores"),
    ],
)
def test_what_holds_more_than_one_value_is_set_by_one_of_them(
    folder: Path, path: str, inside: str
) -> None:
    outcome = foretell(*toy(folder, "--set", f"{path}=2000 TFLOP/s"))
    assert (outcome.code, outcome.out) == (2, "")
    assert f"{path}: holds more than one value" in outcome.err
    assert f" {inside}," in outcome.err


@pytest.mark.parametrize("kind", ["chips", "systems", "models"])
def test_every_entry_is_listed_and_can_be_shown(kind: str) -> None:
    listed = answer("catalog", kind)
    assert len(listed) > 30
    assert [entry["id"] for entry in listed] == sorted({entry["id"] for entry in listed})
    for entry in (listed[0], listed[len(listed) // 2], listed[-1]):
        assert entry["kind"] == kind.removesuffix("s")
        shown = answer("catalog", "show", entry["id"])
        assert (shown["kind"], shown["id"]) == (entry["kind"], entry["id"])
        assert isinstance(shown["aliases"], list)
        assert shown["values"]
        for fact in shown["values"].values():
            assert {"value", "source", "status"} <= set(fact)
            assert fact["status"] in ("datasheet", "measured", "published", "inferred", "recalled")
        text = foretell("catalog", "show", entry["id"])
        assert (text.code, text.err) == (0, "")
        assert all(path in text.out for path in shown["values"])


def test_shown_models_have_their_counts() -> None:
    shown = answer("catalog", "show", "mixtral-8x7b")
    assert shown["parameters"] == shown["parameters_text"] == 46_702_792_704
    assert shown["parameters_active"] == 12_879_925_248


def test_a_chips_name_shows_the_chip() -> None:
    assert answer("catalog", "show", "h100-sxm")["kind"] == "chip"
    assert answer("catalog", "show", "H100")["kind"] == "chip"
    assert answer("catalog", "show", "perlmutter")["kind"] == "system"


def test_a_system_of_ones_own_is_shown(folder: Path) -> None:
    shown = answer("catalog", "show", str(folder / "system.toml"))
    assert (shown["kind"], shown["id"]) == ("system", "toy-cluster")
    fact = shown["values"]["node_watts"]
    assert fact == {"value": 5000.0, "source": "made up for the tests", "status": "inferred"}


REFERENCE = "--model gpt3-1t --strategy seqp --chip b200 --fast-domain 8 --gpus 512".split()


def test_a_missing_flag_does_not_hide_what_else_is_wrong() -> None:
    done = foretell("reference", "search", "--model", "bogus", "--gpus", "0", "--top", "x")
    assert done.code == 2
    assert done.out == ""
    paths = [line.removeprefix("error: ").split(": ")[0] for line in done.err.splitlines()]
    assert paths == ["--strategy", "--chip", "--fast-domain", "model", "gpus", "top"]
    several = foretell("reference", "search", "--gpus", "12", "--fast-domain", "8")
    assert several.err.count("missing") == 3
    alone = foretell("reference", "search", *REFERENCE[:-2])
    assert (alone.code, alone.err) == (2, "error: --gpus: missing\n")


def test_reference_search() -> None:
    record = answer("reference", "search", *REFERENCE, "--top", "2")
    assert len(record["plans"]) == 2
    assert record["candidates"] >= record["feasible"]
    row = record["plans"][0]
    assert (row["model"], row["strategy"], row["system"]) == ("gpt3_1T", "2d-seqp", "B200")
    assert row["gbs"] == 4096
    assert foretell("reference", "search", *REFERENCE).out.count("\n") == 12


@pytest.mark.parametrize(
    "arguments",
    [
        ("estimate", "llama-3.1-405b", "--gpus", "8xH100", "--global-batch", "64"),
        ("estimate", "llama-3.1-70b", "--gpus", "8xH100", "--plan", "tp8"),
        ("estimate", "llama-3.1-70b", "--gpus", "64xH100", "--plan", "tp8 pp3"),
        ("estimate", "llama-3.1-70b", "--gpus", "64xH100", "--plan", "tp7"),
        ("search", "llama-3.1-405b", "--gpus", "8xH100", "--global-batch", "64"),
        ("reference", "search", *REFERENCE[:-1], "4"),
    ],
)
def test_the_answer_no(arguments: tuple[str, ...]) -> None:
    said = foretell(*arguments)
    assert said.code == 1
    # A plan that keeps the rules and does not fit shows its numbers all the same.
    assert said.out.startswith("does not fit, ") if "tp8" in arguments else said.out == ""
    told = foretell(*arguments, "--json")
    assert (told.code, told.err) == (1, said.err)
    assert told.json["fits"] == "no"
    lines = said.err.splitlines()
    assert len(told.json["problems"]) == len(lines) > 0
    for problem, line in zip(told.json["problems"], lines, strict=True):
        assert set(problem) == {"path", "value", "message", "allowed", "nearest"}
        assert line.startswith(f"error: {problem['path']}: {problem['message']}")


def test_the_nearest_plan_works() -> None:
    told = foretell("estimate", *LLAMA[:5], "--plan", "tp8 pp1 mbs16", "--json")
    assert told.code == 1
    nearest = {problem["nearest"] for problem in told.json["problems"]}
    assert len(nearest) == 1
    assert answer("estimate", *LLAMA[:5], "--plan", nearest.pop())["fits"] != "no"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("estimat",),
            "allowed: estimate, search, memory, simulate, explain, compare-plans, improve, ",
        ),
        (("catalog", "chip"), "unknown verb 'chip'"),
        (("estimate",), "--model: missing"),
        (("estimate", "x", "--gpuss", "8"), "--gpuss: unknown option; did you mean --gpus?"),
        (("estimate", "x", "--gpus"), "--gpus: needs a value"),
        (("estimate", "x", "--gpus", "8", "--gpus", "9"), "--gpus: given more than once"),
        (("estimate", "x", "y"), "unexpected argument 'y'"),
        (("serve", "x", "8xH100"), "unexpected argument '8xH100'; did you mean --gpus 8xH100?"),
        (("post-train", "x", "grpo"), "did you mean --algorithm grpo?"),
        (("post-train", "x", "--lora", "16"), 'did you mean --plan "lora=16"?'),
        (("estimate", "x", "--qlora", "8"), 'did you mean --plan "lora=8 weights=nf4"?'),
        (("estimate", "lama-3.1-70b", "--gpus", "8xH100"), "did you mean llama-3.1-70b"),
        (("estimate", "llama-3.1-70b", "--gpus", "8xH10O"), "did you mean h100"),
        (("search", "llama-3.1-70b", "--gpus", "8xH100", "--top", "0"), "top: "),
        (("search", "llama-3.1-70b", "--gpus", "8xH100", "--workers", "-2"), "workers: "),
        (("reference", "search", *REFERENCE[:-1], "1e3"), "gpus: "),
        (("reference", "study", "--out", "/dev/null/x"), "out"),
    ],
)
def test_bad_input(arguments: tuple[str, ...], said: str) -> None:
    for more in ((), ("--json",)):
        outcome = foretell(*arguments, *more)
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.startswith("error: ")
        assert said in outcome.err


def test_all_problems_at_once(folder: Path) -> None:
    outcome = foretell(
        *("estimate", "no-such-model", "--system", "no-such-system", "--gpus", "0"),
        *("--global-batch", "-1", "--seq-len", "nan", "--target-len", "x", "--plan", "tp0 foo"),
        *("--set", "prices.pue=-1"),
    )
    assert outcome.code == 2
    paths = "model system gpus global_batch seq_len target_len plan plan.tp prices.pue".split()
    for path in paths:
        assert f"error: {path}: " in outcome.err


def test_help_and_version() -> None:
    assert foretell("--version").out == f"foretell {package.__version__}\n"
    for verb, flags in FLAGS.items():
        outcome = foretell(*verb.split(), "--help-all")
        assert (outcome.code, outcome.err) == (0, "")
        # A flag for what is given by its place is not printed beside it in full.
        assert all(flag in outcome.out for flag in flags)
    assert "estimate" in foretell().out


def test_help_shows_at_most_fifteen_flags_and_the_rest_on_request() -> None:
    for verb in (verb for verb in FLAGS if verb.split()[0] not in LAB.split()):
        shown = foretell(*verb.split(), "--help").out.partition("Parameters")[2]
        named = [
            line for line in shown.splitlines() if line[:2] == "\u2502 " and " --" in line[:24]
        ]
        assert 0 < len(named) <= 15, verb


def test_old_names_of_the_lab_keep_working() -> None:
    for words in (("validate", "famous", "--help"), ("lab", "validate", "famous", "--help")):
        assert foretell(*words).code == 0
    assert "validate" not in foretell("--help").out.replace("foretell lab", "")


def test_post_train_asks_which_algorithm() -> None:
    asked = foretell("post-train", "qwen2.5-7b", "--gpus", "8xH100")
    assert (asked.code, asked.out) == (2, "")
    assert "--algorithm: which one?; allowed: sft, " in asked.err
    assert "[default: grpo]" not in foretell("post-train", "--help").out


def test_compare_asks_for_the_model_by_its_flag() -> None:
    asked = foretell("compare", "hgx-h100", "dgx-h200", "--gpus", "8")
    assert (asked.code, asked.out) == (2, "")
    assert asked.err.startswith("error: model: missing; allowed: --model ")


def test_the_model_comes_first() -> None:
    rest = ("--gpus", "8xH100", "--json")
    new = foretell("compare-plans", "llama-3.1-8b", "tp8 zero1", "tp4 zero1", *rest).json
    assert new == foretell("compare-plans", "tp8 zero1", "tp4 zero1", "llama-3.1-8b", *rest).json


INTERVALS = {
    "estimate llama-3.1-8b --system h100-sxm --gpus 8 --plan zero3": (
        "step_s tokens_per_s tokens_per_s_per_gpu tflops_per_gpu mfu hfu peak_memory_bytes energy_joules"
    ),
    "serve llama-3.1-8b --system h100-sxm --gpus 1 --concurrency 8": (
        "ttft_ms tpot_ms tpot_with_first_ms e2e_ms requests_per_s output_tokens_per_s "
        "output_tokens_per_s_per_gpu output_tokens_per_s_per_user usd_per_million_input_tokens "
        "usd_per_million_output_tokens joules_per_token joules_per_input_token "
        "joules_per_output_token tokens_per_joule"
    ),
    "size llama-3.1-8b --system h100-sxm --rate 5 --no-simulate": (
        "gpus ttft_ms tpot_ms requests_per_s headroom output_tokens_per_s_per_gpu "
        "output_tokens_per_s_per_user usd_per_hour usd_per_million_output_tokens"
    ),
    "cost run llama-3.1-8b --system h100-sxm --gpus 8 --plan zero3 --tokens 1B": (
        "usd gpu_hours days step_s mfu tokens_per_s usd_per_gpu_hour usd_per_million_tokens "
        "energy_mwh carbon_kg tokens_per_usd tokens_per_joule"
    ),
    "cost token llama-3.1-8b --system h100-sxm --gpus 1 --concurrency 8": (
        "usd usd_per_million_input_tokens usd_per_million_output_tokens energy_mwh ttft_ms "
        "tpot_ms requests_per_s tokens_per_s tokens_per_s_per_user"
    ),
    "cost system h100-sxm --gpus 64": "usd",
    "simulate llama-3.1-8b --system h100-sxm --gpus 8 --plan zero3": (
        "step_s tokens_per_s mfu peak_memory_bytes"
    ),
    "memory llama-3.1-8b --system h100-sxm --gpus 8 --plan zero3": "peak_memory_bytes step_s",
    "network h100-sxm --collective all-reduce --bytes 1GB --group 16": (
        "seconds algorithm_bytes_per_s bus_bytes_per_s"
    ),
}
"""A question to each verb, and numbers of its answer that have an interval."""


@pytest.mark.parametrize("question", INTERVALS)
def test_predicted_numbers_have_intervals(question: str) -> None:
    record = answer(*question.split())
    told = record["intervals"]
    assert set(INTERVALS[question].split()) <= set(told)
    where = record.get("best", record)
    for name, interval in told.items():
        value = where[name]["mean"] if isinstance(where[name], dict) else where[name]
        (low90, high90), (low50, high50) = interval["p90"], interval["p50"]
        ends = [low90, low50, value, high50, high90]
        slack = 1e-9 * abs(value)
        assert all(a <= b + slack for a, b in itertools.pairwise(ends)), name
    if "fits" in record and "peak_memory_bytes" in told:
        assert 0.0 <= record["fit_probability"] <= 1.0


def test_rows_of_compare_and_scaling_have_intervals() -> None:
    place = ("--model", "llama-3.1-8b", "--gpus", "8", "--seq-len", "2048")
    for one in answer("compare", "h100-sxm", "h200-sxm", *place)["systems"]:
        assert set(one["intervals"]) == {"tokens_per_s", "usd_per_million_tokens"}
    curves = answer(
        "scaling", "llama-3.1-8b", "--system", "h100-sxm", "--gpus", "8,16", "--strategies", "zero3"
    )["curves"]
    for point in curves[0]["points"]:
        for name in ("step_s", "tokens_per_s", "mfu", "peak_memory_bytes", "compute_s"):
            low, high = point["intervals"][name]["p90"]
            assert low <= point[name] <= high
