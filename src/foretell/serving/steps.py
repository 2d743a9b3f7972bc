"""Seconds of one step of an engine, for any number of loads at once.

    step   = max(factor x device, floor) + host
    device = tokens + experts + attention + head, with the exchanges that they wait for

What depends on the number of tokens alone, on decoding sequences and their contexts, and on prompts and
their pasts is tabulated once for a deployment (serving/tables.py); a step is then a few look-ups. All loads
broadcast; simulators read them load by load through serving/clock.py.

With stages (pp) a step is one round of all micro-batches: every sequence gets its next token once all
stages have passed its part of the batch on.
"""

from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np

from foretell.kernels.families.base import p_norm
from foretell.kernels.power import chip_power
from foretell.records import dataclass
from foretell.serving.encoders import encoder_costs
from foretell.serving.engine_options import option_parts_s
from foretell.serving.fullest_rank import FullestRank, StepLoad, chance_of_any, spread
from foretell.serving.launches import EAGER_LAYER_S, casts_of, launches_of, module_launches
from foretell.serving.links import links_of, pipe_s
from foretell.serving.memory import kv_bytes
from foretell.serving.table_points import WHOLE, TablePoints, axis_of, read
from foretell.serving.tables import ServingTables, tables_of
from foretell.serving.wide_experts import OVERLAP, WideExperts, halved, wide_experts
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.corrections import AS_PREDICTED
from foretell.specs.deployment import Deployment
from foretell.specs.engine import EngineProfile, Fit
from foretell.specs.model import Model
from foretell.specs.system import System, first_chip

Reader = Callable[[Array], Array]
"""A table to what it says of a load."""


WEIGHTS = ("matrices", "exchanges", "experts", "head")
"""Parts of a step that go with the model's weights."""


SELECTION_S = 2.7e-5
"""Kernels of an indexer beside its products, in every step: rotating and casting queries and keys, storing
keys, planning the scores, a radix selection and turning places into pages, ten of 2 to 5 us (sglang,
layers/attention/nsa, recalled). Measured steps of GLM-5 under SGLang on B200, B300 and H200 are 25 to 40 us a
layer longer than without."""


