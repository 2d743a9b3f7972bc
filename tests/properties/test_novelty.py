"""What is new about a question: never less sure for having been seen more often."""

from dataclasses import replace

import pytest

import foretell
from foretell.catalog.error_models import QuestionFacts, error_model, sightings
from foretell.uncertainty.novelty import FEATURES, novelty_of, seen_together

KNOWN = QuestionFacts(
    software="megatron-lm", chip="a100-sxm-80gb", generation="ampere", layout="tp pp",
    fabric="selene", size=1024.0, length=2048.0,
)  # fmt: skip


@pytest.mark.parametrize("kind", ["training", "serving", "post-training"])
def test_every_kind_has_sightings(kind: str) -> None:
    found = sightings(kind)
    assert len({one.source for one in found}) >= 15
    for one in found:
        assert one.facts.software is not None
        assert one.facts.generation
        assert 0.0 < one.least_length <= one.facts.length
    assert set(novelty_of(kind, found[0].facts)) == set(FEATURES)


def test_features_lie_between_seen_and_never_seen() -> None:
    never = QuestionFacts(software="another", chip="x", generation="x", model="x", precision="x",
                  layout="x", fabric="x", size=1e9, length=1e9)  # fmt: skip
    seen, new = novelty_of("training", KNOWN), novelty_of("training", never)
    for name in FEATURES:
        assert 0.0 <= seen[name] <= 1.0
        assert seen[name] <= new[name]
    assert new["together"] == new["software"] == new["scale"] == new["length"] == 1.0


def test_leaving_sources_out_never_makes_a_question_more_certain() -> None:
    sources = sorted({one.source for one in sightings("training")})
    whole = novelty_of("training", KNOWN)
    for source in sources:
        less = novelty_of("training", KNOWN, (source,))
        assert all(less[name] >= whole[name] - 1e-12 for name in FEATURES)
    none = novelty_of("training", KNOWN, tuple(sources))
    assert none["together"] == 1.0
    assert seen_together("training", KNOWN, tuple(sources)) == 0


def test_no_weight_of_novelty_narrows() -> None:
    for kind in ("training", "serving", "post-training"):
        weights = error_model(kind).novelty
        assert all(weights[name] >= 0.0 for name in FEATURES)


def width(plan: str | None, **more: object) -> float:
    asked = {"system": "h100-sxm", "gpus": 64, "global_batch": 256, "seq_len": 4096, **more}
    found = foretell.estimate("llama-3.1-8b", plan=plan, **asked)
    low, high = found.interval["p90"]
    return high / low


def test_unseen_software_and_chips_are_wider() -> None:
    seen = width("framework=nemo tp2 zero1")
    assert seen < 2.2
    assert width("framework=nemo tp2 cp8 zero1", seq_len=1 << 17, global_batch=64) > seen
    assert width("framework=nemo tp2 zero1", system="mi355x") > seen


def test_readme_question_is_within_a_factor_of_two() -> None:
    found = foretell.estimate(
        "llama-3.1-70b", system="h100-sxm", gpus=512, global_batch=1024, seq_len=8192
    )
    low, high = found.interval["p90"]
    assert high / low <= 2.0


def test_a_source_left_out_is_not_among_what_was_seen() -> None:
    facts = replace(KNOWN, software="hai-llm", generation="hopper", model="mixture")
    assert seen_together("training", facts) == 1
    assert seen_together("training", facts, ("DeepSeek-V3 technical report",)) == 0
