"""What values of software earn: the records stay small, and the page speaks of fields that there are."""

from dataclasses import fields
from pathlib import Path

from foretell.lab.validate.ablation import MARK, general_values
from foretell.specs.software import Host, MemoryAllocator, Optimizer, Software

PAGE = Path(__file__).parents[3] / "docs" / "accuracy.md"


def test_software_host_allocator_and_optimizer_have_sixty_fields_at_most() -> None:
    many = {record: len(fields(record)) for record in (Software, Host, MemoryAllocator, Optimizer)}
    assert sum(many.values()) <= 60
    assert f"A record of software has {many[Software]} fields" in PAGE.read_text()


def test_the_page_has_a_line_for_each_field_that_some_run_has_a_value_of() -> None:
    table = PAGE.read_text().partition(MARK)[2].partition("<!-- end")[0]
    said = {line.split("`")[1] for line in table.splitlines() if line.startswith("| `")}
    assert said <= general_values().keys()
    assert len(said) > 30
