"""Measured beside predicted while a run goes on: real frameworks where installed, else their interface."""

import sys
import types
from typing import Any

import pytest

import foretell
from foretell.lab.monitor import RunMonitor

STEP_S = 0.5


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def monitor(predicted: Any = STEP_S, **options: Any) -> tuple[RunMonitor, Clock, list[str]]:
    clock, lines = Clock(), list[str]()
    return RunMonitor(predicted, write=lines.append, clock=clock, **options), clock, lines


def run(one: RunMonitor, clock: Clock, steps: int, seconds: float) -> None:
    one.record(0)
    for step in range(1, steps + 1):
        clock.now += seconds * (10.0 if step <= 2 else 1.0)  # the first ones compile
        one.record(step)


def test_a_line_every_so_many_steps_without_the_warm_up() -> None:
    one, clock, lines = monitor(every=10, warmup=2)
    run(one, clock, 40, 0.6)
    assert one.measured_s == pytest.approx(0.6)
    assert len(lines) == 4
    assert "measured 0.6 s, predicted 0.5 s (+20.0%)" in lines[-1]
    assert one.summary()["gap"] == pytest.approx(0.2)


def test_an_estimate_brings_its_interval_and_rates() -> None:
    best = foretell.estimate("llama-3.1-8b", system="h100-sxm", gpus=8, plan="zero3 mbs1")
    one, clock, lines = monitor(best, every=5, warmup=2)
    run(one, clock, 10, best.step_s * 1.1)
    assert "inside the 90 % interval" in lines[-1]
    assert f"{best.tokens_per_s / 1.1:,.0f} tokens/s" in lines[-1]
    slow, clock, lines = monitor(best, every=5, warmup=2)
    run(slow, clock, 10, best.step_s * 50)
    assert "outside the 90 % interval" in lines[-1]
    # What was measured is what --measured reads: the prediction given it lies nearer to it.
    known = foretell.estimate(
        "llama-3.1-8b", system="h100-sxm", gpus=8, plan="zero3 mbs1", measured=[one.measured_text()]
    )
    assert abs(known.step_s / one.measured_s - 1) < 0.1  # type: ignore[operator]


def test_steps_that_are_reported_in_bunches_count_each() -> None:
    one, clock, lines = monitor(every=20, warmup=0)
    one.record(0)
    for step in (10, 20, 30, 40):
        clock.now += 10 * 0.7
        one.record(step)
    assert one.measured_s == pytest.approx(0.7)
    assert len(lines) == 2
    one.record(40)  # the same step again is no step
    assert one.counted == 40


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> None:
    """A module with the interface that is used of a framework, where it is not installed."""
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        made = types.ModuleType(".".join(parts[:depth]))
        monkeypatch.setitem(sys.modules, made.__name__, made)
    for member, value in members.items():
        setattr(made, member, value)


def test_the_callback_of_the_hugging_face_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    class TrainerCallback:
        """As transformers 5 has it: every event is a method."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None: ...
        def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None: ...
        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None: ...

    stand_in(monkeypatch, "transformers", TrainerCallback=TrainerCallback)
    one, clock, lines = monitor(every=5, warmup=0)
    callback = one.hugging_face()
    assert isinstance(callback, TrainerCallback)
    state = types.SimpleNamespace(global_step=0, is_world_process_zero=True)
    callback.on_train_begin(None, state, None)
    for step in range(1, 11):
        clock.now += 0.55
        state.global_step = step
        callback.on_step_begin(None, state, None)
        callback.on_step_end(None, state, None, model=None)
    assert one.measured_s == pytest.approx(0.55)
    assert len(lines) == 2
    state.is_world_process_zero, state.global_step = False, 99
    callback.on_step_end(None, state, None)
    assert one.counted == 10


def test_the_callback_of_lightning(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "lightning.pytorch", Callback=type("Callback", (), {}))
    one, clock, lines = monitor(every=4, warmup=0)
    callback = one.lightning()
    trainer = types.SimpleNamespace(global_step=0, is_global_zero=True)
    callback.on_train_start(trainer, None)
    for batch in range(1, 17):  # two batches accumulate gradients for a step
        clock.now += 0.3
        trainer.global_step = batch // 2
        callback.on_train_batch_end(trainer, None, None, None, batch)
    assert one.measured_s == pytest.approx(0.6)
    assert one.counted == 8
    assert len(lines) == 2


def test_the_metrics_processor_of_torchtitan() -> None:
    class MetricsProcessor:
        """As torchtitan calls it: step, losses, gradient norm, further metrics."""

        def __init__(self) -> None:
            self.logged: list[int] = []

        def log(self, step: int, loss: float, most: float, norm: float, extra: Any = None) -> None:
            self.logged.append(step)

    one, clock, lines = monitor(every=10, warmup=0)
    processor = one.torchtitan(MetricsProcessor())
    for step in (1, 10, 20, 30):
        clock.now += 9 * 0.5 if step == 10 else 10 * 0.5
        processor.log(step, 2.0, 2.1, 1.0, {"lr": 1e-4})
    assert processor.logged == [1, 10, 20, 30]
    assert one.measured_s == pytest.approx(0.5)
    assert len(lines) >= 2


def test_the_real_trainer_where_it_is_installed(tmp_path: Any) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed here")
    pytest.importorskip("accelerate", reason="transformers' Trainer needs accelerate")
    torch = pytest.importorskip("torch")
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, vocab_size=64,
    )  # fmt: skip
    rows = [{"input_ids": torch.arange(16), "labels": torch.arange(16)} for _ in range(24)]
    lines: list[str] = []
    one = RunMonitor(0.05, every=2, warmup=1, write=lines.append)
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), per_device_train_batch_size=2, max_steps=8, report_to=[],
        save_strategy="no", use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    transformers.Trainer(
        model=transformers.LlamaForCausalLM(config), args=arguments, train_dataset=rows,
        callbacks=[one.hugging_face()],
    ).train()  # fmt: skip
    assert one.counted == 8
    assert one.measured_s is not None
    assert len(lines) == 4
