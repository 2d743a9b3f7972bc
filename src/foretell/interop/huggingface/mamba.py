"""Mamba-2: the library's form (mamba2) and the one of state-spaces' own code (d_model, ssm_cfg)."""

from foretell.interop.huggingface.common import decoder, tied_embeddings
from foretell.interop.huggingface.config import Config
from foretell.specs.mixers import Mamba2
from foretell.specs.model import Embedding, Head, Layer, Model

WHY = "Mamba2Config's defaults"
OWN = "the defaults of state-spaces' own code"
LENGTH = 8192
"""A state-space model has no longest sequence; this one is stated with the result."""


def read(config: Config) -> Model:
    """A stack of Mamba-2 mixers with one norm each."""
    config.assume(f"a state-space model has no longest sequence: {LENGTH} positions assumed")
    if config.family == "mamba_ssm":
        return _own(config)
    hidden = config.need("hidden_size")
    mixer = Mamba2(
        heads=config.need("num_heads"),
        head_dim=config.need("head_dim"),
        state=config.need("state_size"),
        groups=config.get("n_groups", 8, WHY, low=1),
        conv_kernel=config.get("conv_kernel", 4, WHY, low=1),
        conv_bias=config.flag("use_conv_bias", default=True, why=WHY),
        proj_bias=config.flag("use_bias", default=False, why=WHY),
        chunk=config.get("chunk_size", 256, WHY, low=1),
    )
    expand = config.number("expand", 2, WHY)
    config.check(
        mixer.heads * mixer.head_dim == round(expand * hidden),
        ("num_heads", "head_dim", "expand", "hidden_size"),
        f"num_heads x head_dim = {mixer.heads * mixer.head_dim} is not expand x hidden_size",
    )
    _rule(config, mixer, ("num_heads", "n_groups"))
    vocab = config.need("vocab_size")
    return _model(
        config,
        mixer,
        hidden,
        config.layers(),
        vocab,
        tied_embeddings(config, default=False, why=WHY),
    )


def _own(config: Config) -> Model:
    """d_model, n_layer, ssm_cfg; the vocabulary is padded to a multiple."""
    hidden, inner = config.need("d_model"), config.sub("ssm_cfg")
    inner.choice("layer", ("Mamba2",), "Mamba1", None)
    config.check(
        config.get("d_intermediate", 0) == 0 and not config.raw("attn_layer_idx"),
        ("d_intermediate", "attn_layer_idx"),
        "layers other than Mamba-2 are not read from this form",
    )
    width = inner.get("expand", 2, None, low=1) * hidden
    head_dim = inner.get("headdim", 64, None, low=1)
    mixer = Mamba2(
        heads=inner.divides(width, head_dim, ("expand", "headdim")),
        head_dim=head_dim,
        state=inner.get("d_state", 128, None, low=1),
        groups=inner.get("ngroups", 1, None, low=1),
        conv_kernel=inner.get("d_conv", 4, None, low=1),
        conv_bias=inner.flag("conv_bias", default=True),
        proj_bias=inner.flag("bias", default=False),
        chunk=inner.get("chunk_size", 256, None, low=1),
    )
    _rule(inner, mixer, ("headdim", "ngroups"))
    multiple = config.get("pad_vocab_size_multiple", 8, OWN, low=1)
    vocab = -(-config.need("vocab_size") // multiple) * multiple
    same = config.flag("tie_embeddings", default=True, why=OWN)
    return _model(config, mixer, hidden, config.layers(key="n_layer"), vocab, same)


def _rule(config: Config, mixer: Mamba2, keys: tuple[str, str]) -> None:
    config.check(
        mixer.heads % mixer.groups == 0,
        keys,
        f"{mixer.heads} heads cannot share {mixer.groups} groups evenly",
    )


def _model(config: Config, mixer: Mamba2, hidden: int, depth: int, vocab: int, same: bool) -> Model:
    layer = Layer(mixers=(mixer,), norms=1)
    return decoder(
        config,
        (layer,) * depth,
        embedding=Embedding(vocab=vocab),
        head=Head(outputs=vocab, tied=same),
        hidden=hidden,
        max_positions=LENGTH,
    )
