"""How fast steps are played: 64 stages x 512 micro-batches. Prints; never passes or fails.

Bar: under 5 s for every schedule. Process time, since other work may share the machine.
"""

import tempfile
import time
from pathlib import Path

import foretell
from foretell.inputs.question import ask, plan_of
from foretell.simulation.programs import lay_out
from foretell.simulation.streams import play_step

PLANS = {
    "1f1b": "tp8 pp64 dp2 zero1 mbs1",
    "gpipe": "tp8 pp64 dp2 zero1 mbs1 recompute=full schedule=gpipe",
    "interleaved": "tp8 pp64 vpp2 dp2 zero1 mbs1 schedule=interleaved",
    "zb-h1": "tp8 pp64 dp2 zero1 mbs1 schedule=zb-h1",
    "zb-v": "tp8 pp64 vpp2 dp2 zero1 mbs1 schedule=zb-v",
    "dualpipe": "tp8 pp64 dp2 zero1 mbs1 schedule=dualpipe",
}
"""Llama 3.1 405B's 126 layers are dealt to 64 stages and to 128 chunks, unevenly."""


def played() -> None:
    """Laying out and playing a step of 512 micro-batches on 64 stages."""
    for name, words in PLANS.items():
        scenario = ask(
            model="llama-3.1-405b", system="h100-sxm", gpus=1024, global_batch=1024, plan=words
        )
        start = time.process_time()
        laid = lay_out(*plan_of(scenario, words, ()))
        middle = time.process_time()
        step = play_step(laid.schedule, laid.program)
        tasks = sum(len(order) for order in step.timeline.tasks)
        took = time.process_time() - middle
        print(
            f"{name}: {tasks:,} tasks played in {took:.2f} s ({1e6 * took / tasks:.0f} us each), "
            f"laid out in {1e3 * (middle - start):.0f} ms, step {step.step_s:.2f} s"
        )


def written() -> None:
    """A trace of the same size, as near as `auto` looks."""
    answer = foretell.simulate(
        "llama-3.1-405b", system="h100-sxm", gpus=1024, global_batch=1024, plan=PLANS["1f1b"]
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "step.json.gz"
        start = time.process_time()
        answer.to_chrome_trace(path)
        took = time.process_time() - start
        print(f"trace of 64 stages x 512: {path.stat().st_size / 1e6:.1f} MB in {took:.1f} s")


if __name__ == "__main__":
    played()
    written()
