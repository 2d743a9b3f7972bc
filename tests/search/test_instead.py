"""Ways out of a no: the fewest chips, the next larger chip, and sizes that divide well."""

import pytest

import foretell
from foretell.errors import Infeasible
from foretell.inputs.question import ask, plan_of
from foretell.search.instead import fewest_chips, larger_chip, on_chips, sizes_beside
from foretell.search.search import search_plans


def test_the_fewest_chips_hold_it_and_half_of_them_do_not() -> None:
    scenario, base = plan_of(ask("llama-3.1-70b", gpus="8xH100"), None, searched=True)
    found = fewest_chips(scenario, base)
    assert found is not None
    assert search_plans(on_chips(scenario, found.gpus), base, top=1).plans
    assert not search_plans(on_chips(scenario, found.gpus // 2), base, top=1).plans


def test_a_no_names_the_chips_the_larger_chip_and_a_plan() -> None:
    with pytest.raises(Infeasible) as error:
        foretell.estimate("llama-3.1-70b", gpus="64xH100", plan="tp8 pp2 zero0 recompute=none mbs8")
    problem = error.value.problems[0]
    assert "--gpus 16, the fewest that hold it" in str(problem.allowed)
    assert "the next larger chip that holds it" in str(problem.allowed)
    assert foretell.estimate("llama-3.1-70b", gpus="64xH100", plan=problem.nearest).fits != "no"


def test_a_larger_chip_is_the_smallest_that_is_enough() -> None:
    chip = ask("llama-3.1-8b", gpus="8xH100").system.chip
    found = larger_chip(chip, 100e9)
    assert found is not None
    assert found[1] >= 100e9
    assert larger_chip(chip, 1e15) is None


def test_chips_that_are_no_whole_nodes_say_what_their_neighbours_give() -> None:
    scenario, base = plan_of(ask("llama-3.1-8b", gpus="500xH100"), None, searched=True)
    assert [one.gpus for one in sizes_beside(scenario, base, batch_given=False)] == [496, 512]
    said = foretell.estimate("llama-3.1-8b", gpus="500xH100").assumptions[0]
    assert "496 would give" in said
    assert "512 would give" in said


def test_without_a_number_of_chips_a_model_gets_as_many_as_hold_it() -> None:
    found = foretell.estimate("llama-3.1-70b", system="h100-sxm")
    assert found.gpus == 16
    assert found.fits != "no"
