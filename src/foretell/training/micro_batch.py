"""One micro-batch on a rank of each stage: its passes, sends, sums, and what it waits for."""

from typing import Literal

import numpy as np

from foretell.records import dataclass
from foretell.schedules.base import Pipe
from foretell.sharding.offload import ExposedCopies
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.plan import Plans
from foretell.specs.scenario import Scenario
from foretell.training.data_parallel import GroupWeights
from foretell.training.data_waits import DataWaits, MessagesBeside, data_waits
from foretell.training.part_costs import BothPasses
from foretell.training.stages import send_seconds
from foretell.training.tables import Stages, Tables
from foretell.training.update import sum_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """What one micro-batch takes on a rank of each stage; arrays are (plans, stages) unless stated."""

    stages: Stages
    """Its passes."""
    sends_s: Array
    """Sends and receives; (plans, 1)."""
    sums_s: Array
    """Adding its gradients to the sum."""
    whole_s: Array
    """All of it."""
    waits: DataWaits
    """What it waits for data parallelism."""
    copies: ExposedCopies | None = None
    """What it waits for copies to and from the host; None where nothing is offloaded."""

    def passed_on_s(self, way: Literal["forward", "backward"]) -> Num:
        """What a pass waits for before its result goes on to the next stage, so that others wait too."""
        waits_s: Num = getattr(self.waits, f"{way}_s")
        return waits_s if self.copies is None else waits_s + getattr(self.copies, f"{way}_s")

    @property
    def weight_pass_s(self) -> Num:
        """The backward pass to the weights: what the whole one, waiting as it does, has beyond the one to the
        inputs."""
        pass_s = self.stages.weight_s + self.sums_s + self.waits.weight_s
        if self.copies is None:
            return pass_s
        return pass_s + self.copies.backward_s - self.copies.inputs_s


def alone_seconds(tables: Tables, pipe: Pipe, stages: Stages) -> Array | None:
    """What experts' exchanges show in a step although another micro-batch's work can hide them, since some
    passes have none beside them; (plans, stages).

    With p stages of v chunks and m micro-batches the last rank runs (v - 1) p + 1 chunks forward before its
    first backward pass, one of them so that the two are of different micro-batches (Megatron-Core,
    pipeline_parallel/schedules.py), and as many backward at the end; bubbles have passes of other ranks.
    """
    found = zip(tables.exchanges.by_name, stages.waits, strict=True)
    waits_s = {name: waits.waits_s for name, waits in found}.get("expert_parallel")
    if waits_s is None:
        return None
    chunks = np.minimum((pipe.vpp - 1.0) * pipe.pp + 1.0, pipe.micro_batches * pipe.vpp)
    return np.asarray(((chunks + pipe.pp - 1.0) / pipe.vpp)[:, None] * waits_s)


def micro_batch(
    scenario: Scenario,
    plans: Plans,
    tables: Tables,
    stages: Stages,
    shared: tuple[tuple[GroupWeights, ...], Array],
    copies_s: BothPasses | None = None,
) -> MicroBatch:
    """One micro-batch of every plan; `shared` is what data parallelism shares, and the micro-batches,
    `copies_s` what copies to and from the host take beside each pass."""
    sends_s, sums_s = send_seconds(plans, tables), sum_seconds(scenario, plans, stages, *shared)
    beside = MessagesBeside(sends_s=sends_s, sums_s=sums_s)
    return MicroBatch(
        stages=stages,
        sends_s=sends_s,
        sums_s=sums_s,
        whole_s=stages.forward_s + stages.backward_s + sends_s + sums_s,
        waits=data_waits(scenario, plans, tables, stages, shared[0], beside, copies_s),
    )
