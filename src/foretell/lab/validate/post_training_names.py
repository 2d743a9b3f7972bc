"""Published post-training runs: cells as numbers, chips and models as the catalogue names them."""

import math
import re
from collections.abc import Mapping

from foretell.catalog.names import exists, find
from foretell.lab.validate.training_model import UnsupportedRun, find_named_model

Cells = Mapping[str, str]


def number(cells: Cells, name: str) -> float | None:
    """A cell as a number; None where it is none."""
    try:
        return float((cells.get(name) or "").strip())
    except ValueError:
        return None


def whole(cells: Cells, name: str) -> int | None:
    """A cell as a whole number."""
    value = number(cells, name)
    return None if value is None else round(value)


def chip_of(cells: Cells) -> str:
    """The chip's id; UnsupportedRun where none is known."""
    text = (cells.get("chip") or "").strip()
    for part in re.split(r"\s+or\s+|\(|,", text):
        name = part.strip().replace("A800", "A100")
        if name and exists(name, ("chip",)):
            return find(name, ("chip",)).id
        bare = re.sub(r"-?\d+G(?:B|iB)?$", "", name)
        size = re.search(r"(\d+)G", name)
        tries = [f"{bare}-sxm-{size[1]}gb" if size else bare, f"{bare}-sxm", bare]
        for one in tries:
            if one and exists(one, ("chip",)):
                return find(one, ("chip",)).id
    raise UnsupportedRun(f"the chip {text or '(blank)'} is not known")


def model_of(cells: Cells) -> str:
    """The model's id; UnsupportedRun where the catalogue has none like it."""
    text = (cells.get("model") or "").strip()
    short = text.rsplit("/", maxsplit=1)[-1]
    tries = [text, short, re.sub(r"-(Instruct|Chat|hf|Base|it|chat|instruct)\b", "", short)]
    tries += [
        re.sub(r"-(Math|Distill-Qwen|Coder|VL)\b|-(unsloth|bnb-4bit).*", "", one)
        for one in list(tries)
    ]
    tries += [one.replace("Qwen2-", "Qwen2.5-").replace("_", ".") for one in list(tries)]
    tries += [FAMILIES[pattern] for pattern in FAMILIES if re.search(pattern, text, re.IGNORECASE)]
    for one in tries:
        known = find_named_model(one) if one else None
        if known is not None:
            return known
        if one.startswith(("llama:", "gpt:")):
            return one
    near = nearest_size(short)
    if near is None:
        raise UnsupportedRun(f"the catalogue has no model {text or '(blank)'}")
    return near


SIZES = {
    0.5: "qwen2.5-0.5b",
    1.5: "qwen2.5-1.5b",
    3.0: "qwen2.5-3b",
    7.5: "qwen2.5-7b",
    14.0: "qwen2.5-14b",
    32.0: "qwen2.5-32b",
    72.0: "llama-3.1-70b",
}
"""Dense models of usual shapes, by billions of weights, in the place of one that the catalogue does not
have."""


SPARSE = re.compile(r"-A\d+(?:\.\d+)?B|\d+x\d+(?:\.\d+)?B|MoE", re.IGNORECASE)
"""Names of mixtures of experts, which no dense model stands for."""
FAMILY_SIZES = {
    "llama": {1.2: "llama-3.2-1b", 3.2: "llama-3.2-3b", 8.0: "llama-3.1-8b", 13.0: "llama-2-13b",
              70.0: "llama-3.1-70b"},
    "zephyr": {7.2: "mistral-7b"},
    "mistral": {7.2: "mistral-7b"},
}  # fmt: skip
"""Words of a name whose family has models of its own sizes."""


def nearest_size(name: str) -> str | None:
    """The dense model nearest to the size in a name, within a third; None where there is none."""
    found = re.search(r"(\d+(?:\.\d+)?)\s*[bB](?![a-zA-Z])", name)
    if found is None or float(found[1]) <= 0.0 or SPARSE.search(name):
        return None
    size = float(found[1])
    sizes = next((known for word, known in FAMILY_SIZES.items() if word in name.lower()), SIZES)
    best = min(sizes, key=lambda known: abs(math.log(known / size)))
    return sizes[best] if abs(math.log(best / size)) < math.log(4.0 / 3.0) else None


FAMILIES = {
    r"deepseek-llm-7b|deepseek-7b": "llama:layers=30,hidden=4096,heads=32,ffn=11008,vocab=102400",
    r"R1-Distill-Qwen-1\.5B": "qwen2.5-1.5b",
    r"R1-Distill-Qwen-7B": "qwen2.5-7b",
    r"phi-1_5": "gpt:layers=24,hidden=2048,heads=32,ffn=8192,vocab=51200,positions=4096",
    r"phi-2$": "gpt:layers=32,hidden=2560,heads=32,ffn=10240,vocab=51200,positions=4096",
    r"Moonlight-16B": "deepseek-v2-lite",
    r"internlm2-20b": "llama:layers=48,hidden=6144,heads=48,kv_heads=8,ffn=16384,vocab=92544",
    r"SmolLM2-135M": "llama:layers=30,hidden=576,heads=9,kv_heads=3,ffn=1536,vocab=49152",
    r"SmolLM2-360M": "llama:layers=32,hidden=960,heads=15,kv_heads=5,ffn=2560,vocab=49152",
    r"SmolLM2-1\.7B": "llama:layers=24,hidden=2048,heads=32,ffn=8192,vocab=49152",
    r"phi-3(?:\.5)?-mini": "llama:layers=32,hidden=3072,heads=32,ffn=8192,vocab=32064",
    r"stablelm-base-alpha-3b": "gpt:layers=16,hidden=4096,heads=32,ffn=16384,vocab=50432,positions=4096",
    r"TinyLlama": "llama:layers=22,hidden=2048,heads=32,kv_heads=4,ffn=5632,vocab=32000",
    r"falcon-7b": "gpt:layers=32,hidden=4544,heads=71,kv_heads=1,ffn=18176,vocab=65024",
    r"falcon-40b": "gpt:layers=60,hidden=8192,heads=128,kv_heads=8,ffn=32768,vocab=65024",
    r"CodeLlama-34b": "llama:layers=48,hidden=8192,heads=64,kv_heads=8,ffn=22016,vocab=32000",
    r"Llama-2-7b": "llama-2-7b",
    r"Llama-2-13b": "llama-2-13b",
    r"gemma-2b$": "llama:layers=18,hidden=2048,heads=8,kv_heads=1,head_dim=256,ffn=16384,vocab=256000",
    r"gemma-7b$": "llama:layers=28,hidden=3072,heads=16,kv_heads=16,head_dim=256,ffn=24576,vocab=256000",
    r"gemma-2-2b": "gemma-2-2b",
    r"gemma-2-9b": "gemma-2-9b",
    r"Mistral-7B": "mistral-7b",
    r"Qwen3\.5-9B": "qwen3-8b",
}
"""Families of public models that the catalogue has no entry of, typed out from their config.json."""
