"""Weights to the rollout engine, by mechanism."""

import pytest

from foretell.catalog import model
from foretell.catalog.post_training import loop_names, post_training_loop, recognise_loop
from foretell.inputs.system import system_of
from foretell.posttraining.sync import SyncQuestion, sync_seconds, tensor_count


def seconds(name: str, mechanism: str, **changes: object) -> float:
    what = model(name)
    given = {
        "model": what, "parameters": 7e9, "sent_parameters": 7e9, "mechanism": mechanism,
        "trainer_gpus": 8, "offloaded": False, "joined": False, "narrow": False, "split": True,
    }  # fmt: skip
    return sync_seconds(
        SyncQuestion(**{**given, **changes}),  # type: ignore[arg-type]
        post_training_loop("verl"),
        system_of("h100-sxm", (), {}),
    )


def test_a_broadcast_takes_as_long_as_its_bytes() -> None:
    one, two = (seconds("qwen2.5-7b", "broadcast", sent_parameters=n) for n in (7e9, 14e9))
    assert two - one == pytest.approx(14e9 / 5.6e9)


def test_changed_values_are_compared_by_all_ranks() -> None:
    few, many = (seconds("qwen2.5-7b", "delta", trainer_gpus=n) for n in (8, 16))
    assert few - 1.0 == pytest.approx(2.0 * (many - 1.0))


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
    ],
)
def test_published_synchronisations(
    name: str, mechanism: str, params: float, gpus: int, measured: float
) -> None:
    """verl, docs/advance/delta_weight_sync.md and fully_async.md (H100 and H20)."""
    found = seconds(
        name, mechanism, sent_parameters=params, trainer_gpus=gpus, joined=mechanism == "p2p"
    )
    assert measured / 1.5 < found < measured * 1.5


def test_loops_are_recognised() -> None:
    assert recognise_loop("verl 0.5") == "verl"
    assert recognise_loop("NeMo-RL") == "nemo-rl"
    assert recognise_loop("something") == "generic"
    for name in loop_names():
        assert post_training_loop(name).id == name
