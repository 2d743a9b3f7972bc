"""Mamba-2, also in the form of state-spaces' own code: d_model, n_layer, ssm_cfg."""

from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.decoders import decoder
from foretell.interop.huggingface.rows import Row, rules_of
from foretell.specs.model import Model


def read(config: Config) -> Model:
    """A stack of Mamba-2 mixers with one norm each."""
    row = Row(config, rules_of(config.family))
    if config.family == "mamba_ssm":
        _own_numbers(row)
    return decoder(row)


def _own_numbers(row: Row) -> None:
    """In the own form heads are as many as their width makes, and the vocabulary is padded."""
    config, inner = row.config, row.config.sub("ssm_cfg")
    row.known["hidden"] = row.whole("hidden")
    inner.choice("layer", ("Mamba2",), "Mamba1", None)
    config.check(
        config.get("d_intermediate", 0) == 0 and not config.raw("attn_layer_idx"),
        ("d_intermediate", "attn_layer_idx"),
        "layers other than Mamba-2 are not read from this form",
    )
    row.known["heads"] = inner.divides(
        row.whole("inner"), row.whole("head_dim"), ("expand", "headdim")
    )
    multiple = config.get("pad_vocab_size_multiple", 8, row.why, low=1)
    row.known["vocab"] = -(-config.need("vocab_size") // multiple) * multiple
