"""Generated bad input: never a traceback, nothing on standard output with exit code 2, and every
problem a line on standard error that names the field.

2,000 cases in all, each one run of the command line in this process.
"""

import copy
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.specs.plan import Plan, parse_plan
from tests.surfaces.command import TOY, TOY_SYSTEM, Outcome, foretell

CASES = {
    "numbers": 300,
    "reference": 150,
    "names": 200,
    "plan words": 300,
    "settings": 350,
    "configs": 300,
    "systems": 250,
    "files": 150,
}
"""Cases of each test below."""

Json = Any

numbers = (
    st.sampled_from(
        """0 -1 -0 1.5 1e3 1e400 -1e400 nan NaN inf -inf Infinity 4k 1_000 1,000 0x10 १२ ² ½ 1e-400 +- ++1
        --1 1000000001 99999999999999999999999 8.0 None true null 8x x8 8x8x8 64xNoSuchChip 0xH100
        -4xH100""".split()
    )
    | st.sampled_from(["", " ", "8 8", "9" * 5000, "eight", "1\n2", "\x00", "\udcff", "🦙"])
    | st.text(max_size=12)
)
"""Texts of which few are a whole number from 1."""
words = st.text(max_size=20) | st.sampled_from(
    [
        "",
        ".",
        "..",
        "/",
        "~",
        "~nobody-by-this-name/config.json",
        "-",
        "a" * 300,
        "h100-smx",
        "llama-3.1-70",
        "\x00",
        "con/fig",
        "🦙" * 90,
    ]
)


def test_two_thousand_cases() -> None:
    assert sum(CASES.values()) >= 2000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a good model and a good system in it."""
    path = tmp_path_factory.mktemp("bad-input")
    (path / "config.json").write_text(json.dumps(TOY))
    (path / "system.toml").write_text(TOY_SYSTEM)
    return path


def check(outcome: Outcome) -> Outcome:
    """What holds of every outcome of a command with --json."""
    assert "Traceback" not in outcome.err
    assert outcome.code in (0, 1, 2), outcome.err
    lines = outcome.err.splitlines()
    assert all(re.match(r"error: \S", line) for line in lines)
    assert all(len(line) < 3000 for line in lines)
    assert len(set(lines)) == len(lines)
    assert bool(lines) == (outcome.code != 0)
    if outcome.code == 2:
        assert outcome.out == ""
    else:
        record = outcome.json
        if "step_s" in record:
            assert all(0 < record[name] < 1e200 for name in POSITIVE)
            assert record["mfu"] <= record["hfu"]
            assert abs(total(record["breakdown"]) / record["step_s"] - 1) < 1e-9
        if outcome.code == 1:
            assert record["fits"] == "no"
            assert len(record["problems"]) == len(lines)
    return outcome


POSITIVE = (
    *("step_s", "tokens_per_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu"),
    *("peak_memory_bytes", "memory_capacity_bytes"),
)
"""What no answer can do without."""


def total(tree: dict[str, Json]) -> float:
    """The sum of a tree's leaves."""
    return sum(map(total, tree["children"])) if tree["children"] else tree["value"]


def ask(folder: Path, **flags: str) -> Outcome:
    """An estimate of the good model on the good system, with some flags in their place."""
    told = {
        "model": str(folder / "config.json"),
        "system": str(folder / "system.toml"),
        "gpus": "16",
        "global-batch": "32",
        "seq-len": "512",
        "plan": "tp2 pp2",
        **flags,
    }
    return check(foretell("estimate", "--json", *(f"--{k}={v}" for k, v in told.items())))


def is_count(text: str) -> bool:
    """Whether a text is a whole number that a flag accepts."""
    plain = re.fullmatch(r"\+?[0-9]{1,30}", text) is not None
    return plain and 1 <= int(text) <= 10**9


@given(
    bad=st.dictionaries(
        st.sampled_from(["gpus", "global-batch", "seq-len", "target-len"]), numbers, min_size=1
    )
)
@settings(max_examples=CASES["numbers"])
def test_numbers(folder: Path, bad: dict[str, str]) -> None:
    outcome = ask(folder, **bad)
    wrong = [
        name
        for name, text in bad.items()
        if not is_count(text) and not named(text) and not (name.endswith("-len") and short(text))
    ]
    if wrong:
        assert outcome.code == 2
    for name in wrong:
        assert re.search(rf"^error: {name.replace('-', '_')}\b", outcome.err, re.MULTILINE)


