"""Layers of each pipeline chunk, and those that are recomputed.

Megatron's layouts of stages as our word, and our word as Megatron's:

Et*3|(tt|)*29,m|L      pipeline_model_parallel_layout: E embedding, t a layer, m a prediction layer, L loss
layout=3,2*29,0        the plan's word: layers of chunk 0, 1, ..., where chunk j is on stage j mod pp
"""

import re
from math import ceil

from foretell.interop.keys import Keys
from foretell.interop.tool_tables import ToolTable, table_of
from foretell.interop.whole_numbers import whole_number
from foretell.specs.plan_forms import MODULES, even_sizes, join_names, layout_form, layout_sizes

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


def read_stages(
    keys: Keys, table: ToolTable, pp: int, layers: int | None
) -> tuple[int | None, str | None]:
    """Virtual stages of a rank, and layers of each chunk where they are stated."""
    if pp == 1:
        return None, None
    text = keys.text("layout")
    if text:
        sizes = sizes_of_text(text)
        if sizes is None or len(sizes) % pp:
            keys.problem("layout", f"is no layout of a multiple of {pp} stages", text)
            return 1, None
        return len(sizes) // pp, plan_word(sizes)
    vpp = _chunks(keys, table, pp, layers)
    ends = keys.whole("first_layers"), keys.whole("last_layers")
    counted = bool(keys.flag("embedding_counts")), bool(keys.flag("loss_counts"))
    less = keys.whole("first_less", low=0), keys.whole("last_less", low=0)
    if not any(counted) and ends == (None, None) and less == (None, None):
        return vpp, None
    if layers is None:
        if less == (None, None):
            keys.doubt("the layers of the first and last stage need the number of layers")
        return vpp, None
    sizes = uneven_sizes(layers, pp, vpp, ends, counted)
    if less != (None, None):
        # Fewer layers of the first and last stage (torchtitan, generate_llm_fqn_per_model_part): what does
        # not divide goes to the earlier stages.
        if keys.text("schedule") not in ("1f1b", "gpipe"):
            return vpp, None
        first, last = less[0] or 0, less[1] or 0
        whole, rest = divmod(layers + first + last, pp * vpp)
        sizes = [whole + (at < rest) for at in range(pp * vpp)]
        sizes[0] -= first
        sizes[-1] -= last
    if sizes is None or min(sizes) < 0:
        keys.problem("pp", f"{layers} layers cannot be dealt to {pp} x {vpp} chunks this way", pp)
        return vpp, None
    return vpp, plan_word(sizes)


def _chunks(keys: Keys, table: ToolTable, pp: int, layers: int | None) -> int:
    """Virtual stages of a rank: stated, or by the layers of each, rounded as the tool rounds."""
    told, each = keys.whole("vpp"), keys.whole("stage_layers")
    schedule = keys.text("schedule")
    if schedule is not None and schedule != "interleaved":
        return 1
    if schedule is not None and (each is None or layers is None):
        keys.note("interleaved: two virtual stages on every rank, as the tool has it by itself")
        return 2
    if told is not None or each is None:
        return told or 1
    if layers is None:
        keys.ask("the number of layers, which virtual stages need, is not in the file: MODEL")
        return 1
    if table.options.get("stage_layers") == "exact" and layers % (pp * each):
        message = f"{layers} layers over {pp} stages are no multiple of it"
        keys.problem("stage_layers", message, each)
    stages = ceil((layers + int(table.options.get("stage_ends", 0))) / each)
    up = (keys.text("stage_rounding") or "").lower() == "up"
    return max(-(-stages // pp) if up else stages // pp, 1)


def recomputed_layers(keys: Keys, how: str, layers: int | None, pp: int, vpp: int) -> str | None:
    """Layers or modules that are recomputed, where a number or a list of names says which."""
    if how == "blocks":
        return f"full:{(keys.whole('saved_layers') or 1) * vpp}"
    if how.startswith("every "):
        every = whole_number(how[6:]) or 0
        if every > 1 and layers is None:
            keys.doubt(f"one layer in {every} is recomputed: how many needs the model's layers")
            return "none"
        if every > 1:
            return f"full:{max((layers or 1) // pp // every, 1)}"
        return "full" if every else "products"
    if how != "modules":
        return None
    ours = table_of("megatron").words["modules"]
    named = (keys.text("recompute_modules") or "").strip("[]").replace(",", " ").split()
    plain = [one.strip("\"'") for one in named]
    for name in plain:
        if name not in ours:
            keys.doubt(f"recompute_modules {name[:40]} is not known here: ignored")
    some = [ours[one] for one in plain if one in ours]
    ordered = join_names("+".join(dict.fromkeys(some)), MODULES) if some else None
    return "selective" if ordered in (None, "core") else ordered
