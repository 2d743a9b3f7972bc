"""A step on streams: equal to the plain player where nothing runs beside passes, bounded, links conserved."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.schedules import Schedule, schedule_named
from foretell.schedules.base import routes
from foretell.simulation.events import play
from foretell.simulation.program import (
    Chunk,
    DataCollective,
    Pass,
    Program,
    cut_gradients,
    held_back,
    weight_pieces,
)
from foretell.simulation.streams import PlayedStep, play_step
from tests.simulation.pipes import (
    NAMES,
    chunk_times,
    closed_s,
    equal_times,
    on_ranks,
    pipe,
    rank_times,
    sizes,
)

ONE_LINK = {"exchange_use": ((1.0,),) * 3, "group_use": ((1.0,),), "send_use": (1.0,)}
SHARE = st.floats(0.0, 1.0)


def plain(f: np.ndarray, b: np.ndarray, w: np.ndarray, many: int, **more: object) -> Program:
    """A program of passes alone."""
    ranks = tuple(
        tuple(
            Chunk(forward=Pass(chip_s=x), input=Pass(chip_s=y), weight=Pass(chip_s=z))
            for x, y, z in zip(*(part[rank].tolist() for part in (f, b, w)), strict=True)
        )
        for rank in range(len(f))
    )
    return Program(ranks=ranks, micro_batches=many, **more)  # type: ignore[arg-type]


def random_times(schedule: Schedule, pp: int, vpp: int, seed: int) -> np.ndarray:
    chunks = 2 if schedule.layout == "both" else vpp
    return np.random.default_rng(seed).uniform(0.2, 2.0, (3, pp, chunks))


@st.composite
def programs(draw: st.DrawFn, name: str) -> Program:
    """A step with everything in it: host, exchanges, collectives of all kinds, sends, copies."""
    pp, vpp, many = draw(sizes(name, most=4))
    schedule, seed = schedule_named(name), draw(st.integers(0, 999))
    rng = np.random.default_rng(seed)
    chunks = 2 if schedule.layout == "both" else vpp

    def one() -> Pass:
        chip_s = rng.uniform(0.2, 1.0)
        return Pass(
            chip_s=chip_s,
            wait_s=rng.uniform(0.0, 0.1),
            launch_s=rng.uniform(0.1, 0.6),
            exchange_s=tuple(rng.uniform(0.0, 0.3, 3).tolist()),
        )

    def chunk() -> Chunk:
        ends = (0.3, 0.7, 1.0)
        reduces = held_back(cut_gradients("reduce", rng.uniform(0, 2), ends, 3), shown, 1.0)
        gathers = held_back(
            weight_pieces(cut_gradients("gather", rng.uniform(0, 2), ends, 3)), shown, 0.0
        )
        each, three = bool(rng.integers(2)), bool(rng.integers(2))
        return Chunk(
            forward=one(),
            input=one(),
            weight=one() if schedule.splits_backward else Pass(chip_s=0.0),
            gathers_first=() if three else gathers,
            gathers_forward=gathers if three else (),
            gathers_backward=gathers if three else (),
            reduces_each=reduces if each else (),
            reduces_last=() if each else reduces,
            copies_forward_s=rng.uniform(0, 1) * copies,
            copies_backward_s=rng.uniform(0, 1) * copies,
        )

    shown, copies = draw(st.sampled_from([0.0, 0.3, 1.0])), draw(st.sampled_from([0.0, 1.0]))
    return Program(
        ranks=tuple(tuple(chunk() for _ in range(chunks)) for _ in range(pp)),
        micro_batches=many,
        send_s=draw(st.sampled_from([0.0, 0.2])),
        sends_block=draw(st.booleans()),
        runs_ahead_s=draw(st.sampled_from([0.0, 0.5, 10.0])),
        update_s=tuple(rng.uniform(0, 1, pp).tolist()),
        update_copies_s=tuple((copies * rng.uniform(0, 1, pp)).tolist()),
        fixed_s=0.1,
        held_cores=(draw(st.sampled_from([0.0, 0.2])),),
        **ONE_LINK,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_passes_alone_are_the_plain_player(name: str, data: st.DataObject) -> None:
    schedule, (pp, vpp, many) = schedule_named(name), data.draw(sizes(name))
    times = random_times(schedule, pp, vpp, data.draw(st.integers(0, 999)))
    played = play_step(schedule, plain(*times, many))
    expected = play(schedule, chunk_times(*times), many)
    assert played.step_s == pytest.approx(expected.step_s)
    for rank in range(pp):
        assert played.timeline.start_s[rank] == pytest.approx(expected.start_s[rank])
        assert played.timeline.end_s[rank] == pytest.approx(expected.end_s[rank])


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_equal_ranks_take_what_the_closed_form_says(name: str, data: st.DataObject) -> None:
    size = pp, vpp, many = data.draw(sizes(name))
    schedule = schedule_named(name)
    f, b, w = (data.draw(st.floats(0.01, 3.0)) for _ in range(3))
    chunks = 2 if schedule.layout == "both" else vpp
    times = [np.full((pp, chunks), x / vpp) for x in (f, b, w)]
    step_s = play_step(schedule, plain(*times, many)).step_s
    assert closed_s(name, equal_times(pp, f, b, w), pipe(*size)) == pytest.approx(step_s, rel=1e-9)


@pytest.mark.parametrize("pp", [2, 4, 8])
def test_published_bubbles_of_whole_steps(pp: int) -> None:
    """ZB-H1 (p - 1)(F + B - W) with W <= F, B; DualPipe (p/2 - 1)(F&B + D - 3 W) with F = B = W."""

    def waited(name: str, f: float, b: float, w: float) -> float:
        schedule = schedule_named(name)
        times = [np.full((pp, 2 if schedule.layout == "both" else 1), x) for x in (f, b, w)]
        played = play_step(schedule, plain(*times, 4 * pp))
        return min(spent["bubble"] for spent in played.spent)

    assert waited("zb-h1", 1.0, 1.2, 0.8) == pytest.approx((pp - 1) * (1.0 + 1.2 - 0.8))
    assert waited("1f1b", 1.0, 1.2, 0.8) == pytest.approx((pp - 1) * 3.0)
    assert waited("dualpipe", 1.0, 1.0, 1.0) == pytest.approx((pp / 2 - 1) * (3.0 + 2.0 - 3.0))


@pytest.mark.parametrize("name", ["1f1b", "gpipe"])
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_sends_are_within_the_closed_form(name: str, data: st.DataObject) -> None:
    """It counts two sends of every rank and micro-batch: the ends of a pipeline have one."""
    schedule, size = schedule_named(name), data.draw(sizes(name))
    pp, vpp, many = size
    f, b, w = random_times(schedule, pp, vpp, data.draw(st.integers(0, 999)))
    send_s = data.draw(st.floats(0.0, 0.5))
    without = play_step(schedule, plain(f, b, w, many)).step_s
    blocked = play_step(schedule, plain(f, b, w, many, send_s=send_s)).step_s
    beside = play_step(schedule, plain(f, b, w, many, send_s=send_s, sends_block=False)).step_s
    ranks = [on_ranks(schedule, x) for x in (f, b, w)]
    closed = closed_s(name, rank_times(ranks[0] + send_s, ranks[1] + send_s, ranks[2]), pipe(*size))
    assert without - 1e-9 <= beside <= blocked + 1e-9
    assert blocked <= closed + 1e-9


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_step_adds_up_and_is_above_its_bounds(name: str, data: st.DataObject) -> None:
    """Every rank's time is told to the last; none beats its work, its links, or one micro-batch's way."""
    schedule, program = schedule_named(name), data.draw(programs(name))
    played = play_step(schedule, program)
    many = program.micro_batches * (0.5 if schedule.layout == "both" else 1.0)
    for rank, spent in enumerate(played.spent):
        assert sum(spent.values()) == pytest.approx(played.step_s)
        assert min(spent.values()) >= -1e-9
        chunks = program.ranks[rank]
        work = sum(p.chip_s + sum(p.exchange_s) for c in chunks for p in passes(c)) * many
        assert spent["compute"] + sum(spent[k] for k in EXCHANGED) == pytest.approx(work)
        exchanged = sum(sum(p.exchange_s) for c in chunks for p in passes(c)) * many
        sent = sum(end - start for _, start, end in played.messages[rank])
        assert played.step_s >= work + program.update_s[rank] + program.fixed_s - 1e-9
        carried = sum(asked_s(c, many) for c in chunks)
        assert played.step_s >= exchanged + carried - 1e-6
        assert sent >= carried - 1e-6
    for route in routes(schedule.layout, len(program.ranks), len(program.ranks[0])):
        way = sum(program.ranks[r][c].forward.chip_s for r, c in route)
        assert played.step_s >= way


EXCHANGED = ("tensor_parallel", "context_parallel", "expert_parallel")


def passes(chunk: Chunk) -> tuple[Pass, Pass, Pass]:
    return chunk.forward, chunk.input, chunk.weight


def asked_s(chunk: Chunk, many: float) -> float:
    """Seconds of all collectives of a chunk."""
    once = chunk.gathers_first + chunk.reduces_last
    each = chunk.gathers_forward + chunk.gathers_backward + chunk.reduces_each
    return sum(m.seconds for m in once) + many * sum(m.seconds for m in each)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_streams_never_overlap_themselves(name: str, data: st.DataObject) -> None:
    played = play_step(schedule_named(name), data.draw(programs(name)))
    for kind in (played.messages, played.copies, played.launches):
        for slices in kind:
            starts = np.array([s.start_s for s in slices])
            ends = np.array([s.end_s for s in slices])
            assert (starts[1:] >= ends[:-1] - 1e-9).all()
            assert (ends >= starts).all()
    for sends in played.sends:
        spans = sorted((s.start_s, s.end_s) for s in sends)
        assert all(b[0] >= a[1] - 1e-9 for a, b in pairwise(spans))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_pieces_begin_when_their_weights_are_there(name: str, data: st.DataObject) -> None:
    """A task that stops for collectives goes on in order, and all of it runs."""
    played = play_step(schedule_named(name), data.draw(programs(name)))
    for rank, knots in enumerate(played.knots):
        for at, points in knots.items():
            fractions, when = np.array(points).T
            assert (fractions[0], fractions[-1]) == (0.0, 1.0)
            assert (np.diff(fractions) >= 0.0).all()
            assert (np.diff(when) >= -1e-9).all()
            assert when[0] >= played.timeline.start_s[rank][at] - 1e-9


@given(st.floats(0.1, 2.0), st.floats(0.1, 2.0))
def test_a_link_is_shared_fairly(own: float, other: float) -> None:
    """A pass that only exchanges and a collective on the same link: done when fair sharing says."""
    message = DataCollective(name="gather", seconds=other, at=1.0)
    chunk = Chunk(
        forward=Pass(chip_s=0.0, exchange_s=(own, 0.0, 0.0)),
        input=Pass(chip_s=0.0),
        gathers_first=(message,),
    )
    played = play_step(
        schedule_named("1f1b"),
        Program(ranks=((chunk,),), micro_batches=1, **ONE_LINK),  # type: ignore[arg-type]
    )
    # Each is done when the other has had as much of the link as it.
    both = min(own, other)
    assert played.knots[0][0][1][1] == pytest.approx(own + both)
    assert played.messages[0][0].end_s == pytest.approx(other + both)
    assert played.step_s == pytest.approx(own + other)


def test_collectives_hold_cores() -> None:
    """A tenth of the cores, all of the time: kernels take 1 / 0.9 as long, waiting for the host does not."""
    chunk = Chunk(
        forward=Pass(chip_s=0.6, wait_s=0.4),
        input=Pass(chip_s=0.0),
        gathers_first=(DataCollective(name="gather", seconds=5.0, at=1.0),),
    )
    program = Program(ranks=((chunk,),), micro_batches=1, held_cores=(0.1,), group_use=((1.0,),))
    played = play_step(schedule_named("1f1b"), program)
    assert played.knots[0][0][1][1] == pytest.approx(0.4 + 0.6 / 0.9)
    assert played.spent[0]["contention"] == pytest.approx(0.6 / 0.9 - 0.6)


@given(st.floats(0.1, 4.0), st.floats(0.1, 4.0))
def test_what_runs_side_by_side_in_part(pass_s: float, message_s: float) -> None:
    """The shorter one is hidden but for a tenth of what the two take side by side."""
    chunk = Chunk(
        forward=Pass(chip_s=pass_s),
        input=Pass(chip_s=0.0),
        gathers_first=(DataCollective(name="gather", seconds=message_s, at=1.0),),
    )
    program = Program(ranks=((chunk,),), micro_batches=1, apart_share=0.1, group_use=((1.0,),))
    shorter, longer = sorted((pass_s, message_s))
    step_s = play_step(schedule_named("1f1b"), program).step_s
    assert step_s == pytest.approx(longer + shorter / 9.0 if shorter < 0.9 * longer else step_s)
    assert longer < step_s <= (longer + shorter)


def bucketed(count: int, total_s: float) -> PlayedStep:
    chunk = Chunk(
        forward=Pass(chip_s=1.0),
        input=Pass(chip_s=2.0),
        reduces_last=cut_gradients("reduce", total_s, [0.25, 0.5, 0.75, 1.0], count),
    )
    return play_step(
        schedule_named("1f1b"), Program(ranks=((chunk,),), micro_batches=3, group_use=((1.0,),))
    )


def test_gradient_buckets_hide_behind_the_last_backward_pass() -> None:
    """One bucket is exposed wholly, four but for the last; what is longer than the pass shows."""
    assert bucketed(1, 1.0).step_s == pytest.approx(9.0 + 1.0)
    assert bucketed(4, 1.0).step_s == pytest.approx(9.0 + 0.25)
    assert bucketed(4, 8.0).step_s == pytest.approx(9.0 - 1.5 + 8.0)


def test_gradients_of_every_micro_batch_are_waited_for_after_its_backward_pass() -> None:
    """What is longer than the backward pass shows every time: the next forward pass hides none of it."""
    chunk = Chunk(
        forward=Pass(chip_s=1.0),
        input=Pass(chip_s=2.0),
        reduces_each=cut_gradients("reduce", 4.0, [0.25, 0.5, 0.75, 1.0], 4),
    )
    program = Program(ranks=((chunk,),), micro_batches=3, group_use=((1.0,),))
    played = play_step(schedule_named("1f1b"), program)
    assert played.step_s == pytest.approx(3 * (1.0 + 0.5 + 4.0))


def sharded(gather_s: float) -> PlayedStep:
    pieces = weight_pieces(cut_gradients("gather", gather_s, [0.25, 0.5, 0.75, 1.0], 4))
    chunk = Chunk(
        forward=Pass(chip_s=1.0),
        input=Pass(chip_s=1.0),
        gathers_forward=pieces,
        gathers_backward=pieces,
    )
    program = Program(ranks=((chunk,),), micro_batches=2, group_use=((1.0,),))
    return play_step(schedule_named("1f1b"), program)


def test_weights_are_fetched_one_piece_ahead() -> None:
    """The first piece of a pass shows, the others hide as far as the pieces before them are long enough."""
    assert sharded(0.4).step_s == pytest.approx(4.0 + 4 * 0.1)
    assert sharded(8.0).step_s == pytest.approx(4 * (8.0 + 0.25))


def test_weights_of_two_groups_are_fetched_one_piece_ahead_together() -> None:
    """Spread experts have messages of their own in every piece: they hide as those of one group would."""
    ends = [0.25, 0.5, 0.75, 1.0]
    groups = [weight_pieces(cut_gradients("gather", 0.2, ends, 4, group)) for group in (0, 1)]
    pieces = (*groups[0], *groups[1])
    chunk = Chunk(
        forward=Pass(chip_s=1.0),
        input=Pass(chip_s=1.0),
        gathers_forward=pieces,
        gathers_backward=pieces,
    )
    program = Program(ranks=((chunk,),), micro_batches=2, group_use=((1.0,), (1.0,)))
    played = play_step(schedule_named("1f1b"), program)
    assert played.step_s == pytest.approx(sharded(0.4).step_s)


def test_what_nothing_overlaps_does_not_hold_other_ranks_up() -> None:
    """Gradients sent at the end: once more for the step, whatever the number of ranks."""
    reduces = held_back(cut_gradients("reduce", 5.0, [1.0], 1), 1.0, 1.0)
    chunk = Chunk(forward=Pass(chip_s=1.0), input=Pass(chip_s=2.0), reduces_last=reduces)
    program = Program(ranks=((chunk,),) * 6, micro_batches=12, group_use=((1.0,),))
    assert play_step(schedule_named("1f1b"), program).step_s == pytest.approx((12 + 5) * 3.0 + 5.0)


@given(st.floats(0.0, 3.0), st.floats(0.1, 1.0), st.integers(1, 20))
def test_the_host_hides_behind_the_chip_or_the_chip_behind_the_host(
    launch_s: float, chip_s: float, many: int
) -> None:
    """A host that runs ahead costs nothing where the chip is slower, else all of its time."""
    wait_s = max(launch_s - chip_s, 0.0)
    one = Pass(chip_s=chip_s, launch_s=launch_s, wait_s=wait_s)
    program = Program(ranks=((Chunk(forward=one, input=one),),), micro_batches=many)
    behind = play_step(schedule_named("1f1b"), program)
    ahead = play_step(schedule_named("1f1b"), replace(program, runs_ahead_s=100.0))
    assert behind.step_s == pytest.approx(2 * many * max(launch_s, chip_s))
    assert ahead.step_s <= behind.step_s + 1e-9
    assert ahead.step_s >= 2 * many * max(launch_s, chip_s) - 1e-9
    for at, launch in enumerate(ahead.launches[0]):
        assert launch.start_s <= ahead.timeline.start_s[0][at] + 1e-9


def test_copies_hide_behind_the_pass_they_belong_to() -> None:
    chunk = Chunk(
        forward=Pass(chip_s=1.0),
        input=Pass(chip_s=2.0),
        copies_forward_s=1.5,
        copies_backward_s=1.0,
    )
    program = Program(ranks=((chunk,),), micro_batches=4, update_s=(1.0,), update_copies_s=(3.0,))
    played = play_step(schedule_named("1f1b"), program)
    assert played.step_s == pytest.approx(4 * (1.5 + 2.0) + 3.0)
    assert played.spent[0]["offload"] == pytest.approx(4 * 0.5 + 2.0)


def test_a_pair_hides_the_exchanges_of_experts() -> None:
    """DualPipe's forward beside backward: what is shorter than the products of both does not show."""
    one = Pass(chip_s=1.0, exchange_s=(0.0, 0.0, 0.4))
    chunk = Chunk(forward=one, input=one, weight=Pass(chip_s=1.0))
    program = Program(ranks=((chunk, chunk),) * 4, micro_batches=16)
    shown = play_step(schedule_named("dualpipe"), program)
    hidden = play_step(schedule_named("dualpipe"), replace(program, hidden_share=1.0))
    pairs = [sum(t.does == "P" for t in tasks) for tasks in shown.timeline.tasks]
    for rank, many in enumerate(pairs):
        apart = shown.spent[rank]["expert_parallel"] - hidden.spent[rank]["expert_parallel"]
        assert apart == pytest.approx(many * 0.8)
    assert hidden.step_s < shown.step_s - 0.7 * min(pairs)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_longer_work_never_shortens_a_step(name: str, data: st.DataObject) -> None:
    schedule, program = schedule_named(name), data.draw(programs(name))
    first = play_step(schedule, program).step_s
    tasks = [len(order) for order in play_step(schedule, program).timeline.tasks]
    slower = play_step(schedule, program, [np.full(many, 1.5) for many in tasks])
    assert slower.step_s >= first - 1e-9
    same = play_step(schedule, program, [np.ones(many) for many in tasks])
    assert same.step_s == pytest.approx(first)


@pytest.mark.parametrize("name", ["1f1b"])
def test_64_ranks_and_512_micro_batches(name: str) -> None:
    vpp = {"interleaved": 2, "zb-v": 2}.get(name, 1)
    times = np.ones((3, 64, 2 if name == "dualpipe" else vpp))
    program = plain(*times, 512, send_s=0.01)
    played = play_step(schedule_named(name), program)
    assert played.step_s > 512 * 3.0
