"""Rows predicted from other rows of their source: nearer to them, by the seed, and told in the JSON."""

from pathlib import Path

import pytest

from foretell.lab.validate.training import score_rows, score_training
from foretell.lab.validate.training_rows import read_rows
from tests.surfaces.command import foretell

HEAD = (
    "id,source,model,family,layers,hidden,heads,kv_heads,ffn_hidden,vocab,seq_len,chip_id,n_gpus,"
    "precision_id,framework_id,dp,zero_stage,tp,pp,micro_batch,global_batch,quality,score_step_time_s"
)
ROWS = [(8, 1, 1), (4, 2, 1), (2, 4, 1), (8, 2, 2), (4, 1, 2)]
"""Tensor-parallel ranks, stages and micro-batch of each row."""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five runs of one source, each 15 % slower than predicted."""
    path = tmp_path_factory.mktemp("anchors") / "runs.csv"

    def write(steps: list[float]) -> None:
        lines = [HEAD]
        for i, ((tp, pp, mbs), step) in enumerate(zip(ROWS, steps, strict=True)):
            lines.append(
                f"r{i},made up,llama-3.1-8b,dense,32,4096,32,8,14336,128256,4096,h100-sxm,64,bf16,"
                f"megatron,{64 // tp // pp},1,{tp},{pp},{mbs},256,A,{step}"
            )
        path.write_text("\n".join(lines) + "\n")

    write([1.0] * len(ROWS))
    plain = score_training(path, leave_one_out="source")
    write([1.15 * one.predicted for one in plain.predictions])
    return path


def test_anchored_rows_are_nearer_than_plain_ones(table: Path) -> None:
    found = score_training(table, anchors=1)
    for one in found.predictions:
        assert one.anchored is not None
        assert abs(one.anchored / one.measured - 1.0) < abs(one.predicted / one.measured - 1.0)
        assert one.anchored_interval is not None
        low, high = one.anchored_interval["p90"]
        assert low < one.anchored < high
    three = score_training(table, anchors=3)
    assert (
        three.facts["anchored_median_of_sources"]
        <= found.facts["anchored_median_of_sources"] + 1e-3
    )


def test_the_seed_chooses_and_the_json_tells(table: Path) -> None:
    told = [
        foretell(
            "validate", "training", str(table), "--anchors", "1", "--seed", seed, "--json"
        ).json
        for seed in ("0", "0", "1")
    ]
    anchored = [[one["anchored"] for one in answer["predictions"]] for answer in told]
    assert anchored[0] == anchored[1] != anchored[2]
    assert {
        "id",
        "metric",
        "predicted",
        "measured",
        "low",
        "high",
        "anchored",
        "anchored_interval",
        "source",
    } <= {*told[0]["predictions"][0]}
    plain = score_rows(read_rows(table)).to_dict()
    assert "anchored" not in plain["predictions"][0]


def test_a_wrong_number_of_anchors_is_refused(table: Path) -> None:
    assert foretell("validate", "training", str(table), "--anchors", "-1").code == 2