def short(text: str) -> bool:
    """Whether a text is a length in thousands, as in 8k."""
    return re.fullmatch(r"\s*0*[1-9][0-9]{0,4}\s?[kK]\s*", text) is not None


def named(text: str) -> bool:
    """Whether a text is a count and a system's name, as in 512xH100."""
    return re.match(r"\s*\d+\s*[xX×]", text) is not None


@given(
    bad=st.dictionaries(
        st.sampled_from(["fast-domain", "gpus", "global-batch", "top"]), numbers, min_size=1
    ),
    names=st.dictionaries(st.sampled_from(["model", "strategy", "chip"]), words, max_size=2),
)
@settings(max_examples=CASES["reference"])
def test_reference(bad: dict[str, str], names: dict[str, str]) -> None:
    good = {"model": "gpt3", "strategy": "1d", "chip": "a100", "fast-domain": "8", "gpus": "16"}
    told = {**good, "global-batch": "256", "top": "1", **bad, **names}
    arguments = [f"--{name}={text}" for name, text in told.items()]
    outcome = check(foretell("reference", "search", "--json", *arguments))
    for name, text in bad.items():
        if re.fullmatch(r"\+?0*[1-9][0-9]*", text) is None:
            assert outcome.code == 2
            assert f"error: {name.replace('-', '_')}: " in outcome.err


@given(
    where=st.sampled_from(["model", "system", "both", "show", "verb", "flag"]),
    name=words,
)
@settings(max_examples=CASES["names"])
def test_names(folder: Path, where: str, name: str) -> None:
    if where == "show":
        check(foretell("catalog", "show", "--json", "--", name))
    elif where == "verb":
        outcome = foretell("x" + name, "--json")
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.startswith("error: unknown verb")
    elif where == "flag":
        outcome = foretell("estimate", "llama", f"--x{name}", "--json")
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.startswith("error: --x")
    else:
        parts = ["model", "system"] if where == "both" else [where]
        outcome = ask(folder, **dict.fromkeys(parts, name))
        if outcome.code == 2 and where == "both":
            assert len(outcome.err.splitlines()) >= 2


plan_word = (
    st.builds(
        "{}{}".format,
        st.sampled_from("tp pp vpp dp cp ep etp zero mbs sp flash TP Tp zer".split()),
        st.sampled_from("0 1 2 3 4 8 16 -1 1.5 9999999999999 ٣ x".split()) | st.just(""),
    )
    | st.builds(
        "{}={}".format,
        st.sampled_from(
            "recompute schedule precision optimizer weights gradients master states order tp x".split()
        ),
        st.sampled_from("none full bf16 fp8 fp32 gpipe sgd tp,cp,dp,pp tp,tp,dp,pp nan x".split())
        | st.text(max_size=6),
    )
    | st.sampled_from("sp no-sp flash no-flash no-no-sp no-tp8 = =8 tp= tp=8 -- 🦙 tp8,pp2".split())
    | st.text(max_size=8)
)


@given(chosen=st.lists(plan_word, max_size=6))
@settings(max_examples=CASES["plan words"])
def test_plan_words(folder: Path, chosen: list[str]) -> None:
    text = " ".join(chosen)
    outcome = ask(folder, plan=text)
    if outcome.code == 2:
        assert all(line.startswith("error: plan") for line in outcome.err.splitlines())
    if outcome.code == 0:
        printed = outcome.json["plan"]
        assert isinstance(parse_plan(printed), Plan)
        again = ask(folder, plan=printed).json
        if outcome.json["plan_chosen"]:  # by a search, of words that name no layout
            assert not again["plan_chosen"]
            apart = {"plan_chosen", "assumptions"}
            assert set(again["assumptions"]) < set(outcome.json["assumptions"])
            again = {key: value for key, value in again.items() if key not in apart}
            assert again.items() <= outcome.json.items()
            return
        assert again == outcome.json


