"""The public names: documented, typed, stable, and deprecated with a warning before they go."""

import inspect
import warnings
from pathlib import Path
from typing import Any

import pytest

import foretell
from foretell.errors import BadInput, ForetellDeprecation, warn_deprecated

POLICY = Path(__file__).parents[2] / "docs" / "stability.md"
NAMES = """
    estimate search memory explain sensitivity compare_plans simulate diagnose serve size fleet post_train
    sweep scaling characterize_trace model system chip parse_plan Plan Model System Chip read_launch
    improve BadInput Infeasible codesign optimise buy compare cost network version_changes RunMonitor
    trace
""".split()
"""What other programs may import: added to, and never renamed without a deprecation."""


def test_the_names_are_those_of_the_policy() -> None:
    assert sorted(foretell.__all__) == sorted(["__version__", *NAMES])
    page = POLICY.read_text(encoding="utf-8")
    assert [name for name in NAMES if f"`{name}`" not in page] == []
    for old in foretell._DEPRECATED:
        assert f"`{old}`" in page


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_documented_and_typed(name: str) -> None:
    thing = getattr(foretell, name)
    assert len((thing.__doc__ or "").split()) >= 3
    function: Any = thing.__init__ if isinstance(thing, type) else thing
    if not isinstance(thing, type):
        signature = inspect.signature(function)
        assert signature.return_annotation is not inspect.Signature.empty
        for parameter in signature.parameters.values():
            assert parameter.annotation is not inspect.Parameter.empty, parameter


def test_an_old_name_still_works_and_says_what_replaces_it() -> None:
    with pytest.warns(ForetellDeprecation, match="use foretell.sensitivity"):
        old = foretell.sensitivities
    assert callable(old)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert callable(foretell.sensitivity)
    with pytest.raises(AttributeError, match="no attribute"):
        _ = foretell.nothing_of_the_kind


def test_a_deprecation_lasts_two_minor_releases() -> None:
    for _, _, since, removed_in in foretell._DEPRECATED.values():
        major, minor = map(int, since.split("."))
        last_major, last_minor = map(int, removed_in.split("."))
        assert (last_major, last_minor) >= (major, minor + 2)
    with pytest.warns(ForetellDeprecation, match="--old is deprecated since 1.0"):
        warn_deprecated("--old", "--new", since="1.0", removed_in="1.2")


def test_one_sensitivity_answers_for_estimates_and_for_questions() -> None:
    job: dict[str, Any] = {
        "system": "h100-sxm",
        "gpus": 8,
        "global_batch": 32,
        "plan": "zero3 mbs1",
    }
    best = foretell.estimate("llama-3.1-8b", **job)
    of_one = foretell.sensitivity(best)
    of_all = foretell.sensitivity("llama-3.1-8b", **job)
    path = "chip.memory_bandwidth_bytes_per_s"
    assert of_one[path] == pytest.approx(of_all[path].elasticities["step_s"])
    with pytest.raises(BadInput, match="carries its own question"):
        foretell.sensitivity(best, gpus=4)  # type: ignore[call-overload]
    with pytest.raises(BadInput, match="belongs to an estimate"):
        foretell.sensitivity("llama-3.1-8b", of="energy_joules", **job)


def test_cost_and_network_are_verbs_of_the_package() -> None:
    bill = foretell.cost("system", "dgx-h200", gpus=16, years=4)
    assert (bill.what, bill.name) == ("system", "dgx-h200")
    run = foretell.cost("run", "llama-3.1-8b", system="h100-sxm", gpus=8, plan="zero3", tokens="1B")
    assert run.usd > 0.0
    assert foretell.cost("chip", node="N5", area=400).usd > 0.0
    with pytest.raises(BadInput, match="chip, package, system, run, token"):
        foretell.cost("house", "mine")  # type: ignore[arg-type]
    found = foretell.network("hgx-h100", collective="all-reduce", size="64MiB", group=8)
    assert found.seconds > 0.0


@pytest.mark.parametrize(
    ("name", "near"), [("overrides", "set"), ("gpu", "gpus"), ("batch_size", "global_batch")]
)
def test_an_argument_that_is_none_names_the_one_that_is(name: str, near: str) -> None:
    with pytest.raises(
        TypeError, match=rf"estimate\(\) has no argument '{name}'; did you mean {near}"
    ):
        foretell.estimate("llama-3.1-8b", system="h100", **{name: 1})
