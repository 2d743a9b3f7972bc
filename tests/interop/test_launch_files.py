"""Launch files as people have them, each with the truth worked out by hand: no difference may be silent.

What a file leaves to the command line is given beside it, as a user would. Weights are of the model's own
formula (GPT: 12 L h^2 + 13 L h + (V + S) h + 2 h) or as published; batches, chips and degrees by the tool's
documentation.
"""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from foretell.api.launches import LaunchQuestion, read_launch, read_question
from foretell.api.post_training_launches import read_post_training
from foretell.catalog import model as catalog_model
from foretell.interop.tool_tables import tool_names
from foretell.specs.deployment_text import parse_deployment
from foretell.specs.model import Model
from foretell.specs.plan import parse_plan
from foretell.specs.questions import question_type
from foretell.specs.questions.flags import fields_of
from foretell.workload.parameters import count

FOLDER = Path(__file__).parent / "launches"
Truth = dict[str, Any]
TRUTHS: dict[str, Truth] = tomllib.loads(
    (Path(__file__).parent / "launch_truths.toml").read_text(encoding="utf-8")
)
TRAINED = {name: truth for name, truth in TRUTHS.items() if truth["kind"] == "training"}
SERVED = {name: truth for name, truth in TRUTHS.items() if truth["kind"] == "serving"}
NOT_ASKED = ("kind", "beside", "post")
"""Keys of a truth that are none of the question's values."""


def question(name: str, beside: dict[str, Any], *, serving: bool) -> LaunchQuestion:
    return read_question(FOLDER / name, {"model": None, "plan": None, **beside}, serving=serving)


def shape(asked: LaunchQuestion) -> Model:
    given = asked.arguments["model"]
    return given if isinstance(given, Model) else catalog_model(given)


def test_every_file_has_its_truth_and_every_tool_a_file() -> None:
    names = {path.name for path in FOLDER.iterdir()}
    assert names == {*TRAINED, *SERVED}
    assert len(names) >= 40
    read = {truth["tool"] for truth in TRUTHS.values()}
    assert read == {*tool_names()} - {"dynamo"} - WITHOUT  # Dynamo is read as the engine inside it


WITHOUT = set(
    "colossalai deepspeed-chat easyr1 gpt-neox kaito levanter llamafactory-v1 llm-foundry mcore-adapter "
    "megatron-bridge megatron-swift ms-swift olmo olmo-core oumi paddlenlp primus rlinf roll veomni "
    "xtuner".split()
)
"""Tools whose files are in test_more_tools.py."""


@pytest.mark.parametrize("name", TRAINED)
def test_training(name: str) -> None:
    truth = TRAINED[name]
    asked = question(name, truth.get("beside", {}), serving=False)
    launch, told = asked.launch, asked.arguments
    assert (launch.tool, launch.unknown, launch.doubts) == (truth["tool"], (), ())
    plan = parse_plan(told["plan"], launch.gpus)
    model = shape(asked)
    found: Truth = {
        "tool": launch.tool, "gpus": launch.gpus, "batch": told.get("global_batch"),
        "seq_len": told.get("seq_len"), "model": model.id, "weights": count(model).total,
        "layers": len(model.stack.layers), "system": told.get("system"),
        "weights_dtype": plan.weights,
        "experts": getattr(model.stack.layers[-1].ffn, "experts", 0),
    }  # fmt: skip
    for key, value in truth.items():
        if key not in NOT_ASKED:
            assert found.get(key, getattr(plan, key, None)) == value, key
    post = launch.post_training or {}
    assert {k: post.get(k) for k in truth.get("post", {})} == truth.get("post", {})
    # dp, tp, pp and cp make up the chips, and every word of the plan says where it comes from.
    assert plan.gpus == launch.gpus
    assert {row.name for row in asked.rows} >= {
        "model",
        "parameters",
        "gpus",
        "global_batch",
        "seq_len",
        "zero",
    }
    assert all(row.key for row in asked.rows if row.origin == "file"), asked.rows