paths = st.sampled_from(
    """chip.memory_bytes chip.memory_bandwidth_bytes_per_s chip.matrix_flop_per_s.bf16 chip.id
        chip.tdp_watts chip.matrix_flop_per_s chip.matrix_flop_per_s.bf99 chip.release_year
        system.chips_per_node system.network.node.size system.chip.memory_bytes system.name
        network.node.bandwidth_bytes_per_s network.cluster.latency_s network.node.size
        network.tiers network.tiers.0.taper network.tiers.7.taper network.node.topology network.node
        network.node.in_network_reduction network.node.shape network.cluster.efficiency
        model.stack.hidden model.stack.layers.ffn.width model.stack.layers.0.mixers.heads
        model.max_positions model.kind model.dtype model.head.tied model.stack.layers model.assumptions
        model.stack.layers.99.norms model.embedding.vocab model.head.outputs
        plan.tp plan.dp plan.recompute plan.sp plan.order plan.micro_batch plan.zero plan.weights
        job.gpus job.global_batch job.seq_len job.target_len prices.pue prices.usd_per_kwh
        chip system. .chip chip..id chips.id planet.tp . = a.b network.nod.size""".split()
) | st.text(max_size=12)
values = (
    st.sampled_from(
        """0 -1 1 2 3 8 1e400 -1e400 nan inf -inf 1e-400 1e-300 1e300 1e30 1e-30 1e18 1e19 none null true
        false True fp8 400Gbit/s 400Gb/s 5us 5kg 80GB 80GiB 80gb 3.35TB/s 1PB 989TFLOPS 10% 50W
        1e9GB/s ١ 1,5 0x10 1_000""".split()
    )
    | st.sampled_from(
        ["400 Gbit/s", "80 GiB", "5 furlongs", "", " ", "1 2", "=", "a=b", "🦙", "9" * 400]
    )
    | st.text(max_size=8)
    | st.floats().map(str)
)


@given(settings_=st.lists(st.tuples(paths, values), min_size=1, max_size=2))
@settings(max_examples=CASES["settings"])
def test_settings(folder: Path, settings_: list[tuple[str, str]]) -> None:
    good = [
        "--system",
        str(folder / "system.toml"),
        "--gpus=16",
        "--global-batch=32",
        "--seq-len=512",
    ]
    told = [f"--set={path}={value}" for path, value in settings_]
    outcome = check(foretell("estimate", str(folder), *good, "--plan=tp2 pp2", "--json", *told))
    if outcome.code == 2:
        roots = (
            "--set|model|chip|system|network|plan|job|prices|gpus|global_batch|seq_len|target_len"
        )
        assert all(re.match(rf"error: ({roots})\b", line) for line in outcome.err.splitlines())
    if outcome.code == 0:
        assert set(outcome.json["overrides"]) == {path.strip() for path, _ in settings_}


