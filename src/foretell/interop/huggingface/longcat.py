"""LongCat-Flash: two attentions and two dense parts per layer, experts beside the first pair."""

from dataclasses import replace

from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.decoders import layer_of, prediction_of, shape_of, stack_model
from foretell.interop.huggingface.feedforward import dense_part, expert_part
from foretell.interop.huggingface.rows import Row, rules_of
from foretell.specs.ffn import Experts
from foretell.specs.model import Model


def read(config: Config) -> Model:
    """Each layer of the config is two here: one with the experts, one without."""
    row = Row(config, rules_of(config.family))
    depth = shape_of(row)
    base, dense = layer_of(row), dense_part(row)
    first = replace(base, ffn=_experts(row), dense_beside=dense)
    second = replace(base, ffn=dense)
    return stack_model(row, (first, second) * depth, prediction_of(row, (second,)))


def _experts(row: Row) -> Experts:
    """Real experts with weights, beside `zero_expert_num` that return their input: no weights, no work, but
    scores and biases of the router. At balanced load a token uses top-k E / (E + zero) real ones, which is
    what is timed and counted as active.
    """
    made, zero = expert_part(row), row.config.get("zero_expert_num", 0, row.why)
    used = max(round(made.top_k * made.experts / (made.experts + zero)), 1)
    if zero:
        row.config.assume(
            f"{used} of the {made.top_k} experts per token are real ones: balanced load over "
            f"{made.experts} experts and {zero} that return their input"
        )
    return replace(made, top_k=used, extra_parameters=zero * row.whole("hidden") + zero)
