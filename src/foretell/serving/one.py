"""A step of one load in plain Python: the numbers of steps.py without arrays, a few microseconds each.

For simulators, which ask for one step after the other. A test holds both forms to each other.
"""

from bisect import bisect_right
from dataclasses import dataclass

from foretell.serving.steps import SIDE_BY_SIDE, StepTimes
from foretell.serving.tables import CONTEXTS, LENGTHS, PASTS, PROMPTS, SEQUENCES, TOKENS

_TOKENS, _SEQUENCES, _CONTEXTS = TOKENS.tolist(), SEQUENCES.tolist(), CONTEXTS.tolist()
_PROMPTS, _LENGTHS, _PASTS = PROMPTS.tolist(), LENGTHS.tolist(), PASTS.tolist()


@dataclass(frozen=True, slots=True, kw_only=True)
class OneStep:
    """An instance of an engine as a simulator asks it; made by `one_step`."""

    token: list[float]
    """Seconds of what sees each token, by tokens of a rank."""
    stage: list[float]
    """Seconds of experts and their exchanges, by tokens of the stage."""
    slow: list[float]
    """What experts take longer in steps with prompts, by tokens of the stage."""
    decode: list[list[float]]
    """Attention of decoding, by sequences and contexts."""
    prefill: list[list[list[float]]]
    """Attention of prompts, by prompts, lengths and pasts."""
    head: list[float]
    """Head and sampling, by sequences."""
    encoder: list[float] | None
    """What an encoder takes, by tokens; None where there is none."""
    draft: list[float] | None
    """A draft's layer and head, by sequences; None where nothing is drafted."""
    layers: float
    """Layers, for the attention of a draft."""
    drafted: float
    """Tokens drafted."""
    pp: float
    """Stages."""
    dp: float
    """Ranks with sequences of their own."""
    cp: float
    """Ranks that share a prompt."""
    send: tuple[float, float]
    """Seconds of passing a step's activations on, and of each token in them; none without stages."""
    gaps: float
    """Seconds that every step takes beyond its kernels."""
    host: tuple[float, float]
    """Host seconds of a step, and of each sequence in it."""
    eager: tuple[float, float]
    """Host seconds of launching a step kernel by kernel, and of each sequence; zeros under graphs."""
    prompt: tuple[float, float, float]
    """Factor, floor and extra of steps with prompts."""

    def seconds(
        self,
        decoding: float,
        context_tokens: float,
        prefill_tokens: float = 0.0,
        past_tokens: float = 0.0,
        prompts: float = 0.0,
    ) -> float:
        """Seconds of one step: as `StepTimes.seconds` of the same load."""
        if decoding + prefill_tokens <= 0.0:
            return 0.0
        ranks = self.dp * self.cp
        n = decoding / self.pp
        drawn = n * (1.0 + self.drafted)
        k = max(prompts, 1.0) if prefill_tokens > 0.0 else 0.0
        each = prefill_tokens / k if k else 0.0
        own_k = max(k / self.dp, min(k, 1.0))
        own = max(drawn / ranks, min(drawn, 1.0))
        own_new = own_k * each / self.cp
        stage = drawn + (k if self.encoder else prefill_tokens)
        tokens = own + (own_k if self.encoder else own_new)
        rest = _at(self.token, tokens) + _at(self.head, own + own_k) + self.gaps
        device = rest + _at(self.stage, stage)
        if self.encoder:
            device += _at(self.encoder, own_new)
        sequences = max(n / ranks, min(n, 1.0))
        if sequences > 0.0:
            attention = _read2(self.decode, sequences, context_tokens / decoding)
            device += attention
            if self.draft:
                device += self.drafted * (_at(self.draft, sequences) + attention / self.layers)
        if self.pp > 1.0:
            device += self.pp * (self.send[0] + self.send[1] * tokens)
        host = self.host[0] + self.host[1] * decoding
        if k:
            device += _read3(self.prefill, own_k, each / self.cp, past_tokens / k)
            device += _at(self.slow, stage)
            factor, floor, extra = self.prompt
            return max(factor * device, floor) + extra + host
        eager = self.eager[0] + self.eager[1] * decoding
        if eager > 0.0:
            power = SIDE_BY_SIDE
            device = float((device**power + eager**power) ** (1.0 / power))
        return device + host


def one_step(times: StepTimes) -> OneStep:
    """The tables of an instance as lists."""
    t, p, d = times.tables, times.profile, times.deployment
    experts = p.expert_factor * t.experts_s
    ranks = float(d.dp * d.cp)
    draft = None
    if d.draft_tokens:
        import numpy as np

        shared = np.interp(TOKENS * ranks, TOKENS, experts)
        draft = ((t.token_s + shared) / times.layers + t.head_s).tolist()
    layer_s = times.eager_layer_s
    eager = (layer_s * times.layers, p.eager_sequence_s) if layer_s else (0.0, 0.0)
    floor = max(p.prefill_layer_s, layer_s) * times.layers
    return OneStep(
        token=t.token_s.tolist(),
        stage=(experts + t.gather_s).tolist(),
        slow=((p.prefill_expert_factor - 1.0) * experts).tolist(),
        decode=t.decode_s.tolist(),
        prefill=t.prefill_s.tolist(),
        head=t.head_s.tolist(),
        encoder=t.encoder_s.tolist() if times.model.encoder is not None else None,
        draft=draft,
        layers=float(times.layers),
        drafted=float(d.draft_tokens),
        pp=float(d.pp),
        dp=float(d.dp),
        cp=float(d.cp),
        send=times.send_s,
        gaps=times.gaps_s(),
        host=(p.host_step_s, p.host_sequence_s),
        eager=eager,
        prompt=(p.prefill_factor, floor + p.prefill_mixture_s * t.mixtures, p.prefill_step_s),
    )


def _place(points: list[float], value: float) -> tuple[int, float]:
    """Lower point, and the share of the way to the next; straight on beyond the last."""
    first = points[0]
    value = value if value > first else first
    low = min(bisect_right(points, value) - 1, len(points) - 2)
    return low, (value - points[low]) / (points[low + 1] - points[low])


def _at(table: list[float], tokens: float) -> float:
    """A table over tokens; nothing costs nothing."""
    if tokens <= 0.0:
        return 0.0
    low, share = _place(_TOKENS, tokens)
    return table[low] + share * (table[low + 1] - table[low])


def _read2(table: list[list[float]], sequences: float, context: float) -> float:
    """A table over sequences and contexts."""
    i, u = _place(_SEQUENCES, sequences)
    j, v = _place(_CONTEXTS, context)
    one, two = table[i], table[i + 1]
    first = one[j] + v * (one[j + 1] - one[j])
    return first + u * (two[j] + v * (two[j + 1] - two[j]) - first)


def _read3(table: list[list[list[float]]], prompts: float, length: float, past: float) -> float:
    """A table over prompts, lengths and pasts."""
    i, u = _place(_PROMPTS, prompts)
    j, v = _place(_LENGTHS, length)
    k, w = _place(_PASTS, past)
    sides = []
    for plane in (table[i], table[i + 1]):
        one, two = plane[j], plane[j + 1]
        first = one[k] + w * (one[k + 1] - one[k])
        sides.append(first + v * (two[k] + w * (two[k + 1] - two[k]) - first))
    return sides[0] + u * (sides[1] - sides[0])
