"""Weights to the rollout engine, by mechanism."""

from dataclasses import replace

import pytest

from foretell.catalog import model
from foretell.catalog.post_training import loop_names, post_training_loop, recognise_loop
from foretell.inputs.overrides import parse_settings
from foretell.inputs.system import system_of
from foretell.posttraining.sync import (
    DELTA_CALLS,
    NETWORK_SHARE,
    NODE_CHIPS,
    SyncQuestion,
    kept_bytes,
    sync_seconds,
    tensor_count,
)


def seconds(name: str, mechanism: str, **changes: object) -> float:
    what = model(name)
    given = {
        "model": what, "sent_parameters": 7e9, "mechanism": mechanism, "trainer_gpus": 8,
        "rollout_gpus": 8, "replica_gpus": 2, "offloaded": False, "narrow": False, "split": True,
        "kept_bytes": 4.0,
    }  # fmt: skip
    loop = str(changes.pop("loop", "verl"))
    return sync_seconds(
        SyncQuestion(**{**given, **changes}),  # type: ignore[arg-type]
        post_training_loop(loop),
        system_of("h100-sxm", (), {}),
    )


def test_a_broadcast_takes_as_long_as_what_the_trainer_keeps() -> None:
    loop = post_training_loop("verl")
    one, two = (seconds("qwen2.5-7b", "broadcast", sent_parameters=n) for n in (7e9, 14e9))
    assert two - one == pytest.approx(4.0 * 7e9 / loop.sync_broadcast_bytes_per_s)
    narrow = seconds("qwen2.5-7b", "broadcast", kept_bytes=kept_bytes(narrow=True))
    assert one - narrow == pytest.approx(2.0 * 7e9 / loop.sync_broadcast_bytes_per_s)


def test_a_slow_network_decides_between_two_pools() -> None:
    slow = system_of("h100-sxm", parse_settings(["network.cluster.bandwidth_bytes_per_s=1e9"]), {})
    question = SyncQuestion(
        model=model("qwen2.5-7b"), sent_parameters=7e9, mechanism="broadcast", trainer_gpus=8,
        rollout_gpus=8, replica_gpus=2, offloaded=False, kept_bytes=2.0, narrow=False, split=True,
    )  # fmt: skip
    rate = float(slow.network.tiers[-1].bandwidth_bytes_per_s) * NETWORK_SHARE * NODE_CHIPS
    loop = post_training_loop("verl")
    one = sync_seconds(question, loop, slow)
    assert one > 14e9 / rate
    # Shards of two nodes are gathered over the same wire, and the model is broadcast behind.
    two = sync_seconds(replace(question, trainer_gpus=16), loop, slow)
    assert two - one == pytest.approx(14e9 / rate)


def test_changed_values_are_compared_by_all_ranks() -> None:
    loop = post_training_loop("verl")
    few, many = (seconds("qwen2.5-7b", "delta", trainer_gpus=n) for n in (8, 16))
    assert few - many == pytest.approx(loop.sync_delta_s_per_weight * (7e9 / 8 - 7e9 / 16))
    calls = DELTA_CALLS * loop.sync_tensor_s * tensor_count(model("qwen2.5-7b"), joined=True)
    assert many > loop.sync_fixed_s + calls


def test_every_node_loads_its_own_shards_from_the_host() -> None:
    def loaded(gpus: int) -> float:
        whole, away = (
            seconds("qwen2.5-7b", "broadcast", trainer_gpus=gpus, offloaded=o)
            for o in (False, True)
        )
        return away - whole

    assert loaded(8) == pytest.approx(2.0 * loaded(16))


def test_every_expert_is_a_tensor_of_its_own_unless_joined() -> None:
    apart, joined = (tensor_count(model("qwen3-30b-a3b"), j) for j in (False, True))
    assert apart > 48 * 128 * 3 > joined


@pytest.mark.parametrize("change", [{"offloaded": True}, {"narrow": True}])
def test_what_lives_on_the_host_or_is_narrowed_takes_longer(change: dict[str, bool]) -> None:
    assert seconds("qwen2.5-7b", "broadcast", **change) > seconds("qwen2.5-7b", "broadcast")


@pytest.mark.parametrize(
    ("name", "mechanism", "params", "gpus", "measured"),
    [
        ("qwen2.5-32b", "broadcast", 32.8e9, 16, 14.2),
        ("qwen2.5-72b", "broadcast", 72.7e9, 32, 28.8),
        ("qwen2.5-32b", "delta", 32.8e9, 16, 6.2),
        ("qwen3-30b-a3b", "p2p", 30.5e9, 16, 4.38),
        ("qwen3-30b-a3b", "broadcast", 30.5e9, 16, 15.76),
        ("qwen3-235b-a22b", "broadcast", 235e9, 64, 58.57),
    ],
)
def test_published_synchronisations(
    name: str, mechanism: str, params: float, gpus: int, measured: float
) -> None:
    """verl, docs/advance/delta_weight_sync.md and fully_async.md (H100 and H20)."""
    found = seconds(
        name, mechanism, sent_parameters=params, trainer_gpus=gpus,
        kept_bytes=kept_bytes(narrow=name.startswith("qwen3")),
    )  # fmt: skip
    assert measured / 1.5 < found < measured * 1.5


def test_receivers_read_their_own_shards() -> None:
    few, many = (
        seconds("deepseek-v3", "p2p", sent_parameters=671e9, replica_gpus=n, loop="nemo-rl")
        for n in (16, 32)
    )
    port = 50e9 * NETWORK_SHARE
    assert few - many == pytest.approx(2.0 * 671e9 * (1 / 16 - 1 / 32) / port)


def test_a_checkpoint_engine_gathers_nothing_and_sends_what_is_stored() -> None:
    def sent(narrow: bool) -> float:
        return seconds("deepseek-v3", "broadcast", sent_parameters=671e9, narrow=narrow,
                       rollout_gpus=16, loop="checkpoint-engine", kept_bytes=2.0)  # fmt: skip

    loop = post_training_loop("checkpoint-engine")
    names_s = loop.sync_tensor_s * tensor_count(model("deepseek-v3"), joined=False)
    # Half of the bytes, and a tensor of scales for each.
    assert sent(False) - sent(True) == pytest.approx(
        671e9 / (NODE_CHIPS * 50e9 * NETWORK_SHARE) - names_s
    )


@pytest.mark.parametrize(
    ("name", "params", "gpus", "narrow", "mechanism", "measured"),
    [
        ("glm-4.5-air", 110.5e9, 8, False, "broadcast", 3.47),
        ("qwen3-235b-a22b", 235e9, 8, False, "broadcast", 6.22),
        ("deepseek-v3", 671e9, 16, True, "broadcast", 10.19),
        ("deepseek-v3", 671e9, 16, True, "p2p", 11.8),
    ],
)
def test_published_checkpoint_engines(
    name: str, params: float, gpus: int, narrow: bool, mechanism: str, measured: float
) -> None:
    """MoonshotAI/checkpoint-engine, README.md (H800 and H20)."""
    found = seconds(
        name, mechanism, sent_parameters=params, trainer_gpus=gpus, rollout_gpus=gpus, replica_gpus=gpus,
        kept_bytes=2.0, narrow=narrow, split=False, loop="checkpoint-engine",
    )  # fmt: skip
    assert measured / 1.5 < found < measured * 1.5


def test_loops_are_recognised() -> None:
    assert recognise_loop("verl 0.5") == "verl"
    assert recognise_loop("NeMo-RL") == "nemo-rl"
    assert recognise_loop("something") == "generic"
    for name in loop_names():
        assert post_training_loop(name).id == name
