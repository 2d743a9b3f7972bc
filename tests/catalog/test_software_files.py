"""Training software of the catalogue: files parse, every value has a source, words find their release."""

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest

from foretell.catalog import software as module
from foretell.catalog.hosts import optimizers
from foretell.catalog.software import (
    FACTS,
    MADE,
    families,
    family_releases,
    family_table,
    releases,
    seen_values,
    software,
    software_names,
)
from foretell.catalog.software_printed import recognise_framework
from foretell.errors import BadInput
from foretell.specs.check import problems_of
from foretell.specs.plan import Plan
from foretell.specs.plan_words import CHOICES
from foretell.specs.software import ALWAYS, NEVER, Host, MemoryAllocator, Optimizer, Software

WORDS = (
    "generic megatron megatron-te megatron-core megatron-graphs megatron-deepspeed nanotron flash-attn fsdp "
    "fsdp-compiled torchtitan torchtitan-2024 internevo jax neuronx pytorch-eager pytorch-compiled"
).split()
"""Words that plans of version 0.11 may have: they stay."""
VTRAIN = "vTrain (MICRO 2024) measured ground truth, Megatron-DeepSpeed"


@pytest.mark.parametrize("family", families())
def test_every_value_has_a_sentence_and_a_source(family: str) -> None:
    table = family_table(family)
    assert table["family"]["id"] == family
    known = {field.name for field in fields(Software)} - {*MADE}
    for block in (*table["release"], *table.get("variant", ())):
        values = {key: raw for key, raw in block.items() if key not in FACTS}
        assert set(values) <= known
        for name, raw in values.items():
            assert raw["why"].endswith("."), name
            assert raw["source"] in table["sources"], name
            assert ("seen" in raw) == ("without" in raw), name
            assert set(raw.get("seen", ())) <= set(table.get("seen", {})), name
            # What rests on runs alone says on which, and what would stand without them.
            assert raw["source"] not in ("slopes", "printed", "logged") or "seen" in raw, name
    used = {raw["source"] for b in (*table["release"], *table.get("variant", ())) for raw in b.values()
            if isinstance(raw, dict)}  # fmt: skip
    used |= {rule["source"] for rule in table.get("rule", ())}
    assert used == set(table["sources"])


@pytest.mark.parametrize("family", families())
def test_releases_are_in_order_and_whole(family: str) -> None:
    found = family_releases(family)
    dates = [one.released for one in releases(family)]
    assert dates == sorted(dates)
    assert len({one.release for one in releases(family)}) == len(dates)
    for one in found:
        record = software(f"{one.word}@{one.release}")
        assert not problems_of(record, "software")
        assert record.id == f"{one.word}@{one.release}"
        assert record.family == family
        assert record.file.endswith(f"{family}.toml")


def test_every_word_is_one_records() -> None:
    names = software_names()
    assert len(names) == len(set(names))
    assert set(WORDS) <= set(names)
    for word in names:
        assert software(word).family in families()


def test_the_generic_one_is_what_a_plan_takes_by_itself() -> None:
    generic, plan = software("generic"), Plan()
    for name in ("fused", "flash", "recompute", "attention", "gradients"):
        assert getattr(generic, name) == getattr(plan, name)
    assert generic.sequence_parallel


