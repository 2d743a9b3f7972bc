"""Nemotron-H and Nemotron-3: Mamba-2, attention, dense and expert layers in a given order.

Every layer is one norm and one block. The routers' balance bias is a buffer here and not counted,
as in the published totals.
"""

from dataclasses import replace

from foretell.interop.huggingface.common import plain_decoder, plain_ffn, read_heads
from foretell.interop.huggingface.config import LAYERS_MOST, Config
from foretell.interop.huggingface.experts import routed_experts
from foretell.specs.ffn import Experts
from foretell.specs.mixers import Attention, Mamba2
from foretell.specs.model import Layer, Model, Projection, TokenPrediction

WHY = "NemotronHConfig's defaults"
LETTERS = {"M": "mamba", "*": "attention", "E": "moe", "-": "mlp"}
"""`hybrid_override_pattern`, letter by letter."""
NAMES = {
    "mamba": "mamba",
    "attention": "attention",
    "full_attention": "attention",
    "moe": "moe",
    "mlp": "mlp",
}
"""`layers_block_type`, name by name."""


def read(config: Config) -> Model:
    """Layers in the order of the pattern; prediction blocks in that of their own pattern."""
    hidden = config.need("hidden_size")
    kinds = _pattern(config, "layers_block_type", "hybrid_override_pattern")
    ahead: tuple[str, ...] = ()
    repeats = config.get("num_nextn_predict_layers", 0)
    if repeats:
        ahead = _pattern(config, "mtp_layers_block_type", "mtp_hybrid_override_pattern")
    made = {kind: _layer(config, hidden, kind) for kind in dict.fromkeys((*kinds, *ahead))}
    depth = config.get("num_hidden_layers", len(kinds))
    config.check(
        depth == len(kinds),
        ("num_hidden_layers", "hybrid_override_pattern", "layers_block_type"),
        f"{depth} layers, but a pattern of {len(kinds)}",
    )
    model = plain_decoder(config, [made[kind] for kind in kinds], hidden, longest=4096, why=WHY)
    if not repeats:
        return model
    block = TokenPrediction(
        layers=tuple(made[kind] for kind in ahead),
        repeats=min(repeats, 100),
        projections=(Projection(name="prediction.joint", inputs=2 * hidden, outputs=hidden),),
    )
    return replace(model, prediction=block)


def _pattern(config: Config, listed: str, lettered: str) -> tuple[str, ...]:
    """The kind of each layer, from a list of names or a string of letters."""
    if config.has(listed):
        names = config.texts(listed) or ()
        for name in dict.fromkeys(names):
            if name not in NAMES:
                config.problem(listed, "has an unknown kind", name, allowed=", ".join(NAMES))
        return _bounded(config, listed, tuple(NAMES.get(name, "mlp") for name in names))
    letters = config.text(lettered, "")
    if not letters:
        config.problem(lettered, "is missing", allowed=f"letters of {''.join(LETTERS)}")
        return ("mlp",)
    for letter in dict.fromkeys(letters):
        if letter not in LETTERS:
            config.problem(lettered, "has an unknown letter", letter, allowed=" ".join(LETTERS))
    return _bounded(config, lettered, tuple(LETTERS.get(letter, "mlp") for letter in letters))


def _bounded(config: Config, key: str, kinds: tuple[str, ...]) -> tuple[str, ...]:
    config.check(0 < len(kinds) <= LAYERS_MOST, (key,), f"names {len(kinds)} layers")
    return kinds[:LAYERS_MOST] or ("mlp",)


def _layer(config: Config, hidden: int, kind: str) -> Layer:
    if kind == "mamba":
        return Layer(mixers=(_mamba(config),), norms=1)
    if kind == "attention":
        return Layer(mixers=(_attention(config, hidden),), norms=1)
    if kind == "moe":
        return Layer(ffn=_experts(config), norms=1)
    biased = config.flag("mlp_bias", default=False, why=WHY)
    dense = plain_ffn(
        config.need("intermediate_size"), config.text("mlp_hidden_act", "relu2", WHY), biased=biased
    )
    return Layer(ffn=dense, norms=1)


def _mamba(config: Config) -> Mamba2:
    return Mamba2(
        heads=config.need("mamba_num_heads"),
        head_dim=config.need("mamba_head_dim"),
        state=config.need("ssm_state_size"),
        groups=config.get("n_groups", 8, WHY, "mamba_n_groups", low=1),
        conv_kernel=config.get("conv_kernel", 4, WHY, "mamba_d_conv", low=1),
        conv_bias=config.flag("use_conv_bias", default=True, why=WHY),
        proj_bias=config.flag("use_bias", default=False, why=WHY),
        chunk=config.get("chunk_size", 128, WHY, low=1),
    )


def _attention(config: Config, hidden: int) -> Attention:
    width = "attention_head_dim" if config.has("attention_head_dim") else "head_dim"
    shape = read_heads(config, hidden, kv_default=8, why=WHY)
    biased = config.flag("attention_bias", default=False, why=WHY)
    return Attention(
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=config.get(width, 128, WHY, low=1),
        window=config.get("sliding_window", None, low=1),
        q_bias=biased,
        k_bias=biased,
        v_bias=biased,
        o_bias=biased,
    )


def _experts(config: Config) -> Experts:
    """Ungated experts, in a latent width where given; the shared expert in the hidden one."""
    experts, top_k = routed_experts(config, experts=("n_routed_experts",))
    shared = config.get("n_shared_experts", 1, WHY)
    return Experts(
        experts=experts,
        top_k=top_k,
        width=config.need("moe_intermediate_size"),
        gated=False,
        activation=config.text("mlp_hidden_act", "relu2", WHY),
        shared_width=config.need("moe_shared_expert_intermediate_size") if shared else 0,
        latent=config.get("moe_latent_size", None, low=1),
    )
