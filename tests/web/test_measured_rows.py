"""Measured runs over the web: rows and pasted text, and never a file."""

from pathlib import Path

from tests.web.client import client

ASKED = {
    "model": "llama-3.1-70b", "system": "h100-sxm", "gpus": 512, "global_batch": 1024,
    "seq_len": 8192, "plan": "tp8 pp4 zero1 mbs1",
}  # fmt: skip


def test_rows_and_pasted_text_say_the_same() -> None:
    row = {"plan": ASKED["plan"], "step_s": 19.5}
    pasted = f"plan,step_s\n{ASKED['plan']},19.5\n"
    with client() as web:
        told = [
            web.post("/api/estimate", json={**ASKED, "measured": [one]}).json()
            for one in (row, pasted, f"{ASKED['plan']}: 19.5 s")
        ]
    assert len({answer["step_s"] for answer in told}) == 1
    assert told[0]["prior"]["step_s"] < told[0]["step_s"]
    assert "tensor_parallel" in told[0]["posterior_factors"]


def test_a_file_is_not_read(tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    table.write_text(f"plan,step_s\n{ASKED['plan']},19.5\n")
    with client() as web:
        answer = web.post("/api/estimate", json={**ASKED, "measured": [str(table)]})
    assert answer.status_code == 422
    assert "19.5" not in answer.text