junk: st.SearchStrategy[Json] = st.recursive(
    st.none()
    | st.booleans()
    | st.text(max_size=5)
    | st.integers(-(10**20), 10**20)
    | st.sampled_from([0, -1, 1, 3, 7, 1.5, 2**63, 1e308, 10**400, "8", "", [], {}, "NaN"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=5,
)
more_keys = st.sampled_from(
    """num_experts num_local_experts num_experts_per_tok n_shared_experts moe_intermediate_size
    first_k_dense_replace kv_lora_rank q_lora_rank qk_rope_head_dim qk_nope_head_dim v_head_dim
    sliding_window layer_types text_config vision_config quantization_config dtype layers hidden
    num_layers n_layer n_embd n_head d_model""".split()
)
families = st.sampled_from(
    """llama mistral qwen2 qwen3 qwen3_moe mixtral gemma2 gemma3 phi3 deepseek_v3 deepseek_v32 gpt2 opt
    bloom falcon gpt_neox bert vit t5 bart whisper mamba2 bamba nemotron_h qwen3_next llama4 kimi_k2
    gpt_oss glm4_moe dbrx nosuch""".split()
)


@given(
    family=st.just("llama") | families,
    dropped=st.sets(st.sampled_from(sorted(TOY)), max_size=3),
    changed=st.dictionaries(st.sampled_from(sorted(TOY)) | more_keys, junk, max_size=3),
)
@settings(max_examples=CASES["configs"])
def test_configs(folder: Path, family: str, dropped: set[str], changed: dict[str, Json]) -> None:
    config = {k: v for k, v in {**TOY, "model_type": family, **changed}.items() if k not in dropped}
    path = folder / "mutant" / "config.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(config))
    outcome = ask(folder, model=str(path))
    if outcome.code == 2:
        assert all("config.json" in line for line in outcome.err.splitlines())
    shown = check(foretell("catalog", "show", str(path), "--json"))
    # What can be estimated can be shown, and what cannot be read fails both ways.
    assert (shown.code == 2) == (outcome.code == 2 and "config.json" in outcome.err)


def leaves(table: dict[str, Json], path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Paths of a table's values, tables included."""
    found = []
    for key, value in table.items():
        found.append((*path, key))
        if isinstance(value, dict):
            found += leaves(value, (*path, key))
    return found


SYSTEM = tomllib.loads(TOY_SYSTEM)
toml_junk = st.sampled_from(
    [0, -1, 1, 2, 1.5, 1e308, -1e308, 10**18, True, "", "8", "nan", "5 kg", "1e400 GB/s", "400 Gb/s",
     "3 GB/s", "h100-sxm", "no-such-chip", [], [1], ["a"], {}, {"value": 1}, {"valu": 1},
     {"value": -1, "status": "sure"}, {"base": "h100-sxm"}, {"base": 7}, float("nan"), float("inf")]
) | st.text(max_size=6)  # fmt: skip


@given(
    cuts=st.lists(st.sampled_from(leaves(SYSTEM)), max_size=2),
    changes=st.lists(st.tuples(st.sampled_from(leaves(SYSTEM)), toml_junk), max_size=2),
    added=st.dictionaries(
        st.sampled_from(["netwrk", "chips", "foo", "", "tdp_watts"]), toml_junk, max_size=1
    ),
)
@settings(max_examples=CASES["systems"])
def test_systems(
    folder: Path,
    cuts: list[tuple[str, ...]],
    changes: list[tuple[tuple[str, ...], Json]],
    added: dict[str, Json],
) -> None:
    table = copy.deepcopy(SYSTEM)
    for path, value in [*((path, None) for path in cuts), *changes]:
        place = table
        for key in path[:-1]:
            place = place.get(key, {}) if isinstance(place, dict) else {}
        if value is None and isinstance(place, dict):
            place.pop(path[-1], None)
        elif isinstance(place, dict):
            place[path[-1]] = copy.deepcopy(value)
    table |= added
    file = folder / "mutant.toml"
    file.write_text(as_toml(table), encoding="utf-8", errors="replace")
    outcome = ask(folder, system=str(file))
    if outcome.code == 2:
        roots = "system|chip|network|plan|mutant.toml"
        assert all(re.search(rf"error: .*\b({roots})\b", line) for line in outcome.err.splitlines())
    shown = check(foretell("catalog", "show", str(file), "--json"))
    assert shown.code in (0, 2)


def as_toml(table: dict[str, Json]) -> str:
    """A table as inline TOML, one key a line."""
    return "".join(f"{_quoted(key)} = {_toml(value)}\n" for key, value in table.items())


def _toml(value: Json) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f"{_quoted(k)} = {_toml(v)}" for k, v in value.items())
        return "{" + inner + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, int | float) else _quoted(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


contents = st.sampled_from(
    [b"", b"\x00", b"\xff\xfe", b"{", b"[]", b"null", b"3", b'"x"', b"{}", b'{"a": NaN}', b"[" * 100_000,
     b'{"a":' * 5000, b"a = 1", b"a = ", b"[network]", b"= 1", b"a = 1\na = 2", b'{"model_type": "llama"}',
     b'{"hidden_size": 1e999}', b"[chip]\nbase = 3", b"\xef\xbb\xbf{}", b"x = " + b"9" * 5000,
     b"a." * 3000 + b"b = 1", b"PK\x03\x04", json.dumps(TOY).encode("utf-16")]
) | st.binary(max_size=60)  # fmt: skip


@given(
    content=contents,
    kind=st.sampled_from(["file", "missing", "folder", "empty folder", "device"]),
    ending=st.sampled_from([".json", ".toml", "", ".TOML"]),
    where=st.sampled_from(["model", "system", "show"]),
)
@settings(max_examples=CASES["files"])
def test_files(folder: Path, content: bytes, kind: str, ending: str, where: str) -> None:
    (folder / f"file{ending}").write_bytes(content)
    (folder / "garbage").mkdir(exist_ok=True)
    (folder / "garbage" / "config.json").write_bytes(content)
    (folder / "empty").mkdir(exist_ok=True)
    path = {
        "file": str(folder / f"file{ending}"),
        "missing": str(folder / f"missing{ending}"),
        "folder": str(folder / "garbage"),
        "empty folder": str(folder / "empty"),
        "device": "/dev/null",
    }[kind]
    if where == "show":
        outcome = check(foretell("catalog", "show", path, "--json"))
    else:
        outcome = ask(folder, **{where: path})
    assert outcome.code == 2