SIDE_BY_SIDE = 4.0
"""Power of the norm that joins the host's time and the chip's: the longer one shows, nearly alone."""


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
    tables: ServingTables
    """Seconds of the parts of a step."""
    send_s: tuple[Num, Num]
    """Passing activations to the next stage: seconds of a message, and of each token in it."""
    layers: int
    """Layers of the model."""
    launches: float
    """Kernels that a step with prompts launches one by one."""
    casts: float
    """Those of them that cast activations to a narrow format."""
    wide: WideExperts | None
    """Kernels that dispatch tokens to experts; None where none do."""
    encoder: tuple[Num, Num]
    """Seconds, and joules above idling, of images and audio for one token of the prompts that they are in."""
    ring_s: Num
    """Seconds of passing one prompt token's keys and values round the ranks that share its prompt."""

    def seconds(self, load: StepLoad) -> Array:
        """Seconds from one step to the next."""
        parts, waits = self.parts_s(load), self.host_s(load)
        device, p = np.asarray(sum(parts.values())), self.profile
        prefill = np.asarray(load.prefill_tokens, float) > 0.0
        launched_s, most = self.eager_s, self.deployment.graph_batch or self.profile.graph_batch
        eager = launched_s + p.eager_sequence_s * np.asarray(load.decoding)
        replayed = device * self.lockstep
        decode_s = p_norm(device, eager, SIDE_BY_SIDE) if launched_s else replayed
        if most and not launched_s:
            # A batch beyond the largest captured one is launched kernel by kernel.
            host = (p.eager_layer_s or EAGER_LAYER_S) * self.layers
            beyond = np.asarray(load.decoding, float) / self.deployment.dp > most
            decode_s = np.where(beyond, p_norm(device, host, SIDE_BY_SIDE), replayed)
        floor = max(p.launch_s * self.launches, launched_s)
        launched = np.asarray(load.decoding) + load.prefill_tokens > p.graph_tokens
        shown = np.where(launched | (not self.deployment.graph), floor, 0.0)
        encoders = parts.get("encoders", np.zeros(()))
        slow = device - encoders + (p.prefill_exchange_factor - 1.0) * self._reduces_s(load)
        prompt_s = np.maximum(p.prefill_factor * slow, shown) + p.prefill_step_s + encoders
        prompt_s = prompt_s * self.system.corrections.prefill
        some = np.asarray(load.decoding) + load.prefill_tokens > 0.0
        return np.asarray(np.where(some, np.where(prefill, prompt_s, decode_s) + waits, 0.0))

    @property
    def lockstep(self) -> float:
        """Device time of a decode step of ranks that meet in every layer of experts, over that of one."""
        away = self.wide is not None and self.wide.leaves(self.deployment)
        if not self.tables.mixtures or away:
            return 1.0  # kernels between domains were measured with their waits
        doublings = float(np.log2(self.deployment.dp))
        return 1.0 + (self.profile.lockstep_factor - 1.0) * min(doublings / 3.0, 1.0)

    @property
    def eager_s(self) -> float:
        """Host time of launching a step's kernels; 0 where decode steps are replayed from a graph."""
        p = self.profile
        if p.graph and self.deployment.graph:
            return 0.0
        if p.eager_kernel_s and not p.eager_layer_s:
            return p.eager_kernel_s * module_launches(self.model)
        return (p.eager_layer_s or EAGER_LAYER_S) * self.layers

    def host_s(self, load: StepLoad) -> Array:
        """Host time that every step waits for."""
        p = self.profile
        found = p.host_step_s + p.host_sequence_s * np.asarray(load.decoding, float)
        return np.asarray(found * self.system.corrections.step_overhead)

    def parts_s(self, load: StepLoad) -> dict[str, Array]:
        """Seconds of the kernels and exchanges of a step by what they are of, on the fullest rank."""
        if not halved(self.deployment, self.wide):
            return self._parts_s(load)
        return self._by_turns(load)

    def _by_turns(self, load: StepLoad) -> dict[str, Array]:
        """Parts of a step whose halves compute and communicate by turns.

        Where nothing is chosen, a step runs whole if that is faster.
        """
        whole = self._parts_s(load)
        half = StepLoad(**{f.name: 0.5 * np.asarray(getattr(load, f.name)) for f in fields(load)})
        # A prompt may be cut in two; what a half computes it does with the same weights again.
        part = {name: 2.0 * value for name, value in self._parts_s(half).items()}
        sent = 2.0 * self._sent_s(self._spread(half))
        own = np.asarray(sum(part.values())) - sent
        turns = part | {"exchanges": part["exchanges"] - OVERLAP * np.minimum(sent, own)}
        if self.deployment.tbo:
            return turns
        better = np.asarray(sum(turns.values())) < np.asarray(sum(whole.values()))
        return {name: np.where(better, turns[name], value) for name, value in whole.items()}

    def _spread(self, load: StepLoad) -> "FullestRank":
        """A load as the fullest rank has it."""
        return spread(load, self.deployment, encoder=self.model.encoder is not None)

    def _reduces_s(self, load: StepLoad) -> Array:
        """All-reduces of tensor parallelism in a step."""
        return self.by_tokens(self._spread(load).tokens)(self.tables.exchange_s)

    def _sent_s(self, on: "FullestRank") -> Array:
        """Dispatches and combines of a step."""
        if self.wide is None:
            return np.zeros(())
        own = self.by_tokens(on.tokens)
        prompts, steps = own(self.tables.prompt_dispatch_s), own(self.tables.dispatch_s)
        return np.where(on.prompts > 0.0, prompts, steps)

    def _parts_s(self, load: StepLoad) -> dict[str, Array]:
        """Parts of a step that runs whole."""
        d, tables, p = self.deployment, self.tables, self.profile
        on, ranks = self._spread(load), float(d.dp * d.cp)
        decode, prefill = self._places(on)
        known = self.system.corrections
        own, stage = self.by_tokens(on.tokens), self.by_tokens(on.stage)
        found = {
            "matrices": own(tables.token_s - tables.exchange_s),
            "exchanges": own(tables.exchange_s)
            + self._sent_s(on)
            + self.ring_s * on.prompts * on.new * d.cp,
            "experts": np.zeros(()),
            "attention": decode(tables.decode_s) + prefill(tables.prefill_s),
            "head": self.by_tokens(on.rows)(tables.head_s),
            "gaps": self.gaps_s()
            * known.step_overhead
            * chance_of_any(on.stage, tables.points.tokens),
        }
        if tables.mixtures:
            found["exchanges"] = found["exchanges"] + stage(tables.gather_s)
            found["experts"] = p.expert_factor * stage(tables.experts_s)
        if self.model.encoder is not None:
            found["matrices"] = found["matrices"] + self.by_tokens(on.read)(tables.encoder_s)
        if known is not AS_PREDICTED:
            # Steps with prompts have a factor of their own.
            alone = np.asarray(load.prefill_tokens, float) <= 0.0
            held = np.where(alone, known.decode_weights, 1.0)
            found |= {name: found[name] * held for name in WEIGHTS}
            found["attention"] = found["attention"] * np.where(alone, known.decode_cache, 1.0)
        if d.draft_tokens and d.drafter != "ngram":
            # A draft is one layer and the head, once for each token that it proposes.
            one = self.by_tokens(on.sequences)
            body = one(tables.token_s) + decode(tables.decode_s)
            body = body + p.expert_factor * self.by_tokens(on.sequences * ranks)(tables.experts_s)
            found["draft"] = d.draft_tokens * (body / self.layers + one(tables.head_s))
        if p.encoders:
            found["encoders"] = self.encoder[0] * on.prompts * on.new * d.cp
        found |= option_parts_s(self.model, self.system, d, on.rows, self.layers)
        if d.pp > 1:
            found["stages"] = d.pp * (self.send_s[0] + self.send_s[1] * on.tokens)
        return found

    def joules(self, load: StepLoad) -> Array:
        """Joules of all chips of the instance in one step, waiting included."""
        tables, one = self.tables, replace(self.deployment, dp=1, cp=1)
        on = spread(load, one, encoder=self.model.encoder is not None)
        decode, prefill = self._places(on)
        # Every rank with tokens of its own reads the dense weights for its share of them.
        ranks = float(self.deployment.dp * self.deployment.cp)
        spent = self.by_tokens(on.tokens / ranks)(tables.token_joules)
        spent = spent + self.by_tokens(on.read / ranks)(tables.encoder_joules)
        spent = spent + self.by_tokens(on.stage)(tables.experts_joules)
        spent = spent + self.by_tokens(on.rows)(tables.head_joules)
        spent = spent + decode(tables.decode_joules) + prefill(tables.prefill_joules)
        new = np.asarray(load.prefill_tokens, float)
        spent = spent + self.encoder[1] * new
        base = chip_power(self.system.chip).base_watts * self.deployment.gpus
        # Stages have their part of the sequences each, one after the other; prompts pass them side by side.
        held = self.seconds(load)
        if self.deployment.pp > 1:
            beside = self.seconds(replace(load, prefill_tokens=0.0, past_tokens=0.0, prompts=0.0))
            held = beside + (held - beside) / self.deployment.pp
        return np.asarray(spent + base * held)

    def _places(self, on: "FullestRank") -> tuple[Reader, Reader]:
        """Readers of the tables of decoding sequences and of prompts, where a load is in them."""
        points = self.tables.points
        spots = axis_of(on.sequences, points.sequences), axis_of(on.context, points.contexts)
        prompt = axis_of(on.new, points.lengths), axis_of(on.past, points.pasts)
        steps = axis_of(on.prompts, points.prompts), *prompt
        some = chance_of_any(on.sequences, points.sequences)
        any_new = chance_of_any(on.prompts, points.prompts)
        return (
            lambda table: read(table, spots) * some,
            lambda table: read(table, steps) * any_new,
        )

    def by_tokens(self, tokens: Array) -> Reader:
        """A reader of tables over tokens, at so many; nothing costs nothing."""
        points = self.tables.points.tokens
        place, some = (axis_of(tokens, points),), chance_of_any(tokens, points)
        return lambda table: np.asarray(read(table, place) * some)

    def gaps_s(self) -> float:
        """What the engine's layers, exchanges and mixtures take in every step beyond their kernels."""
        p, d = self.profile, self.deployment
        late = p.exchange_s * np.log2(d.tp) * self.tables.reduces
        selections = SELECTION_S * self.tables.selections
        casts = p.cast_s * self.casts
        gap_s = 0.0 if p.launches_ahead else p.gap_s
        kernels = p.layer_s * self.layers + gap_s * self.launches + casts
        return float(kernels + late + selections)


