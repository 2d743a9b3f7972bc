"""Families of transformers without a reader, traced from their config classes' defaults in two layers.

`python tools/modules/families.py [FAMILY ...]` prints a line each and how many answer; it needs transformers.
"""

import json
import sys
import tempfile
from pathlib import Path

NEWEST = (
    "afmoe axk1 axk2 bitnet cohere2_moe cwm diffllama dinov3_vit doge embedding_gemma2_text flex_olmo granite_swa "
    "granitemoe hy_v3 hyperclovax inkling_text iquestcoder jais2 kolibri1 laguna lfm3 mellum minicpm3 "
    "mistral_large4_text modernbert muse_spark_text nanochat persimmon vaultgemma youtu"
).split()
"""Thirty of transformers 5.23 that have no reader here."""


def answer(family):
    """One line on a family: its step on one H200, or that it does not fit there."""
    from transformers import CONFIG_MAPPING

    import foretell
    from foretell.api.traced_models import trace_question
    from foretell.specs.questions.tracing import TraceModuleQuestion

    config = CONFIG_MAPPING[family](num_hidden_layers=2)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "config.json"
        file.write_text(json.dumps(config.to_dict(), default=str))
        model = trace_question(TraceModuleQuestion(module=str(file), seq_len=64))
    try:
        found = foretell.estimate(model, gpus="1xH200", plan="precision=bf16")
    except foretell.Infeasible as error:
        found = error.answer
    size = found.allocated_bytes / 2**30
    return f"{found.step_s * 1e3:.1f} ms, {size:.1f} GiB, {len(model.layers)} layers"


def main(families):
    answered = 0
    for family in families:
        try:
            print(f"{family}: {answer(family)}", flush=True)
            answered += 1
        except Exception as error:
            print(f"{family}: {type(error).__name__}: {error}"[:300], flush=True)
    print(f"{answered} of {len(families)} families answer")


if __name__ == "__main__":
    main(sys.argv[1:] or NEWEST)