def test_a_release_has_what_the_one_before_has() -> None:
    old, new = (software(f"torchtitan@{release}") for release in ("2024", "2025"))
    assert (old.loss, new.loss) == ("plain", "compiled")
    assert "norm=composed-norm" in old.passes.split()
    assert "norm=composed-norm" not in new.passes.split()
    assert old.sequence_copies
    assert new.sequence_copies
    assert software("torchtitan") == new
    assert software("torchtitan-2024") == old


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("torchtitan@2024-06", "torchtitan@2024"),
        ("torchtitan@2025-03", "torchtitan@2025"),
        ("torchtitan@2025-02-28", "torchtitan@2024"),
        ("torchtitan@2026", "torchtitan@2025"),
        ("megatron-lm@2021", "megatron-lm@2020"),
        ("fsdp-compiled@2025-01", "fsdp-compiled@2024"),
        ("fsdp@2023-12", "fsdp@2023"),
        ("megatron@2021", "megatron-lm@2020"),
        ("megatron", "megatron-lm@2025"),
        ("megatron-core@0.12", "megatron-core@0.12"),
        ("megatron-core@0.12.1", "megatron-core@0.12"),
        ("megatron-core@0.8", "megatron-core@0.7"),
        ("megatron-graphs@26.05", "megatron-graphs@26.04"),
        ("deepspeed@2023-06", "deepspeed@0.3"),
        ("deepspeed", "deepspeed@0.13"),
        ("nemo@24.09", "nemo@24.07"),
        ("llm-foundry@2023-09", "llm-foundry@0.1"),
        ("pytorch", "pytorch@2024"),
        ("pytorch-eager", "pytorch@2024"),
    ],
)
def test_a_date_means_the_newest_release_of_then(word: str, found: str) -> None:
    assert software(word).id == found


