"""What the public benchmark's scripts launched beside what its rows tell: for fits alone.

A fit has to know what ran, or its overheads would stand for a script's settings. A score must not: a row's
blanks are filled as a user's are (serving_arguments.py), so that a typed command has the same answer.

The settings are those of github.com/SemiAnalysisAI/InferenceX, benchmarks: of Llama-3.1-70B, gpt-oss-120b and
DeepSeek-R1 on B200 and H200, autumn 2025 to spring 2026.
"""

import math

from foretell.lab.calibrate.serving_cases import ServingCase

SHORT, MANY_RANKS, BATCH_WAIT = 1024.0, 8, 20.0
"""Lengths and degree for which the scripts of dense models under TensorRT-LLM let prompts wait for each other
(batch_wait_timeout_iters), and for how many steps."""
DENSE_TOKENS, MIXTURE_TOKENS = 16384, 20000
"""max_num_tokens of TensorRT-LLM for dense models, and for mixtures."""
ONE_PROMPT, BLOCK_TOKENS = ("deepseek_v3", "deepseek_v32"), 64
"""Families whose scripts for TensorRT-LLM set max_num_tokens to one prompt and a token of each sequence, and
the blocks that it is rounded to."""
CHUNK_TOKENS = 32768
"""chunked_prefill_size of SGLang."""
SCRIPTS = "InferenceX"
"""How sources of such rows name the benchmark."""


def as_launched(case: ServingCase) -> ServingCase:
    """A row as the benchmark ran it; unchanged where it is of another source."""
    if case.row.kind != "online_concurrency" or case.prefill is not None:
        return case
    if SCRIPTS not in case.row.source and not case.row.run:
        return case
    return case.with_deployment(max_tokens=script_tokens(case), wait_steps=script_wait(case))


def script_wait(case: ServingCase) -> float | None:
    """Steps that prompts wait for each other; None: as the engine does."""
    row, d = case.row, case.deployment
    short = row.isl == SHORT and row.osl == SHORT
    dense = case.profile.engine == "trtllm" and not case.mixture
    return BATCH_WAIT if dense and short and d.tp < MANY_RANKS else None


def script_tokens(case: ServingCase) -> int | None:
    """Tokens of a step; None: as the engine allows."""
    row = case.row
    if case.profile.engine == "sglang":
        return CHUNK_TOKENS
    if case.profile.engine != "trtllm":
        return None
    if case.model.family not in ONE_PROMPT:
        return MIXTURE_TOKENS if case.mixture else DENSE_TOKENS
    if row.batch is None or row.isl is None:
        return None
    tokens = (case.deployment.draft_tokens + 1) * row.batch + row.isl + BLOCK_TOKENS
    return math.ceil(tokens / BLOCK_TOKENS) * BLOCK_TOKENS
