"""Two real processes with gloo, traced by torch's own profiler."""

import subprocess
import sys
from pathlib import Path

import pytest

from foretell.lab.characterize.traces.breakdown import PARTS
from foretell.lab.characterize.traces.run import characterize_trace

pytest.importorskip("torch")

WORKER = """
import sys
import torch, torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule

rank, folder = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
dist.init_process_group("gloo", rank=rank, world_size=2, init_method=f"file://{folder}/store")
nn = torch.nn
layers = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 64))
model = nn.parallel.DistributedDataParallel(layers)
update = torch.optim.AdamW(model.parameters())
name = f"{folder}/trace.{rank}.json" + (".gz" if rank else "")
with profile(
    activities=[ProfilerActivity.CPU], schedule=schedule(wait=0, warmup=1, active=2), record_shapes=True,
    on_trace_ready=lambda made: made.export_chrome_trace(name),
) as made:
    for _ in range(3):
        model(torch.randn(32, 64)).square().mean().backward()
        update.step()
        update.zero_grad()
        dist.all_gather_into_tensor(torch.empty(2000), torch.randn(1000))
        made.step()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("gloo")
    script = folder / "worker.py"
    script.write_text(WORKER)
    both = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(folder)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for rank in range(2)
    ]
    try:
        told = [one.communicate(timeout=240)[1] for one in both]
    finally:
        for one in both:
            one.kill()
    if any(one.returncode for one in both):
        pytest.skip(f"torch could not run two processes here: {told[0][-300:]!r}")
    return [folder / "trace.0.json", folder / "trace.1.json.gz"]


def test_two_ranks(files: list[Path]) -> None:
    found = characterize_trace(files)
    assert [(t.rank, t.device) for t in found.traces] == [(0, "cpu"), (1, "cpu")]
    assert [s.step for s in found.steps] == ["1", "2"] * 2
    assert len(found.imbalance) == 2
    for step in found.steps:
        assert sum(getattr(step, part) for part in PARTS) == pytest.approx(step.step_s, rel=1e-9)
        assert sum(f.seconds for f in step.compute) == pytest.approx(step.compute_s, rel=1e-9)
        sent = {c.collective: c for c in step.collectives}
        # Weights and biases of both layers and of the norm, in four bytes each; and 2 x 1,000 floats.
        weights = 64 * 256 + 256 + 2 * 256 + 256 * 64 + 64
        assert sent["all-reduce"].size_bytes == 4 * weights
        assert sent["all-gather"].size_bytes == 4 * 2000
        assert {c.members for c in step.collectives} == {2}
        assert sum(c.exposed_s for c in step.collectives) == pytest.approx(
            step.exposed_communication_s
        )
        compute = {(f.family, f.phase): f.count for f in step.compute}
        # Two linear layers; backward, two products each but for the first one's input.
        assert compute["gemm", "forward"] == 2
        assert compute["gemm", "backward"] == 3
        assert compute["norm", "forward"] >= 1
        assert compute["optimizer", "optimizer"] > 0
        assert {(o.op, o.phase) for o in step.ops} == {
            ("256x64x32", "forward"),
            ("256x64x32", "backward"),
        }
    for row in found.imbalance:
        assert row.imbalance >= 0.0
        assert row.waits_s is not None
        assert min(row.waits_s.values()) >= 0.0


def test_order_of_files_does_not_matter(files: list[Path]) -> None:
    assert characterize_trace(files).to_dict() == characterize_trace(files[::-1]).to_dict()