@pytest.mark.parametrize(
    ("word", "message", "nearest"),
    [
        ("nanotrn", "not a choice", "nanotron"),
        ("torchtitan@9.9", "not a release of torchtitan", "torchtitan@20"),
        ("torchtitan@2019-01", "not a release of torchtitan", "torchtitan@20"),
        ("nanotrn@2024", "not a choice", "nanotron"),
        ("megatron-core@0.1", "not a release of megatron-core", "megatron-core@"),
    ],
)
def test_unknown_words_name_the_nearest(word: str, message: str, nearest: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        software(word)
    (problem,) = caught.value.problems
    assert problem.path == "plan.framework"
    assert problem.allowed
    assert (problem.nearest or "").startswith(nearest)


def test_words_of_before_have_their_values() -> None:
    """Overlap, launches and memory of words of old plans; `megatron` alone is Megatron-LM of today."""
    told = {
        "megatron@2021": ("fp32", NEVER, "eager", "plain"), "megatron-te": ("fp32", NEVER, "eager", "kernel"),
        "megatron-core": ("bf16", ALWAYS, "eager", "kernel"),
        "megatron-graphs": ("bf16", ALWAYS, "program", "kernel"),
        "megatron-deepspeed": ("fp32", NEVER, "eager", "plain"),
        "nanotron": ("fp32", NEVER, "eager", "plain"),
        "flash-attn": ("fp32", ALWAYS, "eager", "kernel"), "fsdp": ("bf16", ALWAYS, "eager", "kernel"),
        "fsdp-compiled": ("bf16", ALWAYS, "compiled", "compiled"),
        "torchtitan": ("fp32", ALWAYS, "compiled", "compiled"),
        "torchtitan-2024": ("fp32", ALWAYS, "compiled", "plain"),
        "internevo": ("bf16", ALWAYS, "eager", "kernel"), "jax": ("fp32", ALWAYS, "program", "kernel"),
        "pytorch-eager": ("fp32", ALWAYS, "eager", "plain"),
        "pytorch-compiled": ("fp32", ALWAYS, "compiled", "compiled"),
    }  # fmt: skip
    for word, values in told.items():
        one = software(word)
        assert values == (one.gradients, one.overlap_stage, one.launch, one.loss), word
    new, old = software("megatron"), software("megatron@2021")
    assert (new.flash, old.flash) == (True, False)
    assert new.overlap_stage < old.overlap_stage
    assert not new.pieces_on


@pytest.mark.parametrize("family", families())
def test_a_family_without_sources_says_whom_it_stands_on(family: str) -> None:
    table = family_table(family)
    stated = [raw for block in table["release"] for raw in block.values() if isinstance(raw, dict)]
    assert stated or table["family"]["based_on"]
    based_on = table["family"].get("based_on", "")
    if based_on:
        newest, near = software(family), software(based_on)
        own = {name for block in table["release"] for name in block}
        for field in fields(Software):
            if field.name not in {*MADE, *own}:
                assert getattr(newest, field.name) == getattr(near, field.name), field.name


def test_every_family_is_known_by_what_is_printed() -> None:
    """A pattern stands in one file alone, and all but the generic one have some."""
    named = [
        (pattern.lower(), family)
        for family in families()
        for pattern in family_table(family)["family"].get("printed", ())
    ]
    assert {family for _, family in named} == {*families()} - {"generic"}
    assert len(dict(named)) == len({*named})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("NeMo", "nemo"),
        ("NeMo 24.07 (Megatron-Core + TE)", "nemo@24.07"),
        ("NeMo 25.04", "nemo@25.02"),
        ("NeMo / Megatron-Core, MLPerf 4.0 container", "nemo"),
        ("NeMo / Megatron-Core, MLPerf 5.0 container", "nemo-mlperf"),
        ("NeMo Megatron-Bridge", "megatron-bridge"),
        ("Megatron-LM (MCore r0.8.0)", "megatron-core@0.7"),
        ("Megatron-Core v0.13", "megatron-core@0.13"),
        ("mcore", "megatron-core"),
        ("Megatron-LM (ROCm)", "primus"),
        ("Megatron-LM (Jan 2021)", "megatron-lm@2021-01"),
        ("MaxText (JAX/XLA)", "maxtext"),
        ("PaxML (JAX)", "jax"),
        ("llm-foundry/Composer FSDP (2023)", "llm-foundry@2023"),
        ("fms-fsdp (PyTorch FSDP + SDPA, torch.compile)", "fsdp-compiled"),
        ("PyTorch FSDP, 2023", "fsdp@2023"),
        ("PyTorch FSDP2, 2025", "fsdp2"),
        ("XTuner, DeepSpeed ZeRO 3, PyTorch 1.13 (2023)", "deepspeed@2023"),
        ("PyTorch compiled blocks and loss", "pytorch-compiled"),
        ("PyTorch eager, SDPA flash", "pytorch"),
        ("PyTorch eager (no torch.compile)", "pytorch"),
        ("torchtune, torch.compile off", "torchtune"),
        ("OLMo-core", "olmo-core"),
        ("GPT-NeoX 2.0", "gpt-neox"),
        ("ms-swift 3.1", "ms-swift"),
        ("llm.c", "llm.c"),
        ("modded-nanogpt", "modded-nanogpt"),
        ("PaddleNLP / paddle 2.5.1 (2023)", "paddle@2.5"),
        ("nanochat speedrun", "nanochat"),
        ("PithTrain", "pithtrain"),
        ("torchtune, packed, torch.compile", "torchtune-compiled"),
        ("HF Trainer / trl 0.13, transformers 4.48", "transformers@4.43"),
        ("Hugging Face Trainer, PyTorch 2.2", "transformers@2024-01"),
        ("PyTorch 2.0, torch.compile, bf16 autocast (nanoGPT)", "pytorch-compiled@2023-03"),
        ("PyTorch 2.11 eager", "pytorch"),
        ("Hugging Face Trainer", "transformers"),
        ("HF Trainer + DeepSpeed ZeRO-3", "transformers"),
        ("HF Accelerate + FSDP", "transformers"),
        ("LLaMA-Factory", "transformers"),
        ("accelerate", "transformers"),
        ("DeepSpeed ZeRO-3", "deepspeed"),
        ("PyTorch FSDP2 (torchtitan)", "torchtitan"),
        ("torchtitan, FSDP2, torch.compile", "torchtitan"),
        ("PyTorch/XLA FSDP", "jax"),
        ("nanoGPT", "pytorch-compiled"),
        ("Nemotron under control", "generic"),
    ],
)
def test_texts_of_tables_name_their_software(text: str, found: str) -> None:
    assert recognise_framework(text) == found


