"""Layers of each pipeline chunk: Megatron's layouts as our word, and our word as Megatron's.

Et*3|(tt|)*29,m|L      pipeline_model_parallel_layout: E embedding, t a layer, m a prediction layer, L loss
layout=3,2*29,0        the plan's word: layers of chunk 0, 1, ..., where chunk j is on stage j mod pp
"""

import re

from foretell.specs.plan_forms import even_sizes, layout_form, layout_sizes

LONGEST = 20_000
"""Letters of a layout that is written out."""
_GROUP = re.compile(r"\(([^()]*)\)(?:\*(\d{1,5}))?")
_LETTER = re.compile(r"([Etm|Ld])\*(\d{1,5})")


def sizes_of_text(text: str) -> list[int] | None:
    """Layers of each chunk of a layout as Megatron writes it; None where it is none."""
    plain = text.replace(",", "").replace(" ", "").strip("\"'")
    for _ in range(64):
        found = _GROUP.search(plain)
        if found is None:
            break
        many = int(found[2] or 1)
        if len(found[1]) * many > LONGEST:
            return None
        plain = plain[: found.start()] + found[1] * many + plain[found.end() :]
    if any(int(n) > LONGEST for _, n in _LETTER.findall(plain)):
        return None
    plain = _LETTER.sub(lambda one: one[1] * int(one[2]), plain)
    if len(plain) > LONGEST or set(plain) - set("EtmL|d"):
        return None
    return [chunk.count("t") for chunk in plain.split("|")]


def plan_word(sizes: list[int]) -> str | None:
    """Sizes as the plan's word; None where a plan without the word deals them so."""
    return None if tuple(sizes) == even_sizes(sum(sizes), len(sizes)) else word_of(sizes)


def word_of(sizes: list[int]) -> str:
    """Sizes as the plan's word: runs of equal numbers joined."""
    return layout_form(",".join(map(str, sizes))) or ""


def megatron_text(word: str) -> str:
    """The plan's word as Megatron writes it: embedding before the first layer, loss after the last."""
    chunks = ["t" * size for size in layout_sizes(word)]
    chunks[0], chunks[-1] = "E" + chunks[0], chunks[-1] + "L"
    runs: list[tuple[str, int]] = []
    for chunk in chunks:
        if runs and runs[-1][0] == chunk:
            runs[-1] = (chunk, runs[-1][1] + 1)
        else:
            runs.append((chunk, 1))
    parts = []
    for at, (chunk, many) in enumerate(runs):
        short = _short(chunk)
        last = at == len(runs) - 1
        if many == 1:
            parts.append(short + ("" if last else "|"))
        elif last:
            parts.append(f"({short}|)*{many - 1}{short}")
        else:
            parts.append(f"({short}|)*{many}")
    return "".join(parts)


def _short(chunk: str) -> str:
    """`tttt` as t*4."""
    return re.sub(r"t{3,}", lambda one: f"t*{len(one[0])}", chunk)


def uneven_sizes(
    layers: int, pp: int, vpp: int, ends: tuple[int | None, int | None], counted: tuple[bool, bool]
) -> list[int] | None:
    """Layers of each chunk where the first and last stage have numbers of their own, or where embedding and
    loss each count as a layer; None where Megatron would refuse it."""
    first, last = ends
    if first is None and last is None:
        chunks = pp * vpp
        whole, rest = divmod(layers + sum(counted), chunks)
        if rest:
            return None
        sizes = [whole] * chunks
        sizes[0] -= counted[0]
        sizes[-1] -= counted[1]
        return sizes
    inner = pp - (first is not None) - (last is not None)
    left = layers - (first or 0) - (last or 0)
    if (inner and left % inner) or left < 0 or (not inner and left):
        return None
    each = left // inner if inner else 0
    stages = [*([first] if first is not None else []), *[each] * inner]
    stages += [last] if last is not None else []
    if any(size % vpp for size in stages):
        return None
    return [size // vpp for _ in range(vpp) for size in stages]
