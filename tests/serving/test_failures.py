"""A replica that fails and a queue with a limit: what becomes of the requests."""

import pytest

import foretell
from foretell.errors import BadInput

PLACE = {"system": "h100-sxm", "gpus": 4, "plan": "tp1", "isl": 1000, "osl": 200, "spread": 0.8}


def played(**how):
    load = {"rate": 20.0} | {name: how.pop(name) for name in ("rate", "gpus") if name in how}
    return foretell.serve("llama-3.1-8b", **{**PLACE, **load}, simulate={"requests": 800, **how})


@pytest.mark.parametrize("routing", ["round-robin", "least-loaded"])
def test_requests_of_a_failed_replica_are_answered_by_the_others(routing):
    whole, failed = played(routing=routing), played(routing=routing, fail_at="10s")
    assert failed.simulation["answered"] == 800
    assert failed.tpot_ms.mean > whole.tpot_ms.mean
    assert failed.e2e_ms.p99 > whole.e2e_ms.p99
    # Three replicas from the beginning have the load that four have after the failure.
    three = played(routing=routing, gpus=3)
    assert whole.tpot_ms.mean < failed.tpot_ms.mean < three.tpot_ms.mean * 1.05


def test_a_failure_after_the_last_answer_changes_nothing():
    late, whole = played(fail_at="1e6s", routing="least-loaded"), played(routing="least-loaded")
    assert late.ttft_ms == whole.ttft_ms
    assert late.e2e_ms == whole.e2e_ms


def test_a_limit_of_the_queue_refuses_and_shortens_waits():
    crowded = {"rate": 400.0, "gpus": 1}
    free, limited = played(**crowded), played(**crowded, queue_limit=20)
    assert limited.simulation["refused"] > 0
    assert limited.simulation["refused"] + limited.simulation["answered"] == 800
    assert limited.ttft_ms.p99 < free.ttft_ms.p99
    assert free.simulation["queue_grows"]
    assert not limited.simulation["queue_grows"]
    assert "% refused" in repr(limited)
    assert played(queue_limit=10_000).simulation["refused"] == 0


def test_a_limit_of_the_queue_holds_where_prompts_have_instances_of_their_own():
    place = {"gpus": 3, "prefill_gpus": 1, "rate": 200.0}
    limited = foretell.serve(
        "llama-3.1-8b", **{**PLACE, **place}, simulate={"requests": 400, "queue_limit": 5}
    )
    assert limited.simulation["refused"] > 0
    assert limited.simulation["refused"] + limited.simulation["answered"] == 400


def test_urgent_requests_wait_less_and_the_others_longer():
    crowded = {"rate": 60.0, "gpus": 1}
    alike, some = played(**crowded), played(**crowded, urgent=0.2)
    first, rest = (some.simulation["classes"][name]["ttft_ms"]["mean"] for name in "01")
    assert first < 0.5 * alike.ttft_ms.mean
    assert first < alike.ttft_ms.mean < rest
    assert alike.simulation["classes"] == {}


@pytest.mark.parametrize(
    "how", [{"urgent": 2}, {"fail_at": "soon"}, {"fail_at": "3s", "gpus": 1}, {"queue_limit": 0}]
)
def test_what_cannot_be_is_said(how):
    with pytest.raises(BadInput):
        played(**how)


def test_what_a_failed_instance_decoded_is_read_and_written_anew():
    place = {**PLACE, "gpus": 4, "prefill_gpus": 2, "rate": 20.0}

    def apart(**how):
        return foretell.serve("llama-3.1-8b", **place, simulate={"requests": 400, **how})

    whole, failed = apart(), apart(fail_at="5s")
    assert failed.simulation["answered"] == 400
    assert failed.tpot_ms.mean > whole.tpot_ms.mean
    assert failed.e2e_ms.p99 > whole.e2e_ms.p99
    with pytest.raises(BadInput, match="fail_at"):
        foretell.serve("llama-3.1-8b", **{**place, "gpus": 3}, simulate={"fail_at": "5s"})
