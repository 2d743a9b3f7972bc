"""What is typed for a post-training step in the words of frameworks and papers, in this project's words.

Placements, mechanisms, packings, offloads, algorithms and frameworks have many names; one that is read as
another is stated. A typing error keeps its message with the nearest name.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import replace

from foretell.catalog.post_training import loop_names, recognise_loop
from foretell.specs.plan import named_fields
from foretell.specs.post_training import algorithm_in, find_algorithm
from foretell.specs.questions.post_training import PostTrainingQuestion

PLACEMENTS: Mapping[str, str] = {
    "best": r"best|auto$",
    "async": r"async|off.?policy|one.?step|stream",
    "split": r"split|disagg|separat|decoupl|dedicated|standalone|two pools",
    "colocated": r"co.?locat|hybrid|shared|same (?:gpu|chip)|train.?only",
}
"""Placement -> how others name it; the first that is found counts."""
SYNCS: Mapping[str, str] = {
    "delta": r"delta|changed|sparse",
    "p2p": r"checkpoint.?engine(?! off)|p2p|rdma|ddma|nixl|peer|mooncake",
    "file": r"\bfile|disk|object store|\bs3\b|filesystem|nfs",
    "ipc": r"\bipc|colocat|^tensor$",
    "broadcast": r"broadcast|nccl|gloo|hccl|distributed|checkpoint engine off",
}
"""Mechanism -> how others name it."""
PACKINGS: Mapping[str, str] = {
    "packed": r"(?:true|on|yes|pack.*|remove.?padding|padding.?free|thd|neat.*)$",
    "batch": r"(?:false|off|no|none|longest|dynamic.*)$",
    "padded": r"(?:max.?length|pad.*)$",
    "grouped": r"(?:group.*|bucket.*|sort.*)$",
}
"""Packing -> how others name it."""
OFFLOADS: Mapping[str, str] = {
    "weights": r"weight|param|model",
    "optimizer": r"optim|states",
    "reference": r"\bref",
}
"""What lives on the host -> how others name it."""
EVERYTHING = r"\b(?:all|both|cpu|host|true|on|yes)\b"
"""Words for what a trainer has, weights and states, where no part is named."""
METHODS: Mapping[str, str] = {
    r"adalora": "adalora", r"dora": "dora", r"lokr": "lokr", r"loha": "loha", r"boft": "boft",
    r"oft": "oft", r"vera": "vera", r"\(?ia\^?\)?3": "ia3", r"prefix[ _-]?tuning": "prefix",
    r"p-?tuning[ _-]?v2": "prefix", r"prompt[_ -]tuning": "prompt", r"p-?tuning": "prompt",
    r"ln[_ -]tuning": "norms", r"bitfit": "norms", r"adapter[ _-]?v2": "ia3", r"adapter": "llama-adapter",
}  # fmt: skip
"""Names of methods that train a few weights -> the plan's words; LLaMA-Adapter v2 scales all results."""
LORA = re.compile(r"(?<![a-z])(?:q-?|rs|long|pi[sz]sa-?)?lora(?![a-z])|\bpeft\b")
"""Adapters of low rank by any of their names."""
ADAPTER_RANK = 8
"""Rank of adapters where none is stated: PEFT's."""


def first_word(text: str, names: Mapping[str, str]) -> str | None:
    """The first of our words whose other names a text has."""
    return next((word for word, hints in names.items() if re.search(hints, text.lower())), None)


def parts_on_host(text: str) -> str | None:
    """The parts that a text says live on the host, joined by +; None where it says nothing."""
    if re.fullmatch(r"(?:none|no|off|false)", text.strip().lower()):
        return "none"
    found = [word for word, hints in OFFLOADS.items() if re.search(hints, text.lower())]
    if not found and re.search(EVERYTHING, text.lower()):
        return "weights+optimizer"
    return "+".join(found[-1:] if text.lower().startswith("ref") else found) or None


def tuned_method(text: str) -> str:
    """The plan's word of the method that trains a few weights; empty: LoRA, or none."""
    for name, word in METHODS.items():
        if re.search(rf"(?<![a-z]){name}(?![a-z])", text.lower()):
            return word
    return ""


