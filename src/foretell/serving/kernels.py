"""Kernels as engines run them in a step: seconds and joules of lists of operations.

The same surfaces as everywhere (kernels/families), less what only a table of single kernels has: keys that a
repeated kernel finds in the cache, casts that are launched by themselves.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from foretell.kernels.call_records import CallStack
from foretell.kernels.calls import call_stacks
from foretell.kernels.families.base import DTYPES, attainable, engine_of
from foretell.kernels.families.choose import FamilyCoefficients, catalogue_surfaces, choose
from foretell.kernels.families.experts import LAUNCHES, experts_seconds
from foretell.kernels.families.transfer import SAME_UNITS
from foretell.kernels.fusion import passes
from foretell.kernels.power import BITS, OpLoad, clock_share, core_joules, memory_joules
from foretell.records import dataclass
from foretell.serving.formats import attention_format, is_narrow, kernel_format
from foretell.serving.kernel_costs import (
    PASSES,
    UNTUNED,
    KernelCost,
    PowerLimitedCost,
    is_latent,
    limit_power,
    narrow_product,
    nothing,
    usual_chip,
    usual_power,
)
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.chip import Chip, Surface
from foretell.specs.deployment import KV_BYTES, Deployment
from foretell.specs.engine import EngineProfile
from foretell.specs.system import repeat_chips
from foretell.workload.ops import Op
from foretell.workload.roles import Region

FUSED_PASSES = 3.0
"""Most passes over an expert's rows: permutation, activation and cast, combination. Tables of blocks of 8
bits have up to 16, casts and copies as kernels of their own; served prompts of DeepSeek-R1 take a third of
that (TensorRT-LLM on H200: 447 ms for 8192 tokens), and so do wide deployments
(lmsys.org/blog/2025-05-05)."""


PRODUCTS = ("matrix_share", "tile_power", "fill_k", "tile_rows")
"""Coefficients of the products of a layer of experts, which are those of the kernel that multiplies."""


VECTORS_MEMORY = 0.88
"""Share of the bandwidth at which products of a matrix with single vectors read weights where cores do not
limit them: llama.cpp's mul_mat_vec takes 0.85 to 0.94 of an RTX A6000's and an RTX 4080's."""


ALL_HEADS = 1e9
"""Query heads of an indexer that a block takes at once: scores are a kernel of its own, which multiplies all
heads of a sequence by a tile of keys (DeepGEMM: fp8_paged_mqa_logits), whatever attention's kernels pack."""


DECODE_SHARE = 0.6
"""Share of the matrix peak that attention of single queries reaches."""


SCAN_SHARE, VECTOR_SHARE = 0.45, 0.5
"""Shares of the matrix and plain peaks that recurrences in chunked form reach."""