@pytest.mark.parametrize("name", SERVED)
def test_serving(name: str) -> None:
    truth = SERVED[name]
    asked = question(name, {}, serving=True)
    launch, told = asked.launch, asked.arguments
    assert (launch.tool, launch.unknown, launch.doubts) == (truth["tool"], (), ())
    deployment = parse_deployment(told["plan"])
    found: Truth = {
        "tool": launch.tool,
        "gpus": launch.gpus,
        "model": shape(asked).id,
        "system": told.get("system"),
        "prefill_gpus": told.get("prefill_gpus"),
        "prefill_plan": told.get("prefill_plan"),
    }
    for key, value in truth.items():
        if key not in NOT_ASKED:
            assert found.get(key, getattr(deployment, key, None)) == value, key


@pytest.mark.parametrize("name", [*TRAINED, *SERVED])
def test_lines_are_those_of_the_file(name: str) -> None:
    """The line of a value has its argument, in one of its spellings."""
    beside = TRUTHS[name].get("beside", {})
    kept = {key: value for key, value in beside.items() if key in ("model", "gpus", "plan")}
    launch = read_launch(FOLDER / name, **kept)
    lines = (FOLDER / name).read_text().splitlines()
    for row in launch.values:
        if row.line is not None:
            last = row.key.split(", ")[0].rpartition(".")[2]
            near = lines[row.line - 1].lower().replace("-", "").replace("_", "")
            names = [
                part.rpartition(".")[2].lower().replace("_", "") for part in row.key.split(", ")
            ]
            assert any(name in near for name in names), (
                row,
                last,
                near,
            )


@pytest.mark.parametrize("name", [name for name, truth in TRAINED.items() if "post" in truth])
def test_a_post_training_question_takes_what_was_read(name: str) -> None:
    launch = read_launch(FOLDER / name)
    assert launch.post_training is not None
    known = {field.name for field in fields_of(question_type("post-train"))}
    assert {*launch.post_training} <= known


@pytest.mark.parametrize("name", [name for name, truth in TRAINED.items() if "post" in truth])
def test_post_train_imports_it(name: str) -> None:
    """Every value of the truth reaches the question; a flag by hand takes its place, and says so."""
    truth = TRAINED[name]
    beside = {"system": "hgx-h100", **truth.get("beside", {})}
    asked = read_post_training(FOLDER / name, beside)
    assert {key: asked.arguments.get(key) for key in truth["post"]} == truth["post"]
    told = {row.name for row in asked.rows}
    kept = {"gpus", "trainer_gpus"} & {*truth["post"]}
    assert {*truth["post"]} - kept - {"plan", "framework"} <= told | {"model"}
    question_type("post-train")(**asked.arguments)
    again = read_post_training(FOLDER / name, {**beside, "samples": 3, "gpus": "16xH100"})
    assert (again.arguments["samples"], again.arguments["gpus"]) == (3, "16xH100")
    assert "rollout_gpus" not in again.arguments
    assert {row.origin for row in again.rows if row.name in ("samples", "gpus")} == {"flag"}


def test_a_nemo_recipe_by_its_command_and_one_that_is_not_known() -> None:
    """The command means the same as the script; another recipe stops the import by its name."""
    command = (
        'nemo llm pretrain --factory "llama3_70b(num_nodes=8)" '
        "trainer.strategy.virtual_pipeline_model_parallel_size=5 data.global_batch_size=128"
    )
    found = read_launch(command)
    same = read_launch(FOLDER / "nemo_recipe.py")
    assert (found.plan, found.gpus, found.global_batch) == (same.plan, 64, 128)
    other = read_launch("nemo llm finetune --factory llama3_8b")
    assert other.asks[0] == "what finetune_recipe llama3_8b sets is not in the file: --plan, --gpus"