def base_format(text: str) -> str:
    """The format of frozen weights that a text names; empty where it names none."""
    text = text.lower()
    formats = {
        "int4": r"gptq|awq|int-?4", "fp8": r"int-?8|8[ -]?bit|llm\.int8|fp8",
        "nf4-dq": r"(?:nf4|4[ -]?bit|qlora|bnb).*(?:dq|double)", "nf4": r"nf4|4[ -]?bit|qlora|bnb|fp4",
    }  # fmt: skip
    return first_word(text, formats) or ""


def plan_of_words(text: str) -> str:
    """Adapters and frozen weights that an algorithm's name says, in words of a plan: QLoRA, DoRA SFT."""
    plain = text.strip().lower()
    method = plain if plain in METHODS.values() else tuned_method(text)
    stored = base_format(text)
    if not (method or stored or LORA.search(text.lower())):
        return ""
    rank = re.search(r"(?:rank|r)[ =:-]?(\d+)", text.lower())
    words = [f"lora={rank[1] if rank else ADAPTER_RANK}"]
    words += [f"method={method}"] if method else []
    return " ".join([*words, *([f"weights={stored}"] if stored else [])])


def algorithm_word(text: str) -> str | None:
    """Our name of the algorithm that a text names, fine-tuning where it names its method; None: unknown."""
    form = find_algorithm(text) or algorithm_in(text)
    if form is not None:
        return form.id
    return "sft" if plan_of_words(text) or "tun" in text.lower() else None


def in_our_words(question: PostTrainingQuestion, said: list[str]) -> PostTrainingQuestion:
    """The question in this project's words; what was read as another word is stated."""
    found: dict[str, str | None] = {
        "placement": _ours(question.placement, PLACEMENTS),
        "sync": question.sync and _ours(question.sync, SYNCS),
        "packing": question.packing
        if question.packing == "auto"
        else _ours(question.packing, PACKINGS),
        "offload": question.offload and (parts_on_host(question.offload) or question.offload),
        "framework": loop_word(question.framework),
        "algorithm": algorithm_word(question.algorithm) or question.algorithm,
    }
    for name, word in found.items():
        given = getattr(question, name)
        if word != given and _plain(given) != _plain(word):
            said.append(f"{name} {given}: read as {word}")
    return with_adapters(replace(question, **found), question.algorithm, said)  # type: ignore[arg-type]


def with_adapters(
    question: PostTrainingQuestion, algorithm: str, said: list[str]
) -> PostTrainingQuestion:
    """With the adapters that the algorithm's name or the format of frozen weights asks for."""
    given = question.plan
    if not (given is None or isinstance(given, str)):
        return question
    text = given or ""
    told = {} if find_algorithm(algorithm) else _words_by_field(plan_of_words(algorithm))
    if re.search(r"(?:^| )weights=(?:nf4|int4)", text):
        told |= {"lora": f"lora={ADAPTER_RANK}"}
    open_words = [word for field, word in told.items() if field not in named_fields(text)]
    if not open_words:
        return question
    said.append(f"the plan has {' '.join(open_words)}: frozen weights are trained by adapters")
    return replace(question, plan=" ".join([text, *open_words]).strip())


def _words_by_field(words: str) -> dict[str, str]:
    return {word.partition("=")[0]: word for word in words.split()}


def loop_word(text: str) -> str:
    """The loop that a framework's name means, its release kept; a misspelt one stays as it is."""
    name, _, release = text.partition("@")
    if name.lower() in loop_names():
        return text
    known = recognise_loop(name)
    if known == "generic" and difflib.get_close_matches(name.lower(), loop_names(), n=1):
        return text
    return f"{known}@{release}" if release else known


def _ours(text: str, names: Mapping[str, str]) -> str:
    """Our word for a text: itself where it is one, or where none is found in it."""
    return text if text in names else first_word(text, names) or text


def _plain(text: str | None) -> str:
    return re.sub(r"[^a-z0-9+]", "", (text or "").lower())
