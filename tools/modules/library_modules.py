"""Classes of transformers at small sizes, from their own config classes: modules that no rate was fitted to."""

import torch
import transformers as hf


def ids(rows, length, vocabulary):
    return torch.randint(1, vocabulary, (rows, length))


def own_loss(module, **inputs):
    return module(**inputs).loss


def bert():
    config = hf.BertConfig(num_hidden_layers=8)
    x = ids(16, 256, 30522)
    return hf.BertForMaskedLM(config), {"input_ids": x, "labels": x}, own_loss


def gpt2():
    x = ids(4, 1024, 50257)
    return hf.GPT2LMHeadModel(hf.GPT2Config(n_layer=8)), {"input_ids": x, "labels": x}, own_loss


def qwen3():
    config = hf.Qwen3Config(hidden_size=1024, intermediate_size=3072, num_hidden_layers=8, num_attention_heads=16,
                            num_key_value_heads=8, head_dim=64, vocab_size=32000)  # fmt: skip
    x = ids(4, 1024, 32000)
    return hf.Qwen3ForCausalLM(config), {"input_ids": x, "labels": x}, own_loss


def t5():
    config = hf.T5Config(d_model=512, d_ff=2048, num_layers=6, num_heads=8, vocab_size=32128)
    x, y = ids(8, 512, 32128), ids(8, 128, 32128)
    return hf.T5ForConditionalGeneration(config), {"input_ids": x, "labels": y}, own_loss


def vit():
    config = hf.ViTConfig(num_hidden_layers=8, num_labels=1000)
    inputs = {"pixel_values": torch.randn(32, 3, 224, 224), "labels": torch.randint(0, 1000, (32,))}
    return hf.ViTForImageClassification(config), inputs, own_loss


def convnext_v2():
    config = hf.ConvNextV2Config(num_labels=1000)
    inputs = {"pixel_values": torch.randn(32, 3, 224, 224), "labels": torch.randint(0, 1000, (32,))}
    return hf.ConvNextV2ForImageClassification(config), inputs, own_loss


def segformer():
    config = hf.SegformerConfig(num_labels=150)
    inputs = {
        "pixel_values": torch.randn(8, 3, 512, 512),
        "labels": torch.randint(0, 150, (8, 512, 512)),
    }
    return hf.SegformerForSemanticSegmentation(config), inputs, own_loss


def whisper():
    config = hf.WhisperConfig(d_model=512, encoder_layers=6, decoder_layers=6, encoder_attention_heads=8,
                              decoder_attention_heads=8, encoder_ffn_dim=2048, decoder_ffn_dim=2048)  # fmt: skip
    inputs = {"input_features": torch.randn(4, 80, 3000), "labels": ids(4, 128, 50000)}
    return hf.WhisperForConditionalGeneration(config), inputs, own_loss


def clip():
    inputs = {
        "input_ids": ids(32, 77, 49000),
        "pixel_values": torch.randn(32, 3, 224, 224),
        "return_loss": True,
    }
    return hf.CLIPModel(hf.CLIPConfig()), inputs, own_loss


def mixtral():
    config = hf.MixtralConfig(hidden_size=768, intermediate_size=2048, num_hidden_layers=4, num_attention_heads=12,
                              num_key_value_heads=4, vocab_size=32000, num_local_experts=8)  # fmt: skip
    x = ids(4, 512, 32000)
    return hf.MixtralForCausalLM(config), {"input_ids": x, "labels": x}, own_loss


CASES = [
    (name, precision, compiled, micro, update)
    for name in (
        "bert",
        "gpt2",
        "qwen3",
        "t5",
        "vit",
        "convnext_v2",
        "segformer",
        "whisper",
        "clip",
        "mixtral",
    )
    for precision, compiled, micro, update in (
        ("fp32", 0, 1, "foreach"),
        ("autocast", 0, 1, "fused"),
    )
] + [
    ("gpt2", "bf16", 0, 2, "foreach"),
    ("qwen3", "bf16", 0, 1, "foreach"),
    ("bert", "bf16", 0, 1, "foreach"),
]