def kernel_side(profile: EngineProfile) -> EngineProfile:
    """A profile reduced to what the kernels of a step depend on, so that tables are shared."""
    return EngineProfile(
        id="",
        engine=profile.engine,
        since="",
        until="",
        years=(0, 0),
        architectures=(),
        software=profile.software,
        source="",
        fit=Fit(rows=0),
        custom_all_reduce=profile.custom_all_reduce,
        fused=profile.fused,
        shared_heads=profile.shared_heads,
        window_used=profile.window_used,
        experts_software=profile.experts_software,
        experts_others=profile.experts_others,
        gathers_narrow=profile.gathers_narrow,
        passes_apart=profile.passes_apart,
        vector_tokens=profile.vector_tokens,
        core_bytes_per_clock=profile.core_bytes_per_clock,
    )


def step_times(
    model: Model,
    system: System,
    deployment: Deployment,
    profile: EngineProfile,
    points: TablePoints = WHOLE,
) -> StepTimes:
    """An instance with its tables, or one on each system of a batch."""
    kernels = kernel_side(profile)
    layout = replace(
        deployment, max_batch=None, max_tokens=None, memory_fraction=None, accepted=0.0,
        wait_steps=None, stream_interval=1, drafter="mtp", tbo=None, receive_steps=1, decode_steps=1,
        overlap=None, chunked=None, mixed=None, graph_batch=None, adapters=0, offload_gb=0.0,
        adapter_rank=16, adapter_slots=None,
    )  # fmt: skip
    links = links_of(system, layout, kernels)
    near, far = (pipe_s(tokens, model, links) for tokens in (0.0, 1e4))
    return StepTimes(
        model=model,
        system=system,
        deployment=deployment,
        profile=profile,
        tables=tables_of(model, as_predicted(system), layout, kernels, points),
        send_s=(near, (far - near) / 1e4),
        layers=len(model.stack.layers),
        launches=launches_of(model, first_chip(system.chip), layout),
        casts=casts_of(model, first_chip(system.chip), layout),
        wide=wide_experts(system, deployment, profile),
        encoder=encoder_costs(model, as_predicted(system), layout, profile),
        ring_s=ring_s(model, system, layout),
    )


def as_predicted(system: System) -> System:
    """The system without what was measured on it: tables are shared, and corrected where they are read."""
    if system.corrections is AS_PREDICTED:
        return system
    return replace(system, corrections=AS_PREDICTED)


def ring_s(model: Model, system: System, deployment: Deployment) -> Num:
    """Keys and values of a token to all other ranks of its prompt, in 16 bits: (cp - 1) / cp of them."""
    link = system.network.tiers[0]
    rate = link.bandwidth_bytes_per_s * link.efficiency
    token = float(kv_bytes(model, replace(deployment, kv="bf16"), 1.0)) * deployment.pp
    return token * (deployment.cp - 1.0) / deployment.cp / rate
