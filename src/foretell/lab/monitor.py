"""Measured beside predicted while a run goes on: for the Hugging Face Trainer, Lightning and torchtitan.

    best = foretell.estimate("llama-3.1-8b", system="h100-sxm", gpus=8, plan="zero3 mbs1")
    monitor = foretell.RunMonitor(best, every=10)
    Trainer(..., callbacks=[monitor.hugging_face()])             # Hugging Face
    lightning.Trainer(..., callbacks=[monitor.lightning()])      # Lightning
    monitor.torchtitan(trainer.metrics_processor)                # torchtitan, before trainer.train()

A step is timed from one step's end to the next, so that what runs behind (data loading, logging) counts as it
does for the user. The first steps (compilation, caches) are not counted. The callbacks were run in
transformers 5 and Lightning 2.6; torchtitan 0.2 and 0.3 call `log(step, ...)` once for each step they log.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

from foretell.specs.result import StepEstimate

Write = Callable[[str], Any]
"""Where a line goes."""


class RunMonitor:
    """Prints measured beside predicted time of a step, every so many steps; keeps what it measured."""

    def __init__(
        self,
        predicted: StepEstimate | float,
        *,
        every: int = 10,
        warmup: int = 3,
        write: Write = print,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`predicted` is an estimate, or seconds of a step; the first `warmup` steps are not counted."""
        self.estimate = predicted if isinstance(predicted, StepEstimate) else None
        self.predicted_s = float(getattr(predicted, "step_s", predicted))  # type: ignore[arg-type]
        interval = (self.estimate.interval if self.estimate else None) or {}
        self.ends = interval.get("p90")
        self.every, self.warmup, self.write, self.clock = max(every, 1), warmup, write, clock
        self.steps_s: list[float] = []
        self.counted = 0
        self._last: tuple[int, float] | None = None
        self._shown = 0

    def record(self, step: int) -> None:
        """A step has ended; several at once where only some are reported."""
        now = self.clock()
        if self._last is not None and step > self._last[0]:
            many = step - self._last[0]
            if self.counted + many > self.warmup:
                self.steps_s.append((now - self._last[1]) / many)
            self.counted += many
        self._last = (step, now)
        if self.steps_s and self.counted - self._shown >= self.every:
            self._shown = self.counted
            self.write(self.line(step))

    @property
    def measured_s(self) -> float | None:
        """Median seconds of a step so far; None before the first that counts."""
        return statistics.median(self.steps_s) if self.steps_s else None

    def line(self, step: int) -> str:
        """Measured beside predicted, in a line."""
        measured = self.measured_s
        if measured is None:
            return f"foretell: step {step}: not measured yet, predicted {self.predicted_s:.4g} s"
        gap = measured / self.predicted_s - 1.0
        said = (
            f"foretell: step {step}: measured {measured:.4g} s, predicted {self.predicted_s:.4g} s "
            f"({gap:+.1%})"
        )
        if self.ends is not None:
            low, high = self.ends
            where = "inside" if low <= measured <= high else "outside"
            said += f", {where} the 90 % interval {low:.4g} to {high:.4g} s"
        if self.estimate is not None:
            ratio = self.predicted_s / measured
            rate = self.estimate.tokens_per_s * ratio
            said += f"; {rate:,.0f} tokens/s, MFU {100 * self.estimate.mfu * ratio:.1f} %"
        return said

    def summary(self) -> dict[str, Any]:
        """What was measured: for `measured=` of the verbs, and for a log of one's own."""
        measured = self.measured_s
        gap = None if measured is None else measured / self.predicted_s - 1.0
        plan = None if self.estimate is None else str(self.estimate.plan)
        return {
            "plan": plan, "step_s": measured, "predicted_s": self.predicted_s, "gap": gap,
            "steps": self.counted,
        }  # fmt: skip

    def measured_text(self) -> str:
        """The run as `--measured` and `measured=` read it: plan and seconds."""
        told = self.summary()
        return f"{told['plan'] or ''}: {told['step_s']:.6g} s"

    def hugging_face(self) -> Any:
        """A callback of the Hugging Face Trainer."""
        from transformers import TrainerCallback  # type: ignore[import-not-found,unused-ignore]

        monitor = self

        class HuggingFaceMonitor(TrainerCallback):  # type: ignore[misc,unused-ignore]
            """Times optimizer steps of the Hugging Face Trainer."""

            def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
                if state.is_world_process_zero:
                    monitor.record(int(state.global_step))

            def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
                if state.is_world_process_zero:
                    monitor.record(int(state.global_step))

        return HuggingFaceMonitor()

    def lightning(self) -> Any:
        """A callback of Lightning's Trainer."""
        try:
            from lightning.pytorch import Callback  # type: ignore[import-not-found,unused-ignore]
        except ImportError:
            from pytorch_lightning import Callback  # type: ignore[import-not-found,unused-ignore]

        monitor = self

        class LightningMonitor(Callback):  # type: ignore[misc,unused-ignore]
            """Times optimizer steps of Lightning's Trainer: batches that accumulate gradients are no step."""

            def on_train_start(self, trainer: Any, pl_module: Any) -> None:
                if trainer.is_global_zero:
                    monitor.record(int(trainer.global_step))

            def on_train_batch_end(
                self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
            ) -> None:
                if trainer.is_global_zero and monitor.is_new(int(trainer.global_step)):
                    monitor.record(int(trainer.global_step))

        return LightningMonitor()

    def torchtitan(self, metrics_processor: Any) -> Any:
        """torchtitan's metrics processor, whose `log` reports measured beside predicted as well."""
        log, monitor = metrics_processor.log, self

        def log_beside(step: int, *words: Any, **more: Any) -> Any:
            found = log(step, *words, **more)
            monitor.record(int(step))
            return found

        metrics_processor.log = log_beside
        return metrics_processor

    def is_new(self, step: int) -> bool:
        """Whether a step has not been recorded."""
        return self._last is None or step > self._last[0]
