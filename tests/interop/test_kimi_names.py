"""Kimi-Linear under the names of its own code and under those of the library."""

from typing import Any

from foretell.interop.huggingface import read_model

SAME: dict[str, Any] = {
    "model_type": "kimi_linear", "vocab_size": 1024, "hidden_size": 256, "intermediate_size": 512,
    "moe_intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4,
    "num_shared_experts": 1, "kv_lora_rank": 64, "qk_rope_head_dim": 16, "qk_nope_head_dim": 32,
    "v_head_dim": 32, "num_experts": 8, "num_experts_per_token": 2, "torch_dtype": "bfloat16",
    "tie_word_embeddings": False, "model_max_length": 4096,
}  # fmt: skip


def test_both_names_give_one_model() -> None:
    own = SAME | {
        "first_k_dense_replace": 1,
        "linear_attn_config": {
            "num_heads": 4, "head_dim": 32, "short_conv_kernel_size": 4, "full_attn_layers": [4],
            "kda_layers": [1, 2, 3],
        },
    }  # fmt: skip
    library = SAME | {
        "linear_num_heads": 4,
        "linear_head_dim": 32,
        "linear_conv_kernel_dim": 4,
        "layer_types": ["linear_attention"] * 3 + ["full_attention"],
        "mlp_layer_types": ["dense"] + ["sparse"] * 3,
    }
    assert read_model(own, id="kimi") == read_model(library, id="kimi")
