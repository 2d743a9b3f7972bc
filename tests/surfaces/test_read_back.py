"""What was read of a launch is shown with every answer, an answer of no among them."""

from foretell.web.lists import READERS
from tests.surfaces.command import foretell

TOO_LARGE = (
    "torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 1 --num-layers 80 --bf16 "
    "--hidden-size 8192 --num-attention-heads 64 --seq-length 8192 --micro-batch-size 1 "
    "--global-batch-size 64"
)


def test_a_plan_that_does_not_fit_shows_what_was_read() -> None:
    done = foretell("estimate", "--import", TOO_LARGE, "--system", "h100-sxm")
    assert done.code == 1
    assert done.out.startswith("read back")
    assert done.out.count("read back") == 1
    assert "tool default" in done.out


def test_json_of_an_answer_of_no_has_it_too() -> None:
    done = foretell("estimate", "--import", TOO_LARGE, "--system", "h100-sxm", "--json")
    rows = {row["name"]: row for row in done.json["read_back"]}
    assert (done.code, done.json["fits"]) == (1, "no")
    assert (rows["tp"]["value"], rows["tp"]["line"]) == ("1", 1)
    assert rows["zero"]["origin"] == "tool default"


def test_the_page_is_told_what_was_read_and_what_is_asked() -> None:
    told = READERS["read"]({"text": TOO_LARGE.replace("--nproc_per_node 8 ", "")})
    assert {row["name"] for row in told["read_back"]} >= {"tp", "seq_len", "global_batch"}
    assert told["asks"] == ["the number of GPUs, and with it the batch, is not in the file: --gpus"]