CAST_BYTES, SCORE_BYTES, PASS_SHARE = 6.0, 20.0, 0.8
"""Bytes of casting an activation between fp32 and 16 bits, of writing a score in fp32, scaling, masking and
normalising it in a pass and reading it again (ggml-cuda.cu: ggml_cuda_op_mul_mat_cublas, softmax.cu;
recalled), and the share of the bandwidth of such passes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """A chip under an engine, in a deployment's formats."""

    chip: Chip
    """The chip."""
    deployment: Deployment
    """Formats."""
    profile: EngineProfile
    """The engine."""
    narrow: bool = False
    """Whether the later dense products are as narrow as the experts (serving/formats.py)."""
    systems: int = 1
    """Systems of a batch, of which the chip's numbers are arrays."""

    def along(self, *points: Array) -> tuple["Kernels", tuple[Array, ...]]:
        """Points of a table, each once for every system, and the kernels with as many chips."""
        if self.systems == 1:
            return self, points
        chips = repeat_chips(self.chip, len(points[0]))
        own = replace(self, chip=chips, systems=1)
        return own, tuple(np.repeat(one, self.systems) for one in points)

    def chosen(self, family: str, dtype: str) -> FamilyCoefficients:
        """Coefficients of a family as a step meets them."""
        software = self._software(family)
        found = choose(self.chip, family, dtype, software, self._surfaces(family, dtype))
        if family == "gemm" and DTYPES[dtype].quantised:
            plain = choose(self.chip, family, "bf16", self.profile.software).record
            untuned = any(s.software in UNTUNED for s in found.surfaces)
            return replace(found, record=narrow_product(dtype, found.record, plain, untuned))
        if family in ("decode", "mla-decode"):
            # Other layers' weights pass between: nothing of the keys is left in the cache.
            return replace(found, record=replace(found.record, cached=0.0))
        if family == "experts":
            # A graph's routing kernel leaves out the experts of other ranks as it goes.
            fewer = np.minimum(found.record.row_passes, FUSED_PASSES)
            record = replace(found.record, mask_s=0.0, row_passes=fewer)
            return replace(found, record=self._by_marlin(record) if self._widens(dtype) else record)
        return found

    def _software(self, family: str) -> tuple[str, ...]:
        """Whose tables a family's kernels run by, the nearest first."""
        before = self.profile.experts_software if family == "experts" else ()
        return (*before, *self.profile.software)

    def _widens(self, dtype: str) -> bool:
        """Whether experts' weights of 4 bits are widened inside vLLM's kernel for them, Marlin."""
        nvidia = self.chip.vendor == "NVIDIA"
        return dtype.startswith("w4a16") and self.profile.engine == "vllm" and nvidia

    def _by_marlin(self, record: Any) -> Any:
        """Experts whose products are Marlin's: its tables are those of 4-bit integers. The tables of mxfp4
        were taken with Triton's kernel, which vLLM 0.11 to 0.18 does not choose on Hopper."""
        mine = self._surfaces("experts", "int4")
        own = choose(self.chip, "experts", "int4", self.profile.software, mine).record
        return replace(record, **{name: getattr(own, name) for name in PRODUCTS})

    def _surfaces(self, family: str, dtype: str) -> list[Surface] | None:
        """Surfaces to choose from; None: all of them.

        A fused layer of experts is an engine's own code: its times on another generation of chips tell
        more than another engine's on this one.
        """
        first = self._software(family)[0]
        if family != "experts" or self.chip.kernels:
            return None
        known = catalogue_surfaces()
        own = [s for s in known if (s.family, s.dtype, s.software) == (family, dtype, first)]
        apart = [s for s in known if s.family == family and s.architecture in SAME_UNITS]
        return [*own, *apart] if own else None

    def cost(
        self, ops: Sequence[Op], counts: Sequence[float], width: int, phase: str = "token"
    ) -> KernelCost:
        """All operations, each `counts` times; `phase` tells which attention kernels run."""
        if self.narrow:
            own = replace(self, narrow=False)
            later = replace(own, deployment=replace(own.deployment, weights=own.deployment.experts))
            total = nothing(width)
            for kernels, kind in ((own, False), (later, True)):
                mine = [i for i, op in enumerate(ops) if is_narrow(op) is kind]
                total = total + kernels.cost(
                    [ops[i] for i in mine], [counts[i] for i in mine], width, phase
                )
            return total
        total = nothing(width)
        if not ops:
            return total
        many = np.array(counts)[:, None]
        for stack in call_stacks(ops, width, lambda op: 0):
            each = self._stack(stack, ops, phase).times(many[stack.rows])
            total = total + KernelCost(
                **{f.name: getattr(each, f.name).sum(axis=0) for f in fields(each)}
            )
        return total

    def _stack(self, stack: CallStack, ops: Sequence[Op], phase: str) -> KernelCost:
        """Each call of a stack; (calls, points)."""
        family, sizes = stack.family, dict(stack.sizes)
        if family == "gemm":
            dtype = self._product_format(stack, ops)
        elif family == "prefill":
            dtype = attention_format(self.deployment, self.chip, self.profile.engine, phase)
        else:
            dtype = "bf16"
        if family == "prefill":
            return self._attention(stack, [ops[i] for i in stack.rows], dtype, phase)
        moved = 2.0 * stack.activation_elements
        moved = moved + stack.weight_elements * (
            DTYPES[dtype].weight_bytes if family == "gemm" else 2.0
        )
        if family == "gemm":
            found = self.chosen("gemm", dtype)
            engine = self.engine(found, dtype)
            seconds = found.family.seconds(sizes, found.record, engine)
            arithmetic = stack.matrix_flop / (found.record.compute * engine.flop_per_s)
            seconds = self._by_cores(stack, seconds, dtype)
        else:
            found = self.chosen("pointwise", "bf16")
            engine = self.engine(found, "bf16")
            told = [self.passes(kind) for kind, _ in stack.kinds]
            factor = np.array([t[0] for t in told])[:, None]
            launched = np.array([t[1] for t in told])[:, None]
            moved = moved * factor
            half = 0.5 * moved
            dims = {
                "bytes_read": half, "bytes_written": half,
                "flop": stack.vector_flop, "kernels": launched,
            }  # fmt: skip
            seconds = found.family.seconds(dims, found.record, engine)
            arithmetic = stack.matrix_flop / (SCAN_SHARE * engine.flop_per_s)
            arithmetic = arithmetic + stack.vector_flop / (VECTOR_SHARE * engine.vector_flop_per_s)
            if family == "scan":
                seconds = np.maximum(seconds, arithmetic)
        some = stack.matrix_flop + stack.vector_flop + moved > 0.0
        seconds = np.where(some, seconds, 0.0)
        return self.spent(seconds, arithmetic, (stack.matrix_flop, stack.vector_flop), moved, dtype)

    def _product_format(self, stack: CallStack, ops: Sequence[Op]) -> str:
        """Format of a product: the deployment's of linear maps, else 16 bits; llama.cpp keeps the scores of
        narrower checkpoints in 6 to 8 (llama-quant.cpp: output.weight is Q6_K)."""
        own = kernel_format(self.deployment.weights, self.chip)
        head = any(ops[i].region is Region.HEAD for i in stack.rows)
        if stack.linear or not (head and self.profile.engine == "llamacpp"):
            return own if stack.linear else "bf16"
        return "int8" if DTYPES[own].weight_bytes < 1.0 else own

    def _by_cores(self, stack: CallStack, seconds: Array, dtype: str) -> Array:
        """Seconds of products by kernels that cores, or passes of their own, limit."""
        p, sizes = self.profile, dict(stack.sizes)
        stored = DTYPES[dtype].weight_bytes
        if p.passes_apart and self.chip.vendor != "Apple":
            few = sizes["m"] <= p.vector_tokens
            rate = VECTORS_MEMORY * np.asarray(self.chip.memory_bandwidth_bytes_per_s)
            seconds = np.where(few, stack.weight_elements * stored / rate, seconds)
        seconds = self._limited(seconds, stack.weight_elements * stored)
        if not p.passes_apart or self.chip.vendor == "Apple":
            return seconds
        widened = stack.weight_elements * (stored + 2.0) * (stored < 2.0)
        cast = CAST_BYTES * sizes["m"] * (sizes["k"] + sizes["n"])
        many = sizes["m"] > p.vector_tokens
        return np.asarray(seconds + np.where(many, self._passed_s(widened + cast), 0.0))

    def _vector_experts(self, width: Array, sizes: dict[str, Array], dtype: str) -> Array:
        """Seconds of experts as products of matrices with single vectors, those of all rows side by side:
        no row is filled up to a tile (llama.cpp: mul_mat_vec_q with ids, kernel_mul_mv_id)."""
        found = self.chosen("gemm", kernel_format(self.deployment.weights, self.chip))
        engine = engine_of(self.chip, dtype)
        if found.foreign:
            engine = attainable(engine, self.chip, found.kin)
        one, hidden = np.ones_like(width), sizes["hidden"]
        total = np.zeros_like(width)
        for n, k in (((1.0 + sizes["gated"]) * width, hidden), (hidden, width)):
            dims = {"batch": one, "m": one, "n": n, "k": k}
            each = found.family.seconds(dims, found.record, engine)
            total = total + self._limited(each, n * k * DTYPES[dtype].weight_bytes)
        return total

    def _limited(self, seconds: Array, weight_bytes: Array) -> Array:
        """Seconds of products whose weights pass the cores as fast as these widen them."""
        chip, rate = self.chip, self.profile.core_bytes_per_clock
        clocks = np.asarray(chip.cores, float) * np.asarray(chip.clock_hz, float)
        if not rate or not np.all(clocks > 0.0):
            return seconds
        return np.asarray(np.maximum(seconds, weight_bytes / (rate * clocks)))

    def _passed_s(self, moved: Array) -> Array:
        """Seconds of a plain pass over memory."""
        return np.asarray(moved / (PASS_SHARE * self.chip.memory_bandwidth_bytes_per_s))

    def _attention(self, stack: CallStack, ops: Sequence[Op], dtype: str, phase: str) -> KernelCost:
        """Attention by the kernels of its phase; latents by theirs."""
        latent = np.array([is_latent(op) for op in ops])
        indexer = np.array([op.region is Region.INDEXER for op in ops])
        sizes = dict(stack.sizes)
        sizes["kv_bytes"] = np.full_like(sizes["batch"], KV_BYTES[self.deployment.kv])
        shared = self.profile.shared_heads
        if phase == "decode" and shared < 1.0:
            heads, own = sizes["heads"], sizes["kv_heads"]
            sizes["kv_heads"] = heads * (own / np.maximum(heads, 1.0)) ** shared
        seconds, arithmetic = np.zeros_like(stack.matrix_flop), np.zeros_like(stack.matrix_flop)
        kernels = (
            ("mla-" + phase, latent),
            (phase, indexer),
            (phase, ~(latent | indexer)),
        )
        for name, rows in kernels:
            if not rows.any():
                continue
            found = self.chosen(name, dtype)
            if phase == "decode" and rows is indexer:
                found = replace(found, record=replace(found.record, max_group=ALL_HEADS))
            engine = self.engine(found, dtype)
            part = {key: value[rows] for key, value in sizes.items()}
            seconds[rows] = found.family.seconds(part, found.record, engine)
            if phase == "decode":
                arithmetic[rows] = stack.matrix_flop[rows] / (DECODE_SHARE * engine.flop_per_s)
            else:
                arithmetic[rows] = np.maximum(seconds[rows] - found.record.launch_s, 0.0)
        if phase == "prefill" and self.profile.passes_apart and self.chip.vendor != "Apple":
            scores = sizes["batch"] * sizes["heads"] * sizes["q_len"] * sizes["kv_len"]
            seconds = seconds + self._passed_s(SCORE_BYTES * scores)
        kv = sizes["batch"] * sizes["kv_heads"] * sizes["kv_len"] * sizes["kv_bytes"]
        kv = kv * np.where(latent[:, None], sizes["qk_dim"], sizes["qk_dim"] + sizes["v_dim"])
        queries = sizes["batch"] * sizes["heads"] * sizes["q_len"]
        moved = kv + 2.0 * queries * (sizes["qk_dim"] + sizes["v_dim"])
        return self.spent(seconds, arithmetic, (stack.matrix_flop, stack.vector_flop), moved, dtype)

    def passes(self, kind: str) -> tuple[float, float]:
        """Traffic over the least, and launches, of a pass over memory."""
        if self.profile.fused:
            return PASSES.get(kind, PASSES["other"])
        plain = passes(kind, fused=False)
        return plain.forward, plain.kernels

    def engine(self, found: FamilyCoefficients, dtype: str) -> Any:
        """The chip as kernels of a dtype see it."""
        engine = engine_of(self.chip, dtype)
        return attainable(engine, self.chip, found.kin) if found.foreign else engine

    def spent(
        self, seconds: Array, arithmetic_s: Num, flop: tuple[Num, Num], moved_bytes: Num, dtype: str
    ) -> KernelCost:
        """What operations of some seconds take; `flop` of matrix products and of the vector units."""
        power = usual_power(self.chip)
        load = OpLoad(
            seconds=seconds,
            clock_share=clock_share(arithmetic_s, seconds),
            matrix_flop=flop[0],
            bits=BITS[DTYPES[dtype].peak],
            vector_flop=flop[1],
            memory_bytes=moved_bytes,
        )
        core = core_joules(load, power.coefficients)
        memory = memory_joules(load, power.coefficients)
        most = np.maximum(np.asarray(power.limit_watts - power.base_watts) * seconds, 0.0)
        return KernelCost(
            seconds=seconds,
            joules=np.asarray(np.minimum(core + memory, most)),
            clocked_s=seconds * load.clock_share,
            core_joules=core,
            memory_joules=memory,
        )

    def held(self, cost: KernelCost, waiting_s: Num = 0.0) -> PowerLimitedCost:
        """Operations that follow each other under the chip's own limit, which may not be the usual one.

        Tables of kernels were taken under the usual limit; what another one makes of times and joules is
        the quotient of two solutions of the same equation (kernels/power.py), 1 where the limit is as it was.
        `waiting_s` is what the chip waits for others between.
        """
        usual = usual_power(self.chip)
        share = usual.limit_watts / np.maximum(self._usual_watts(), 1e-9)
        own = replace(usual, limit_watts=share * np.asarray(self.chip.tdp_watts, float))
        (before_s, before_j), (after_s, after_j) = (
            limit_power(cost, waiting_s, power) for power in (usual, own)
        )
        return PowerLimitedCost(
            seconds=cost.seconds * after_s / np.maximum(before_s, 1e-30),
            joules=cost.joules * after_j / np.maximum(before_j, 1e-30),
        )

    def _usual_watts(self) -> Num:
        return usual_chip(self.chip).tdp_watts

    def experts(self, dims: dict[str, Num], width: int) -> KernelCost:
        """One layer of routed experts on the most loaded rank, by the fastest kernels that the engine has."""
        dtype = kernel_format(self.deployment.experts, self.chip, experts=True)
        found = self._experts(dims, width, dtype)
        for software in self.profile.experts_others:
            here = ("experts", dtype, software, self.chip.architecture)
            known = ((s.family, s.dtype, s.software, s.architecture) for s in catalogue_surfaces())
            if here in known:
                one = replace(self.profile, experts_software=(software,), experts_others=())
                found = found.or_faster(replace(self, profile=one)._experts(dims, width, dtype))
        return found

    def _experts(self, dims: dict[str, Num], width: int, dtype: str) -> KernelCost:
        """One layer of routed experts by the nearest software's kernels."""
        found = self.chosen("experts", dtype)
        engine = self.engine(found, dtype)
        sizes = {name: np.broadcast_to(np.asarray(v, float), (width,)) for name, v in dims.items()}
        seconds = experts_seconds(sizes, found.record, engine)
        rows = sizes["tokens"] * sizes["top_k"] / sizes["ep"]
        inner = sizes["inter"] / sizes["tp"]
        few = sizes["tokens"] <= self.profile.vector_tokens
        if few.any():
            vectors = self._vector_experts(rows * inner, sizes, dtype)
            vectors = vectors + found.record.launch_s * (1.0 - 2.0 / LAUNCHES)
            seconds = np.where(few, np.minimum(seconds, vectors), seconds)
        weights = 3.0 * sizes["hidden"] * inner
        local = sizes["experts"] / sizes["ep"]
        moved = np.minimum(local, rows) * weights * DTYPES[dtype].weight_bytes
        moved = moved + 2.0 * rows * (2.0 * sizes["hidden"] + 3.0 * inner)
        work = 2.0 * rows * weights
        arithmetic = work / (found.record.matrix_share * engine.flop_per_s)
        return self.spent(seconds, arithmetic, (work, 0.0), moved, dtype)
