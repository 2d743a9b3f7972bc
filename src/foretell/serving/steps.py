"""Seconds of one step of an engine, for any number of loads at once.

    step   = max(factor x device, floor) + host
    device = tokens + experts + attention + head, with the exchanges that they wait for

What depends on the number of tokens alone, on decoding sequences and their contexts, and on prompts and
their pasts is tabulated once for a deployment (serving/tables.py); a step is then a few look-ups. All loads
broadcast; `StepTimes.one` gives the same number for a single load without arrays, for simulators.

With stages (pp) a step is one round of all micro-batches: every sequence gets its next token once all
stages have passed its part of the batch on.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from foretell.cost.kernels.base import p_norm
from foretell.cost.power import chip_power
from foretell.serving.lookup import along, read
from foretell.serving.tables import (
    CONTEXTS,
    LENGTHS,
    PASTS,
    PROMPTS,
    SEQUENCES,
    TOKENS,
    Tables,
    links_of,
    pipe_s,
    tables_of,
)
from foretell.specs._base import Num
from foretell.specs.deployment import Deployment
from foretell.specs.engine import EngineProfile, Fit
from foretell.specs.model import Model
from foretell.specs.system import System

Array = NDArray[np.float64]

SIDE_BY_SIDE = 4.0
"""Power of the norm that joins the host's time and the chip's: the longer one shows, nearly alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLoad:
    """What one step of an instance does; numbers or arrays that broadcast."""

    decoding: Num = 0.0
    """Sequences that get one more token."""
    context_tokens: Num = 0.0
    """Tokens in the caches of all of these together."""
    prefill_tokens: Num = 0.0
    """Prompt tokens of this step, over all prompts in it."""
    past_tokens: Num = 0.0
    """Tokens of the same prompts that earlier steps (or a prefix cache) left in the cache."""
    prompts: Num = 0.0
    """Prompts that these tokens are of, chunks included; at least 1 where there are such tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """An instance of an engine, ready to be asked what a step takes."""

    model: Model
    """What is served."""
    system: System
    """On what."""
    deployment: Deployment
    """How."""
    profile: EngineProfile
    """By which engine."""
    tables: Tables
    """Seconds of the parts of a step."""
    send_s: tuple[float, float]
    """Passing activations to the next stage: seconds of a message, and of each token in it."""
    layers: int
    """Layers of the model."""

    def seconds(self, load: StepLoad) -> Array:
        """Seconds from one step to the next."""
        device, host = self.device_s(load), self.host_s(load)
        p = self.profile
        prefill = np.asarray(load.prefill_tokens, float) > 0.0
        eager = p.eager_layer_s * self.layers + p.eager_sequence_s * np.asarray(load.decoding)
        decode_s = p_norm(device, eager, SIDE_BY_SIDE) if p.eager_layer_s else device
        floor = max(p.prefill_layer_s, p.eager_layer_s) * self.layers
        prompt_s = np.maximum(p.prefill_factor * device, floor) + p.prefill_step_s
        some = np.asarray(load.decoding) + load.prefill_tokens > 0.0
        return np.asarray(np.where(some, np.where(prefill, prompt_s, decode_s) + host, 0.0))

    def host_s(self, load: StepLoad) -> Array:
        """Host time that every step waits for."""
        p = self.profile
        return np.asarray(p.host_step_s + p.host_sequence_s * np.asarray(load.decoding, float))

    def device_s(self, load: StepLoad) -> Array:
        """Seconds of the kernels and exchanges of a step."""
        return self._sum(load, ("token_s", "experts_s", "decode_s", "prefill_s", "head_s", "encoder_s"))

    def joules(self, load: StepLoad) -> Array:
        """Joules of all chips of the instance in one step, waiting included."""
        names = ("token_joules", "experts_joules", "decode_joules", "prefill_joules", "head_joules",
                 "encoder_joules")  # fmt: skip
        power = chip_power(self.system.chip)
        base = power.base_watts * self.deployment.gpus
        return np.asarray(self._sum(load, names) + base * self.seconds(load))

    def _sum(self, load: StepLoad, names: tuple[str, ...]) -> Array:
        """A table's quantity over the parts of a step."""
        d, tables = self.deployment, self.tables
        token, experts, decode, prefill, head, encoder = (getattr(tables, n) for n in names)
        joules = names[0].endswith("joules")
        n = np.asarray(load.decoding, float) / d.pp
        new = np.asarray(load.prefill_tokens, float)
        prompts = np.where(new > 0.0, np.maximum(load.prompts, 1.0), 0.0)
        each = new / np.maximum(prompts, 1.0)
        context = np.asarray(load.context_tokens) / np.maximum(load.decoding, 1e-9)
        past = np.asarray(load.past_tokens) / np.maximum(prompts, 1.0)
        own_n = least_one(n, d.dp * d.cp)
        own_k = least_one(prompts, d.dp)
        drawn = n * (1.0 + d.draft_tokens)
        own_new = own_k * each / d.cp
        if self.model.encoder is not None:
            tokens, stage, read_in = least_one(drawn, d.dp * d.cp) + own_k, drawn + prompts, own_new
        else:
            tokens = least_one(drawn, d.dp * d.cp) + own_new
            stage, read_in = drawn + new, np.zeros_like(own_new)
        rows = least_one(drawn, d.dp * d.cp) + own_k
        if joules:
            tokens, own_n, own_k, rows = drawn + new, n, prompts, drawn + prompts
        total = at(token, tokens) + at(head, rows) + at(encoder, read_in)
        total = total + (1.0 if joules else self.profile.expert_factor) * at(experts, stage)
        places = along(own_n, SEQUENCES), along(context, CONTEXTS)
        total = total + read(decode, places) * few(own_n, SEQUENCES)
        q = along(each / d.cp, LENGTHS)
        spots = along(own_k, PROMPTS), q, along(past, PASTS)
        total = total + read(prefill, spots) * few(own_k, PROMPTS)
        if joules:
            return np.asarray(total)
        total = total + at(tables.gather_s, stage) + self.gaps_s() * few(stage, TOKENS)
        if d.pp > 1:
            total = total + d.pp * (self.send_s[0] + self.send_s[1] * tokens)
        return np.asarray(total)

    def gaps_s(self) -> float:
        """What the engine's layers, exchanges and mixtures take in every step beyond their kernels."""
        p, d = self.profile, self.deployment
        late = p.exchange_s * np.log2(d.tp) * self.tables.reduces
        mixtures = p.expert_layer_s * self.tables.mixtures
        return float(p.layer_s * self.layers + late + mixtures)


