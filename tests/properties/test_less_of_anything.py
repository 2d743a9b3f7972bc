"""A step on a machine with less of one number: k times less never costs more than k times the time."""

import pytest

import foretell

JOBS = {
    "dense": {
        "model": "llama-3.1-70b",
        "system": "dgx-b200",
        "gpus": 64,
        "global_batch": 128,
        "seq_len": 8192,
        "plan": "tp8 pp2 dp4 zero1 mbs1",
    },
    "sharded": {
        "model": "llama-3.1-8b",
        "system": "dgx-h200",
        "gpus": 32,
        "global_batch": 64,
        "seq_len": 4096,
        "plan": "dp32 zero3 mbs2",
    },
    "experts": {
        "model": "mixtral-8x7b",
        "system": "dgx-a100",
        "gpus": 64,
        "global_batch": 128,
        "seq_len": 4096,
        "plan": "tp2 pp4 dp8 ep8 zero1 mbs1",
    },
}
PATHS = (
    "chip.matrix_flop_per_s.bf16",
    "chip.vector_flop_per_s",
    "chip.memory_bandwidth_bytes_per_s",
    "chip.host_speed",
    "network.node.bandwidth_bytes_per_s",
    "network.cluster.bandwidth_bytes_per_s",
)
"""Rates of the machine."""
CLOSE = 2e-4
"""How exactly the clock under the power limit is solved (kernels/power.py)."""


def number(job: dict[str, object], path: str) -> float:
    """What the catalogue has of a path."""
    system = foretell.system(str(job["system"]))
    names = path.split(".")
    if names[0] == "network":
        tier = next(t for t in system.network.tiers if t.name == names[1])
        return float(getattr(tier, names[2]))
    found = getattr(system.chip, names[1])
    return float(found[names[2]] if len(names) > 2 else found)


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("path", PATHS)
def test_k_times_less_costs_at_most_k_times(name: str, path: str) -> None:
    job = JOBS[name]
    usual, last = foretell.estimate(**job).step_s, 0.0
    value = number(job, path)
    for k in (1.0, 1.5, 3.0, 7.3, 30.0):
        step_s = foretell.estimate(**job, set=[f"{path}={value / k!r}"]).step_s
        assert last * (1 - CLOSE) <= step_s <= k * usual * (1 + CLOSE), (k, step_s / usual)
        last = step_s


@pytest.mark.parametrize("name", JOBS)
def test_a_power_limit_above_the_need_changes_nothing(name: str) -> None:
    job = JOBS[name]
    usual = number(job, "chip.tdp_watts")
    answers = [
        foretell.estimate(**job, set=[f"chip.tdp_watts={k * usual!r}"]) for k in (2.0, 4.0, 40.0)
    ]
    assert len({a.step_s for a in answers}) == 1
    assert len({a.energy_joules for a in answers}) == 1


@pytest.mark.parametrize("name", JOBS)
def test_less_power_costs_at_most_so_many_times_the_time(name: str) -> None:
    job, last = JOBS[name], 0.0
    usual_s, usual = foretell.estimate(**job).step_s, number(job, "chip.tdp_watts")
    for k in (1.0, 1.2, 1.5, 2.0):
        step_s = foretell.estimate(**job, set=[f"chip.tdp_watts={usual / k!r}"]).step_s
        assert last * (1 - 1e-9) <= step_s
        last = step_s
    assert last > usual_s
