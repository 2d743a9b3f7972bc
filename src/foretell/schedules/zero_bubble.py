"""Zero bubble: the backward pass to the weights fills what 1F1B waits (Qi et al. 2024, arXiv 2401.10241).

ZB-H1 is 1F1B with the passes to the weights on rank s put off by s micro-batches:

    bubble = (p - 1)(f + b) - (min(mu, p) - 1) min(f, b, w)      equal ranks, exactly
    held   = min(mu, p - s) whole micro-batches on rank s, and up to s of which the weights' part is left

The paper's (p - 1)(f + b - w) is the case w <= f, b with mu >= p.

ZB-V has two chunks on a rank, on the way down and on the way up of a V, and holds p micro-batches on every
rank. With f = b = w no rank ever waits between its first and its last task; as ranks begin one after the
other, a step that all begin together still takes (p - 1) b of a chunk longer. For other times the order
stays as it is and the bubble is the longest of eight paths, found and tested by playing it.
"""

import numpy as np

from foretell.schedules.base import (
    ONE_CHUNK,
    WEIGHT_SHARE,
    Array,
    Does,
    Pipe,
    RankTimes,
    Schedule,
    ScheduleRule,
    Task,
    largest_form,
    no_pairs,
)

V_TOGETHER = (
    (0, 0, 0, 1, 0, 0),
    (0, 0, 1, 0, -1, 1),
    (0, 0, 0, 2, 0, -2),
    (0, 2, 0, -1, -1, 0),
    (-1, 2, 1, -1, 0, 0),
    (0, 2, 0, 0, -1, -2),
    (1, 0, 0, 0, -1, 1),
    (-1, 2, 1, 0, 0, -2),
)
"""Paths of ZB-V with n = p - 1: the first is n b, the second b + (n - 1) w, and so on."""
V_APART = (
    (0, 0, 0, 2, 0, -2),
    (0, 2, 0, -1, 0, -1),
    (0, -1, 1, 0, -1, 1),
    (1, -1, 0, 0, -1, 1),
    (0, 2, 0, 0, -1, -2),
    (0, -1, 0, 1, 0, 0),
    (-1, 1, 1, -1, 0, 0),
    (-1, 2, 1, 0, 0, -2),
)
"""The same from a rank's own first task to its last: none is above zero for f = b = w."""


def h1_bubble_s(times: RankTimes, pipe: Pipe) -> Array:
    """Exact for equal ranks; else the others' passes less what the slowest rank's own tasks fill."""
    own = [times.own(part) for part in (times.forward_s, times.input_s, times.weight_s)]
    filled = (np.minimum(pipe.micro_batches, pipe.pp) - 1.0) * np.minimum.reduce(own)
    return np.asarray(np.maximum(times.others(times.forward_s + times.input_s) - filled, 0.0))


def h1_apart_s(times: RankTimes, pipe: Pipe) -> Array:
    """As `h1_bubble_s` without the late beginning of the last rank, so that b does not limit what is filled.

    Exact for equal ranks and mu >= p.
    """
    own = [times.own(part) for part in (times.forward_s, times.weight_s)]
    filled = (np.minimum(pipe.micro_batches, pipe.pp) - 1.0) * np.minimum(*own)
    return np.asarray(np.maximum(times.others(times.forward_s + times.input_s) - filled, 0.0))


def h1_in_flight(pipe: Pipe, position: Array) -> Array:
    """Whole micro-batches as with 1F1B, and the weights' part of those put off."""
    micro_batches, pp, _ = pipe.columns
    behind = pp - position
    put_off = np.clip(micro_batches - behind, 0.0, position)
    return np.asarray(np.minimum(micro_batches, behind) + WEIGHT_SHARE * put_off)


def h1_tasks(rank: int, pp: int, vpp: int, micro_batches: int) -> list[Task]:
    """1F1B; the weights' pass of a micro-batch comes `rank` backward passes after its own."""
    fill = min(micro_batches, pp - rank - 1)
    order = [Task("F", 0, i) for i in range(fill)]
    for i in range(micro_batches):
        order += [Task("F", 0, fill + i)] if fill + i < micro_batches else []
        order.append(Task("B", 0, i))
        order += [Task("W", 0, i - rank)] if i >= rank else []
    return order + [Task("W", 0, i) for i in range(max(micro_batches - rank, 0), micro_batches)]


def _v_forms(forms: tuple[tuple[int, ...], ...], times: RankTimes, pipe: Pipe) -> Array:
    """The longest path, with the times of the ranks that the slowest waits for."""
    parts = (times.forward_s, times.input_s, times.weight_s)
    f, b, w = (0.5 * times.typical(part) for part in parts)
    longest = largest_form(forms, pipe.pp - 1.0, f, b, w)
    return np.asarray(np.where(pipe.pp > 1, np.maximum(longest, 0.0), 0.0))


def v_bubble_s(times: RankTimes, pipe: Pipe) -> Array:
    """Exact for equal chunks."""
    return _v_forms(V_TOGETHER, times, pipe)


def v_apart_s(times: RankTimes, pipe: Pipe) -> Array:
    """Exact for equal chunks; zero for f = b = w."""
    return _v_forms(V_APART, times, pipe)


def v_in_flight(pipe: Pipe, position: Array) -> Array:
    """2 p chunks on every rank."""
    return np.broadcast_to(pipe.columns[1], position.shape)


def v_tasks(rank: int, pp: int, vpp: int, micro_batches: int) -> list[Task]:
    """Fill the way down, then both ways, then one of each in turn; weights wait in the drain alone."""
    order: list[Task] = []
    done = dict.fromkeys(("F0", "F1", "B0", "B1", "W0", "W1"), 0)

    def run(*names: str) -> None:
        for name in names:
            does: Does = "F" if name[0] == "F" else "B" if name[0] == "B" else "W"
            order.append(Task(does, int(name[1]), done[name]))
            done[name] += 1

    up, down = pp - rank, rank
    run(*["F0"] * (2 * up - 1))
    run(*["F1", "F0"] * down)
    run(*["F1", "B1", "W1"] * up)
    steady = micro_batches - done["F1"]
    for i in range(steady):
        run(*["F0"] * (i < micro_batches - (2 * up - 1 + down)))
        run("B0", "W0", "F1", "B1", "W1")
    run(*["B0", "B1"] * down)
    run(*["B0", "W0"] * up)
    run(*["W1"] * down, *["W0"] * down)
    return order


ZB_H1 = Schedule(
    name="zb-h1",
    layout="loop",
    weight_copies=1.0,
    splits_backward=True,
    bubble_s=h1_bubble_s,
    apart_s=h1_apart_s,
    pairs=no_pairs,
    in_flight=h1_in_flight,
    tasks=h1_tasks,
    rules=(ONE_CHUNK,),
)

ZB_V = Schedule(
    name="zb-v",
    layout="v",
    weight_copies=1.0,
    splits_backward=True,
    bubble_s=v_bubble_s,
    apart_s=v_apart_s,
    pairs=no_pairs,
    in_flight=v_in_flight,
    tasks=v_tasks,
    rules=(
        ScheduleRule(holds=lambda pipe: pipe.vpp == 2, says="two chunks on each rank: vpp2"),
        ScheduleRule(
            holds=lambda pipe: pipe.micro_batches >= 2.0 * pipe.pp - 1.0,
            says="at least 2 pp - 1 micro-batches",
        ),
    ),
)
