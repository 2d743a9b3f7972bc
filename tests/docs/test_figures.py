"""Figures that pages state in their text and tables are those of the program today.

What was measured cannot be computed again; the pages say with which command it was. What stands beside it,
or follows from the catalogue, is held here.
"""

import re

import pytest

import foretell
from foretell.inputs.question import ask, plan_of
from foretell.lab.translate.settings import TranslationSizes, resize_model
from foretell.search.space import enumerate_plans
from foretell.specs.block import MapShape
from foretell.workload.blocks.tensor_chain import TensorChain, best_steps
from foretell.workload.parameters import count
from tests.docs.blocks import ROOT

DOCS = ROOT / "docs"
MODELS = (
    "transformer-base-tied",
    "transformer-base-untied",
    "anthe-no-tc",
    "anthe-tc-ffn",
    "anthe",
)


def rows(page: str, first: str) -> list[list[str]]:
    """Cells of the table whose heading begins so, its heading left out."""
    text = (DOCS / page).read_text(encoding="utf-8")
    _, found, rest = text.partition(f"\n| {first} |")
    assert found, f"{page}: no table that begins with {first}"
    table = rest.partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def whole(cell: str) -> int:
    """A number with its commas."""
    return int(cell.replace(",", ""))


def test_weights_of_the_translation_models() -> None:
    untied = count(foretell.model("transformer-base-untied")).total
    table = {row[0].strip("`"): row for row in rows("anthe.md", "id")}
    assert set(table) == set(MODELS)
    for name, row in table.items():
        total = count(foretell.model(name)).total
        assert whole(row[2]) == total
        said = row[3].partition("/")
        ratio = untied / total if said[1] else total / untied
        assert float(said[2] or said[0]) == pytest.approx(ratio, abs=0.005)


def test_shapes_of_tensor_chains() -> None:
    table = rows("anthe.md", "map")
    assert len(table) == 4
    for name, bond, dense, contracted, taken in table:
        ends = re.search(r"(\d+) to (\d+)", name)
        inputs, outputs = (
            map(int, ends.groups()) if ends else (512, 1365)
        )  # the last row is the second's shape
        ratio = float(re.search(r"r = ([\d.]+)", name)[1])  # type: ignore[index]
        shape = MapShape(name="map", inputs=inputs, outputs=outputs, bias=False)
        chain = TensorChain(ratio=ratio).chain(shape)
        macs = best_steps(chain).macs
        assert whole(bond) == chain.bond
        assert whole(dense.split(" k")[0]) == round(inputs * outputs / 1e3)
        assert whole(contracted.split(" k")[0]) == round(macs / 1e3)
        assert taken == ("contract" if macs < inputs * outputs else "build")


def test_weights_of_the_models_that_learn() -> None:
    sizes = TranslationSizes(width=64, layers=2, heads=4, ffn=256, vocab=1000)
    text = (DOCS / "anthe.md").read_text(encoding="utf-8")
    found = dict(
        re.findall(r"^\| `([a-z-]+)` \| ([\d,]+) \| [\d.]+ \| [\d.]+ \|", text, re.MULTILINE)
    )
    assert set(found) == set(MODELS)
    for name, cell in found.items():
        assert whole(cell) == count(resize_model(foretell.model(name), sizes)).total


@pytest.mark.parametrize("row", rows("scale.md", "GPUs"), ids=lambda row: row[0])
def test_plans_of_a_search(row: list[str]) -> None:
    gpus = whole(row[0])
    scenario = ask(
        model="llama-3.1-70b",
        system="h100-sxm",
        gpus=gpus,
        global_batch=max(4 * gpus, 1024),
        seq_len=4096,
        target_len=None,
        plan=None,
        set=(f"network.cluster.size={max(gpus // 8, 1)}",),
    )
    assert len(enumerate_plans(scenario, plan_of(scenario, None)[1]).plans) == whole(row[2])


def test_the_step_on_a_real_card_is_predicted_as_the_page_says() -> None:
    """The measured side is a trace of one H200; ours may move a little with the model of it."""
    text = (DOCS / "traces.md").read_text(encoding="utf-8")
    words = re.search(r'--plan "(mbs1 no-fused[^"]+)"', text)
    assert words is not None
    found = foretell.estimate(
        "llama-3.1-8b", system="h200-sxm", gpus=1, global_batch=1, seq_len=4096, plan=words[1]
    )
    measured, predicted = re.search(r"^step +([\d.]+) +([\d.]+) ", text, re.MULTILINE).groups()  # type: ignore[union-attr]
    assert 1e3 * found.step_s == pytest.approx(float(predicted), rel=0.01)
    said = re.search(r"the step is (\d+) % longer than predicted", text)
    assert said is not None
    assert round(100 * (float(measured) / float(predicted) - 1)) == int(said[1])
