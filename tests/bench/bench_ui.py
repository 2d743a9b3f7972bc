"""`foretell ui` under fifty users, a search of 100,000 plans, and a no beside a yes: what each takes.

Each user asks one estimate after the other, pausing a second between two as a person would at the quickest,
every question another; one in ten leaves the plan open, so that some thousand plans are searched. Bars: the
99th percentile of estimates below a second, no error, no answer lost; a search of 100,000 plans below 200 ms,
those that a bound leaves out (pruned) counted with those that are evaluated; the processor time of the answer
"does not fit" at most three times that of an estimate.
"""

import http.client
import json
import os
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.web.client import server

USERS, PAUSE_S = 50, 1.0
SEARCH = {"model": "llama-3.1-70b", "system": "h100-sxm", "gpus": 64}
"""Some 135,000 plans; what differs between questions changes none of them."""


class Link:
    """One user's connection, kept open."""

    def __init__(self, address: str) -> None:
        place = urlparse(address)
        self._link = http.client.HTTPConnection(str(place.hostname), place.port, timeout=60)

    def ask(self, verb: str, body: Any) -> tuple[float, int, Any]:
        """Seconds, status and JSON of one question."""
        began = time.perf_counter()
        self._link.request(
            "POST", f"/api/{verb}", json.dumps(body), {"content-type": "application/json"}
        )
        answer = self._link.getresponse()
        told = answer.read()
        return time.perf_counter() - began, answer.status, json.loads(told)


def question(user: int, turn: int) -> dict[str, Any]:
    """A question that nobody else asks."""
    model = ("llama-3.1-8b", "llama-3.1-70b", "mixtral-8x7b", "gpt3-175b")[(user + turn) % 4]
    asked = {"model": model, "system": "h100-sxm", "gpus": 64, "seq_len": 2048}
    asked["global_batch"] = 64 * (1 + user + USERS * turn)
    if (user + turn) % 10:
        return {**asked, "plan": "tp8 pp4 zero1 mbs1"}
    return {**asked, "model": "llama-3.2-1b", "gpus": 8}


def users(address: str, seconds: float) -> list[tuple[float, int]]:
    """Seconds and status of every answer."""
    found: list[tuple[float, int]] = []
    end = time.monotonic() + seconds

    def use(user: int) -> None:
        link = Link(address)
        time.sleep(PAUSE_S * user / USERS)
        turn = 0
        while time.monotonic() < end:
            took, status, _ = link.ask("estimate", question(user, turn))
            found.append((took, status))
            turn += 1
            time.sleep(max(PAUSE_S - took, 0.0))

    threads = [threading.Thread(target=use, args=(user,)) for user in range(USERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def processor_s(process: int) -> float:
    """Processor seconds of a process and its children so far; 0 where Linux does not tell."""
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        used = [
            Path(f"/proc/{one}/stat").read_text().rsplit(")", 1)[1].split()
            for one in (process, *children)
        ]
    except OSError:
        return 0.0
    return sum(int(fields[11]) + int(fields[12]) for fields in used) / os.sysconf("SC_CLK_TCK")


def searches(address: str, process: int) -> list[tuple[float, int, int, float]]:
    """Seconds, plans evaluated and pruned, and processor seconds, of searches of some 100,000 plans."""
    link = Link(address)
    found = []
    for turn in range(8):
        before = processor_s(process)
        took, status, told = link.ask("search", {**SEARCH, "set": {"chip.tdp_watts": 700 - turn}})
        assert status == 200
        counts = told["plans_evaluated"], told["plans_pruned"]
        found.append((took, *counts, processor_s(process) - before))
    return found[2:]


YES, NO = "tp8 pp4 zero1 mbs1 recompute=full", "tp8 zero0 mbs1"
"""Plans of llama-3.1-70b on 512 H100 that fit and that do not."""
TIMES = 60
"""Questions of either kind: a process is told its time in hundredths of a second."""


def no_beside_yes(address: str, process: int) -> tuple[float, float]:
    """Processor seconds of one answer that a plan fits, and of one that it does not."""
    link = Link(address)
    place = {"model": "llama-3.1-70b", "system": "h100-sxm", "gpus": 512, "seq_len": 8192}
    spent = []
    for plan, fits in ((YES, True), (NO, False)):
        before = 0.0
        for turn in range(TIMES + 4):
            if turn == 4:
                before = processor_s(process)
            asked = {**place, "plan": plan, "global_batch": 512 * (turn + 2)}
            _, status, told = link.ask("estimate", asked)
            assert status == 200
            assert (told["fits"] != "no") == fits
        spent.append((processor_s(process) - before) / TIMES)
    return spent[0], spent[1]


def main() -> int:
    """Measure and print; the exit code is 1 where an answer was an error: times depend on the machine."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    with server() as (address, process):
        for took, done, pruned, own in (rows := searches(address, process.pid)):
            print(
                f"search of {done + pruned:,} plans ({done:,} evaluated, {pruned:,} pruned): "
                f"{1e3 * took:.0f} ms, {1e3 * own:.0f} ms of a processor"
            )
        per_100k = statistics.median(1e5 * took / (done + cut) for took, done, cut, _ in rows)
        work_100k = statistics.median(1e5 * own / (done + cut) for _, done, cut, own in rows)
        yes_s, no_s = no_beside_yes(address, process.pid)
        print(
            f"a plan that fits: {1e3 * yes_s:.1f} ms of a processor, one that does not: {1e3 * no_s:.1f} ms, "
            f"{no_s / yes_s:.2f} times as much (bar 3)"
        )
        before = processor_s(process.pid)
        found = users(address, seconds)
        each = (processor_s(process.pid) - before) / len(found)
    times = sorted(took for took, _ in found)
    p50, p99 = times[len(times) // 2], times[int(0.99 * len(times))]
    wrong = [status for _, status in found if status != 200]
    print(
        f"{USERS} users for {seconds:.0f} s: {len(found)} estimates, {len(found) / seconds:.0f} a second"
    )
    print(
        f"p50 {1e3 * p50:.0f} ms, p99 {1e3 * p99:.0f} ms (bar 1000), longest {1e3 * times[-1]:.0f} ms"
    )
    print(f"errors {len(wrong)}")
    print(f"one estimate: {1e3 * each:.1f} ms of a processor, server and worker together")
    print(
        f"search of 100,000 plans: {1e3 * per_100k:.0f} ms (bar 200), {1e3 * work_100k:.0f} ms of a processor"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