def at(table: Array, tokens: Array) -> Array:
    """A table over tokens; nothing costs nothing."""
    return np.asarray(read(table, (along(tokens, TOKENS),)) * few(tokens, TOKENS))


def few(value: Array, points: Array) -> Array:
    """0 of nothing, else 1."""
    return np.asarray(np.minimum(np.asarray(value) / points[0], 1.0) > 0.0, float)


def least_one(total: Num, ranks: float) -> Array:
    """What the fullest of some ranks has: an even share, and one where there is any."""
    total = np.asarray(total, float)
    return np.asarray(np.maximum(total / ranks, np.minimum(total, 1.0)))


def kernel_side(profile: EngineProfile) -> EngineProfile:
    """A profile reduced to what the kernels of a step depend on, so that tables are shared."""
    return EngineProfile(
        id="", engine=profile.engine, since="", until="", years=(0, 0), architectures=(), source="", fit=Fit(rows=0),
        software=profile.software, custom_all_reduce=profile.custom_all_reduce,
        fused=profile.fused, shared_heads=profile.shared_heads,
    )  # fmt: skip


def step_times(
    model: Model, system: System, deployment: Deployment, profile: EngineProfile
) -> StepTimes:
    """An instance with its tables."""
    kernels = kernel_side(profile)
    layout = replace(deployment, max_batch=None, max_tokens=None, memory_fraction=None, accepted=0.0)
    links = links_of(system, layout, kernels)
    near, far = (float(pipe_s(tokens, model, links)) for tokens in (0.0, 1e4))
    return StepTimes(
        model=model,
        system=system,
        deployment=deployment,
        profile=profile,
        tables=tables_of(model, system, layout, kernels),
        send_s=(near, (far - near) / 1e4),
        layers=len(model.stack.layers),
    )