@pytest.mark.parametrize(
    ("text", "architecture", "found"),
    [
        ("Megatron-LM", "ampere", "megatron-lm@2020"),
        ("Megatron-LM", "hopper", "megatron-lm"),
        ("Megatron-LM", "", "megatron-lm"),
        ("llm-foundry", "hopper", "llm-foundry@0.1"),
        ("torchtitan", "hopper", "torchtitan@2024"),
        ("torchtitan", "blackwell", "torchtitan"),
    ],
)
def test_chips_tell_where_no_date_does(text: str, architecture: str, found: str) -> None:
    assert recognise_framework(text, architecture=architecture) == found


def test_what_was_read_from_a_source_is_left_out_with_it() -> None:
    own, without = software("megatron-deepspeed"), software("megatron-deepspeed", (VTRAIN,))
    assert without.step_operations == 0.0 < own.step_operations
    assert replace(software("megatron-deepspeed", ("elsewhere",)), left_out=()) == own
    assert seen_values() == 13


def test_a_value_stays_where_another_source_shows_it() -> None:
    table = family_table("megatron-core")["seen"]
    one, every = (table["nemo"],), tuple(table.values())
    own, alone = software("megatron-core"), software("megatron-core", every)
    assert (
        software("megatron-core", one).step_operations
        == own.step_operations
        > alone.step_operations
    )
    # Families that take it from there leave it out too.
    assert software("nemo", every).step_operations == alone.step_operations


def test_four_records_have_sixty_fields_at_most() -> None:
    records = (Software, Host, MemoryAllocator, Optimizer)
    assert sum(len(fields(record)) for record in records) <= 60


def test_every_optimizer_is_a_word_of_a_plan() -> None:
    assert set(optimizers()) == set(CHOICES["optimizer"])
    for word, one in optimizers().items():
        assert one.id == word
        assert not problems_of(one, "optimizer")


BASE = """
[family]
id = "base"
name = "Base"
[sources]
s = "a test"
[[release]]
release = "1.0"
released = "2023-01"
"""
NEEDED = {
    "fused": "true", "attention": '"fa2"', "gradients": '"fp32"', "sequence_parallel": "true",
    "launch": '"eager"', "allocator": '"pytorch"', "step_operations": "100",
}  # fmt: skip


def lines(**values: str) -> str:
    return "\n".join(
        f'{name} = {{ value = {value}, source = "s", why = "A test." }}'
        for name, value in values.items()
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty catalogue of software."""

    def forget() -> None:
        for remembered in (module._record, families, family_table, family_releases):
            remembered.cache_clear()

    monkeypatch.setattr(module, "FOLDER", tmp_path)
    forget()
    yield tmp_path
    forget()


def test_a_family_stands_on_another(folder: Path) -> None:
    (folder / "base.toml").write_text(BASE + lines(**NEEDED))
    more = BASE.replace("base", "mine").replace('name = "Base"', 'name = "Mine"\nbased_on = "base"')
    (folder / "mine.toml").write_text(
        more
        + lines(step_operations="500")
        + '\n[[release]]\nrelease = "0.9"\nreleased = "2022-06"\n'
    )
    newest, first = software("mine"), software("mine@0.9")
    assert (newest.release, first.release) == ("1.0", "0.9")
    assert (newest.step_operations, first.step_operations) == (500, 100)
    assert newest.launch == "eager"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BASE + lines(**{n: v for n, v in NEEDED.items() if n != "launch"}), "is missing"),
        (BASE + lines(**NEEDED, frobnicates="true"), "no such field"),
        (BASE + lines(**NEEDED).replace('source = "s"', 'source = "t"', 1), "is no source"),
        (BASE + lines(**NEEDED) + "\nmodules = true", "a sentence and a source"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(folder: Path, text: str, message: str) -> None:
    (folder / "base.toml").write_text(text)
    with pytest.raises(BadInput, match=message):
        software("base")
