"""Rows of published runs: what is filled where, and how near the predictions are."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from foretell import estimate
from foretell.catalog import model as catalogue_model
from foretell.catalog.software import software
from foretell.catalog.software_printed import recognise_framework
from foretell.errors import BadInput
from foretell.lab.validate.held_out import LeftOut
from foretell.lab.validate.pages import training_scores
from foretell.lab.validate.training import (
    RunPrediction,
    predict_row,
    prediction_of,
    score_rows,
    source_label,
)
from foretell.lab.validate.training_question import (
    UnsupportedRun,
    model_text,
    question_of,
    system_record,
    system_words,
)
from foretell.lab.validate.training_rows import TrainingRow, read_rows, row_of
from foretell.network.library_catalog import fabric_of
from foretell.specs.ffn import Dense, Experts
from foretell.specs.mixers import Attention, LatentAttention
from foretell.specs.model import Model
from foretell.specs.plan import parse_plan
from foretell.specs.system import System
from foretell.training.answer import answer_of
from foretell.workload.parameters import count
from tests.surfaces.command import foretell

KEYS = "rows scored unsupported median_ape p90_ape by_source predictions memory_predictions".split()


def make_row(**cells: Any) -> TrainingRow:
    """An 8B run on one node of H100."""
    usual: dict[str, Any] = {
        "id": "r1",
        "source": "somewhere",
        "model": "Llama3 8B",
        "family": "dense",
        "n_params_b": 8.03,
        "layers": 32,
        "hidden": 4096,
        "heads": 32,
        "kv_heads": 8,
        "ffn_hidden": 14336,
        "vocab": 128256,
        "seq_len": 8192,
        "chip_id": "h100-sxm",
        "n_gpus": 8,
        "precision_id": "bf16",
        "framework_id": "megatron-core",
        "tp": 1,
        "pp": 1,
        "global_batch": 128,
        "micro_batch": 1,
        "score_step_time_s": 12.0,
        "quality": "A",
    }
    return row_of({key: str(value) for key, value in {**usual, **cells}.items()})


def laid(row: TrainingRow) -> RunPrediction:
    return predict_row(row)


def model_of(row: TrainingRow) -> tuple[Model, tuple[str, ...]]:
    model = catalogue_model(model_text(row))
    return model, model.assumptions


def system_of(row: TrainingRow) -> tuple[System, tuple[str, ...]]:
    name, settings = system_words(row)
    return system_record(name, settings), settings


NANOTRON = "HF Ultra-Scale Playbook nanotron benchmark (copy in gkarfakis19/Rapid-LLM)"
"""A source that values were read from."""


class TestModel:
    def test_the_weights_tell_gated_and_tied(self) -> None:
        model, _ = model_of(make_row(seq_len=8192))
        ffn = model.stack.layers[0].ffn
        assert isinstance(ffn, Dense)
        assert ffn.gated
        assert not model.head.tied
        assert count(model).total == pytest.approx(8.03e9, rel=0.005)

    def test_a_plain_model_has_learned_positions(self) -> None:
        cells = {"model": "MPT-7b", "n_params_b": 6.6589, "kv_heads": 32, "ffn_hidden": 16384}
        model, _ = model_of(make_row(**cells, vocab=50368, seq_len=2048))
        ffn = model.stack.layers[0].ffn
        assert isinstance(ffn, Dense)
        assert not ffn.gated
        assert model.head.tied
        assert model.embedding.positions == 2048
        assert count(model).total == pytest.approx(6.6589e9, rel=1e-3)

    def test_long_tables_of_positions_are_weights_too(self) -> None:
        """At 65,536 tokens a third of a small model's weights are positions: it is still not gated."""
        cells = {
            "model": "MPT-125m",
            "n_params_b": 0.1741,
            "layers": 12,
            "hidden": 768,
            "heads": 12,
        }
        row = make_row(**cells, kv_heads=12, ffn_hidden=3072, vocab=50368)
        ffn = model_of(replace(row, seq_len=65536))[0].stack.layers[0].ffn
        assert isinstance(ffn, Dense)
        assert not ffn.gated

    def test_without_weights_the_name_decides(self) -> None:
        plain, said = model_of(make_row(model="GPT 22B", n_params_b="", seq_len=2048))
        assert isinstance(plain.stack.layers[0].ffn, Dense)
        assert not plain.stack.layers[0].ffn.gated
        assert any("tied: as gpt" in text for text in said)
        gated, _ = model_of(
            make_row(model="llama3_70b cut to 12 layers", n_params_b="", seq_len=4096)
        )
        assert isinstance(gated.stack.layers[0].ffn, Dense)
        assert gated.stack.layers[0].ffn.gated

    def test_blank_cells_are_filled_and_said(self) -> None:
        row = make_row(model="GPT", n_params_b="", vocab="", kv_heads="", ffn_hidden="")
        model, said = model_of(replace(row, seq_len=1024))
        assert model.embedding.vocab == 50304
        mixer, ffn = model.stack.layers[0].mixers[0], model.stack.layers[0].ffn
        assert isinstance(mixer, Attention)
        assert isinstance(ffn, Dense)
        assert (mixer.kv_heads, ffn.width) == (32, 4 * 4096)
        assert len(said) == 4

    def test_experts_come_from_the_catalogue_where_the_cells_agree(self) -> None:
        cells = {"n_params_b": 30.5, "layers": 48, "hidden": 2048, "kv_heads": 4, "ffn_hidden": 768}
        row = make_row(model="Qwen3_30B_a3B (tokendrop)", **cells, n_experts=128, top_k=8)
        assert model_of(replace(row, seq_len=4096))[0].id == "qwen3-30b-a3b"
        other = make_row(model="Qwen3_30B_a3B", **cells, n_experts=64, top_k=8)
        built = model_of(replace(other, seq_len=4096))[0]
        assert isinstance(built.stack.layers[0].ffn, Experts)
        assert built.stack.layers[0].ffn.experts == 64

    def test_a_cut_model_keeps_its_first_layers(self) -> None:
        cells = {"n_params_b": "", "layers": 4, "hidden": 5120, "heads": 128, "kv_heads": 128}
        row = make_row(model="deepseekv2 cut to 4 layers", **cells, n_experts=160, top_k=6)
        model, _ = model_of(replace(row, seq_len=4096))
        assert len(model.stack.layers) == 4
        assert isinstance(model.stack.layers[0].mixers[0], LatentAttention)
        assert [isinstance(layer.ffn, Experts) for layer in model.stack.layers] == [0, 1, 1, 1]

    def test_prediction_blocks_are_trained_only_where_it_is_said(self) -> None:
        cells = {"n_params_b": 671, "layers": 61, "hidden": 7168, "heads": 128, "kv_heads": 128}
        row = make_row(model="DeepSeekV3 (w/o MTP)", **cells, n_experts=256, top_k=8)
        assert model_of(replace(row, seq_len=4096))[0].prediction is None
        row = make_row(model="DeepSeekV3 (w/ MTP)", **cells, n_experts=256, top_k=8)
        assert model_of(replace(row, seq_len=4096))[0].prediction is not None

    def test_hybrids(self) -> None:
        cells = {"n_params_b": 56, "layers": 118, "hidden": 8192, "heads": 64, "family": "hybrid"}
        assert (
            model_of(make_row(model="Nemotron-H 56B", **cells, seq_len=8192))[0].id
            == "nemotron-h-56b"
        )
        other, _ = model_of(make_row(model="Unheard-H", **cells, seq_len=8192))
        assert len(other.stack.layers) == 118

    def test_the_start_of_a_name_is_enough_where_only_one_goes_on(self) -> None:
        blank = {"layers": "", "hidden": "", "heads": ""}
        assert model_of(make_row(model="Grok 1", **blank, seq_len=8192))[0].id == "grok-1-314b"
        with pytest.raises(UnsupportedRun):
            model_of(make_row(model="Llama", **blank, seq_len=8192))

    def test_a_name_is_enough_and_nothing_is_not(self) -> None:
        blank = {"layers": "", "hidden": "", "heads": ""}
        assert (
            model_of(make_row(model="Llama 3.1 405B", **blank, seq_len=8192))[0].id
            == "llama-3.1-405b"
        )
        with pytest.raises(UnsupportedRun, match="architecture"):
            model_of(make_row(model="MaxText 64B", **blank, seq_len=2048))


class TestPlan:
    def test_what_the_cells_say_is_the_plan(self) -> None:
        cells = {"n_gpus": 64, "tp": 4, "pp": 4, "cp": 2, "vpp": 5, "zero_stage": 1, "sp": "yes"}
        found = laid(make_row(**cells, dp=2, recompute="full", flash_attn="yes"))
        words = "tp4 pp4 vpp5 dp2 cp2 zero1 mbs1 sp flash fused recompute=full"
        assert str(found.plan).startswith(words)
        assert parse_plan(str(found.plan), 64) == found.plan

    def test_dp_is_what_is_left_of_the_chips(self) -> None:
        found = laid(make_row(n_gpus=16, tp=2, pp=2))
        assert found.plan.dp == 4
        assert "dp" not in (found.asked.plan or "")
        with pytest.raises(UnsupportedRun, match="does not divide"):
            laid(make_row(n_gpus=10, tp=4))

    @pytest.mark.parametrize(
        ("cells", "micro", "batch"),
        [
            ({"micro_batch": "", "grad_accum": 4}, 4, 128),
            # Blank, and told by nothing: one sequence, as where a user says nothing.
            ({"micro_batch": "", "seq_len": 2048}, 1, 128),
            ({"micro_batch": "", "seq_len": 2048, "pp": 2, "n_gpus": 16}, 1, 128),
            ({"micro_batch": 2, "grad_accum": 3, "global_batch": ""}, 2, 48),
            (
                {
                    "micro_batch": 1,
                    "global_batch": "",
                    "score_tokens_per_s_per_gpu": 8192,
                    "score_step_time_s": 16,
                },
                1,
                128,
            ),
        ],
    )
    def test_batches(self, cells: dict[str, Any], micro: int, batch: int) -> None:
        found = laid(make_row(**cells))
        assert (found.plan.micro_batch, found.scenario.job.global_batch) == (micro, batch)

    def test_a_split_that_is_not_printed_is_searched_for(self) -> None:
        row = make_row(tp="", pp="", recompute="full")
        asked = question_of(row)
        assert asked.plan is None
        assert "plan.recompute=full" in asked.settings
        assert laid(row).plan.recompute == "full"
        assert question_of(make_row(tp="", pp="", zero_stage=3)).plan is not None

    def test_sequences_that_are_not_printed_are_the_models_own(self) -> None:
        row = make_row(seq_len="", model="GPT", n_params_b="", ffn_hidden=16384)
        assert laid(row).scenario.job.seq_len == 1024
        assert laid(make_row(seq_len="")).scenario.job.seq_len == 2048

    @pytest.mark.parametrize(
        ("cells", "words"),
        [
            ({"framework_id": "megatron-core"}, "attention=cudnn gradients=bf16"),
            ({"framework_id": "megatron-core", "chip_id": "a100-sxm-80gb"}, "attention=fa2"),
            ({"framework_id": "nanotron"}, "no-fused recompute=none attention=fa2"),
            ({"framework_id": "fsdp"}, "no-fused recompute=none attention=fa2 gradients=bf16"),
            ({"framework": "FSDP (2023)"}, "framework=fsdp@2023 attention=fa1"),
            ({"framework": "FSDP (2025)"}, "framework=fsdp attention=fa2"),
            ({"framework": "llm-foundry"}, "framework=llm-foundry@0.1 attention=fa1"),
            (
                {"framework_id": "fsdp", "framework": "X, DeepSpeed ZeRO 3", "zero_stage": 3},
                "framework=deepspeed",
            ),
            ({"framework_id": "fsdp", "framework": "x (torch.compile)"}, "framework=fsdp-compiled"),
            ({"framework": "Megatron-LM (Jan 2021)"}, "no-flash framework=megatron-lm@2021-01"),
            ({"framework": "Megatron-LM", "source": "SC'21"}, "framework=megatron-lm@2021"),
            ({"framework": "Megatron-LM 23e00ed + TE 2.11"}, "flash framework=megatron-lm"),
            ({"framework_id": "megatron", "chip_id": "a100-sxm-80gb"}, "no-flash"),
            (
                {"framework": "Megatron-LM", "chip_id": "a100-sxm-80gb"},
                "framework=megatron-lm@2020",
            ),
            (
                {"framework": "Megatron-LM", "chip_id": "b200-sxm"},
                "framework=megatron-lm attention=cudnn",
            ),
            (
                {"framework": "Megatron-LM", "notes": "all TP/PP overlap disabled", "tp": 2},
                "grad_overlap=off param_overlap=off tp_overlap=off framework=megatron-lm",
            ),
            ({"framework_id": "megatron-deepspeed"}, "no-flash"),
            ({"framework_id": "torchtitan", "notes": "eager, no compile"}, "no-fused"),
            ({"framework_id": "jax"}, "recompute=mlp+moe"),
            ({"framework_id": "jax", "recompute": "full"}, "recompute=full"),
            ({"framework_id": "jax", "recompute": "selective"}, "recompute=mlp+moe"),
            (
                {"framework_id": "jax", "recompute": "selective", "notes": "remat minimal"},
                "recompute=selective",
            ),
            ({"framework_id": "unheard-of"}, "recompute=none"),
            ({"precision_id": "bf16-pure"}, "gradients=bf16 master=none states=bf16"),
            ({"precision_id": "fp16", "framework_id": "fsdp"}, "gradients=fp16"),
            ({"zero_stage": 1, "zero_group": 4}, "shard=4"),
            ({"model": "Llama3 8b LORA"}, "lora=16 adapters=qkv"),
            (
                {"model": "Llama3 8b LoRA", "notes": "LoRA rank 8 on q,k,v,o"},
                "lora=8 adapters=attention",
            ),
            ({"notes": "LoRA rank 8 on q,v; sdpa"}, "lora=8 adapters=qv"),
            ({"notes": "LoRA rank 8 on q,v,o and mlp"}, "lora=8 adapters=q+v+o+up+down"),
            (
                {"model": "8B QLoRA", "precision": "NF4 base", "notes": "QLoRA rank 8 on q,k,v,o"},
                "weights=nf4-dq lora=8 adapters=attention",
            ),
            ({"model": "8B LoRA", "precision": "NF4 base", "notes": "rank 8"}, "weights=nf4"),
            ({"notes": "full; compared with LoRA rank 8 elsewhere"}, ""),
            ({"notes": "LoRA Performance"}, "lora=16"),
            (
                {"framework_id": "fsdp", "recompute": "selective", "mfu": 55.0, "notes": "HFU=74%"},
                "recompute=full:32",
            ),
            (
                {"framework_id": "fsdp", "recompute": "selective", "mfu": 61.0, "notes": "HFU=69%"},
                "recompute=full:13",
            ),
            (
                {"framework_id": "fsdp", "recompute": "selective", "mfu": 68.0, "notes": "HFU=68%"},
                "recompute=none",
            ),
            (
                {"framework_id": "other", "framework": "flash-attn GPT + Lightning DDP"},
                "framework=flash-attn",
            ),
            ({"framework_id": "torchtitan", "recompute": "selective"}, "recompute=products"),
            ({"flash_attn": "no (baseline)"}, "no-flash"),
            ({"flash_attn": "FA2"}, "attention=fa2"),
            ({"precision_id": "", "chip_id": "v100-sxm-32gb"}, "precision=fp16"),
        ],
    )
    def test_recipes(self, cells: dict[str, Any], words: str) -> None:
        assert {*words.split()} <= {*str(laid(make_row(**cells)).plan).split()}

    def test_a_run_without_overlap_is_megatron_with_transformer_engine(self) -> None:
        """The release before overlaps were set, by the words that switch them off in the newest."""
        cells = {"framework": "Megatron-LM + TE", "tp": 2, "zero_stage": 1, "chip_id": "b200-sxm"}
        off = laid(make_row(**cells, notes="all TP/PP overlap disabled"))
        old = laid(make_row(**{**cells, "framework": "megatron-te", "framework_id": "megatron-te"}))
        assert old.plan.framework == "megatron-te"
        assert off.answer.step_s == pytest.approx(old.answer.step_s, rel=1e-9)
        assert laid(make_row(**cells)).answer.step_s < off.answer.step_s

    def test_a_note_alone_makes_no_adapters(self) -> None:
        assert laid(make_row(notes="faster than with LoRA")).plan.lora == 0

    def test_a_source_left_out_is_in_the_software(self) -> None:
        source = "vTrain (MICRO 2024) measured ground truth, Megatron-DeepSpeed"
        row = make_row(framework_id="megatron-deepspeed")
        found = predict_row(row, LeftOut(sources=(source,)))
        assert found.plan.framework == "megatron-deepspeed"
        assert found.scenario.software == software("megatron-deepspeed", (source,))
        other = predict_row(row, LeftOut(sources=("another",))).scenario.software
        assert other.step_operations == software("megatron-deepspeed").step_operations

    def test_stages_are_interleaved_only_if_asked(self) -> None:
        cells = {"n_gpus": 16, "pp": 4, "layers": 80, "global_batch": 64, "n_params_b": ""}
        assert laid(make_row(**cells)).plan.vpp == 1
        assert laid(make_row(**cells, vpp=5)).plan.vpp == 5

    def test_llama_3_sends_once(self) -> None:
        """126 layers on 16 stages, embedding and head in the place of one each; ZeRO 2 below a pipeline."""
        cells = {"framework_id": "other", "n_gpus": 8192, "tp": 8, "pp": 16, "zero_stage": 2}
        wide = {"layers": 126, "micro_batch": 1, "global_batch": 2048, "n_params_b": "", "vpp": 8}
        found = laid(make_row(**cells, **wide))
        told = predict_row(make_row(**cells, **wide))
        assert (found.plan.vpp, found.plan.reduce) == (8, "auto")
        once = parse_plan(f"{found.plan} reduce=step")
        assert told.answer.step_s == answer_of(told.scenario, once, chosen=False).step_s


class TestSystem:
    @pytest.mark.parametrize(
        ("cells", "system", "tiers"),
        [
            ({"interconnect": "NVLink + EFA (HF cluster)", "n_gpus": 64}, "aws-p5", (8, 50e9)),
            ({"interconnect": "IB (Selene)", "chip_id": "a100-sxm-80gb"}, "selene", (8, 25e9)),
            ({"chip_id": "v100-sxm-32gb", "fast_domain_gpus": 16}, "dgx-2", (16, 6.25e9)),
            ({"chip_id": "gb200", "fast_domain_gpus": 72}, "gb200", (72, 50e9)),
        ],
    )
    def test_the_catalogue_has_it(
        self, cells: dict[str, Any], system: str, tiers: tuple[int, float]
    ) -> None:
        found, _ = system_of(make_row(**cells))
        assert found.id == system
        first, last = found.network.tiers[0], found.network.tiers[-1]
        assert (first.size, last.bandwidth_bytes_per_s) == tiers

    def test_the_cells_overrule_it(self) -> None:
        cells = {"inter_node_gbytes_per_s_per_gpu": 6.25, "fast_domain_gpus": 2, "n_gpus": 64}
        found, said = system_of(make_row(**cells))
        assert found.network.tiers[0].size == 2
        assert found.network.tiers[-1].bandwidth_bytes_per_s == 6.25e9
        assert len(said) == 2
        assert "network.node.size=2" in said

    def test_a_fabric_of_its_own_is_a_setting(self) -> None:
        row = make_row(interconnect="NVLink + RoCE", n_gpus=64, chip_id="a100-sxm-80gb")
        found, said = system_of(row)
        assert "network.fabric=roce" in said
        assert fabric_of(found.id).id == "roce"

    def test_an_a100_of_2020_has_40_gb(self) -> None:
        cells = {"chip_id": "a100-sxm-80gb", "source": "README tables 2020", "gpu_mem_gb": ""}
        assert system_of(make_row(**cells))[0].chip.id == "a100-sxm-40gb"
        for told in ({"gpu_mem_gb": 80}, {"source": "README table Jan 2021"}):
            assert system_of(make_row(**{**cells, **told}))[0].chip.id == "a100-sxm-80gb"

    def test_several_gh200_are_held_at_the_limit_of_their_machine(self) -> None:
        cells = {"chip_id": "gh200-96gb", "fast_domain_gpus": 4}
        several, said = system_of(make_row(**cells, n_gpus=64))
        assert several.chip.tdp_watts == 660
        assert "chip.tdp_watts=660" in said
        assert system_of(make_row(**cells, n_gpus=1))[0].chip.tdp_watts == 900

    def test_a_chip_that_is_not_there(self) -> None:
        with pytest.raises(UnsupportedRun, match="abacus"):
            system_of(make_row(chip_id="abacus"))


class TestFrameworks:
    def test_what_was_read_from_a_source_is_left_out_with_it(self) -> None:
        source = "vTrain (MICRO 2024) measured ground truth, Megatron-DeepSpeed"
        own, without = software("megatron-deepspeed"), software("megatron-deepspeed", (source,))
        assert own.step_operations != without.step_operations
        assert replace(software("nanotron", (source,)), left_out=()) == software("nanotron")
        assert software("nanotron", (NANOTRON,)).holds == "" != software("nanotron").holds

    def test_neuronx_stores_scores(self) -> None:
        """Its scripts store scores, compute them again, and know no virtual stages unless told."""
        cells = {"framework": "NxD", "n_gpus": 32, "tp": 8, "pp": 4, "chip_id": "trainium1"}
        plan = laid(make_row(**cells)).plan
        assert (plan.framework, plan.flash, plan.recompute, plan.vpp) == (
            "neuronx",
            False,
            "selective",
            1,
        )
        # Without tensor parallelism it would not fit so: more is computed again.
        assert laid(make_row(**cells | {"tp": 1})).plan.recompute == "full"
        elsewhere = laid(
            make_row(**cells | {"chip_id": "gaudi2", "framework": "", "framework_id": "other"})
        ).plan
        assert (elsewhere.framework, elsewhere.flash) == ("generic", True)

    @pytest.mark.parametrize(
        ("printed", "name", "beside", "word"),
        [
            ("NeMo 24.07 (Megatron-Core + TE)", "", "", "nemo@24.07"),
            ("Megatron-LM (MCore r0.8.0)", "megatron-core", "", "megatron-core@0.7"),
            ("Megatron-Bridge (Megatron-Core + TE)", "", "26.06.01 NeMo Container", "megatron-bridge@26.06"),
            ("Megatron-Bridge", "", "", "megatron-bridge"),
            ("Megatron-LM (2020)", "", "", "megatron-lm@2020"),
            ("Megatron-LM (2019)", "", "", "megatron-lm@2020"),
            ("fms-fsdp (PyTorch FSDP + SDPA, torch.compile)", "fsdp", "", "fsdp-compiled"),
            ("a trainer, torch.compile", "fsdp", "", "fsdp-compiled"),
            ("HF Trainer of some kind", "pytorch", "", "transformers"),
            ("a loop of some kind", "pytorch", "", "pytorch"),
            ("torchtitan, Dec 2024", "", "", "torchtitan@2024-12"),
            ("", "unheard-of", "", "generic"),
        ],
    )  # fmt: skip
    def test_words_for_what_is_printed(
        self, printed: str, name: str, beside: str, word: str
    ) -> None:
        assert recognise_framework(printed, name, "", beside) == word
        assert software(word)

    def test_an_unknown_one_is_named(self) -> None:
        with pytest.raises(BadInput, match="nanotron"):
            software("nanotrn")


MIXTURE = {
    "model": "Qwen3_30B_a3B",
    "family": "moe",
    "n_params_b": 30.5,
    "layers": 48,
    "hidden": 2048,
    "heads": 32,
    "kv_heads": 4,
    "ffn_hidden": 768,
    "n_experts": 128,
    "top_k": 8,
    "vocab": 151936,
    "seq_len": 4096,
    "ep": 8,
    "framework": "Megatron-Bridge (Megatron-Core + TE)",
    "fast_domain_gpus": 8,
}


OSS = {
    "model": "GPT OSS 120B",
    "layers": 36,
    "hidden": 2880,
    "heads": 64,
    "kv_heads": 8,
    "ffn_hidden": 2880,
    "top_k": 4,
}
"""Experts with biases."""


class TestRecipes:
    @pytest.mark.parametrize(
        ("cells", "words"),
        [
            ({"notes": "25.11 NeMo Container"}, ("dedup", "off", 0.0, "megatron-bridge@25.11")),
            (
                {"notes": "26.06 NeMo", "chip_id": "gb200", "precision_id": "mxfp8"},
                ("dedup", "on", 0.0, "megatron-bridge@26.06"),
            ),
            ({"model": "Qwen3 30B (tokendrop)"}, ("alltoall", "off", 1.0, "megatron-bridge")),
            (
                {"model": "DeepSeekV3", "notes": "25.11 NeMo; DeepEP"},
                ("deepep", "off", 0.0, "megatron-bridge@25.11"),
            ),
            (
                {**OSS, "notes": "26.08 NeMo"},
                ("dedup", "off", 0.0, "megatron-bridge@26.08"),
            ),
            ({"framework": "NeMo", "notes": "26.08"}, ("alltoall", "off", 0.0, "nemo")),
            (
                {"framework_id": "other", "framework": "HAI-LLM", "model": "DeepSeek-V3"},
                ("dedup", "on", 0.0, "hai-llm"),
            ),
            (
                {"framework_id": "jax", "framework": "MaxText", "ep": 1},
                ("alltoall", "off", 1.25, "maxtext"),
            ),
        ],
    )
    def test_dispatch_overlap_and_dropping(
        self, cells: dict[str, Any], words: tuple[str, str, float, str]
    ) -> None:
        plan = laid(make_row(**{**MIXTURE, **cells})).plan
        assert (plan.dispatch, plan.ep_overlap, plan.capacity, plan.framework) == words

    def test_experts_are_cut_like_the_rest_unless_folded(self) -> None:
        wide = {**MIXTURE, "tp": 2, "n_gpus": 32, "framework": "Megatron-Core 0.9: MCore"}
        assert laid(make_row(**wide)).plan.etp == 2
        folded = {**wide, "framework": "Megatron-Core 0.9: MCore w/ Folding"}
        assert laid(make_row(**folded)).plan.etp == 1
        assert laid(make_row(**{**wide, "framework": MIXTURE["framework"]})).plan.etp == 1

    def test_no_more_ranks_than_a_stage_has(self) -> None:
        found = laid(make_row(**{**MIXTURE, "ep": 64, "pp": 2, "n_gpus": 32}))
        assert found.plan.ep == 16

    def test_dense_runs_have_no_such_words(self) -> None:
        plan = laid(make_row(framework=MIXTURE["framework"], notes="26.06 NeMo")).plan
        assert (plan.dispatch, plan.capacity) == ("alltoall", 0.0)
        assert plan.framework == "megatron-bridge@26.06"

    def test_scales_of_fp8(self) -> None:
        assert laid(make_row(precision_id="fp8", precision="fp8 rowwise")).plan.scaling == "row"
        assert (
            laid(make_row(precision_id="fp8", precision="fp8 tensorwise")).plan.scaling == "tensor"
        )

    @pytest.mark.parametrize(
        ("system", "words", "measured_s"),
        [
            ("dgx-b200", "dispatch=dedup framework=megatron-bridge@26.02.01", 9.82),
            ("gb200-nvl72", "dispatch=dedup framework=megatron-bridge@26.02.01", 9.94),
            (
                "gb200-nvl72",
                "dispatch=dedup ep_overlap=on graphs=on framework=megatron-bridge@26.06",
                6.44,
            ),
        ],
    )
    def test_published_steps_of_a_mixture(self, system: str, words: str, measured_s: float) -> None:
        """Qwen3-30B on 8 chips, 512 sequences of 4,096 (Megatron-Bridge performance summary), by recipe."""
        found = estimate(
            "qwen3-30b-a3b",
            system=system,
            gpus=8,
            global_batch=512,
            seq_len=4096,
            plan=f"ep8 zero1 mbs4 precision=mxfp8 {words}",
        )
        assert found.step_s == pytest.approx(measured_s, rel=0.12)


class TestScores:
    def test_no_row_raises(self) -> None:
        rows = [
            make_row(),
            make_row(id="r2", chip_id="abacus"),
            make_row(id="r3", score_step_time_s=""),
            make_row(id="r4", score_step_time_s="", score_tokens_per_s_per_gpu=10000),
            make_row(id="r5", n_gpus=""),
            make_row(id="r6", tp=3),
            make_row(id="r7", heads=0, hidden=-3),  # blank cells: as the model that it names
        ]
        scores = score_rows(rows).to_dict()
        ids = [u["id"] for u in scores["unsupported"]]
        assert ids == ["r2", "r3", "r5", "r6"]
        assert scores["scored"] == 3
        assert set(KEYS) <= set(scores)
        told = {p["id"]: p for p in scores["predictions"]}
        assert told["r4"]["measured"] == pytest.approx(128 * 8192 / (8 * 10000))
        assert told["r1"]["low"] < told["r1"]["predicted"] < told["r1"]["high"]

    def test_memory_stands_apart_in_bytes(self) -> None:
        scores = score_rows([make_row(peak_mem_gb=50, zero_stage=1)]).to_dict()
        (found,) = scores["memory_predictions"]
        assert found["measured"] == 50 * 2**30
        assert found["metric"] == "peak_memory_bytes"
        assert 4e10 < found["predicted"] < 1.6e11

    def test_rows_beside_their_source(self) -> None:
        assert source_label(make_row(quality="C")) == "somewhere [grade C]"

    def test_no_row_is_set_aside_by_its_own_outcome(self) -> None:
        """Step time, rate and MFU are outcomes: whatever they are, a row counts for its source."""
        low = make_row(id="low", framework_id="nanotron", mfu=7, score_step_time_s=500)
        fair = make_row(id="fair", framework_id="nanotron", mfu=40)
        assert source_label(low) == source_label(fair) == "somewhere"
        scores = score_rows([low, fair]).to_dict()
        assert scores["graded"]["rows"] == scores["by_source"]["somewhere"]["rows"] == 2
        assert {name: group["rows"] for name, group in scores["by_mfu"].items()} == {
            "below 15 %": 1,
            "from 15 % on": 1,
        }

    def test_a_file_without_ids_is_numbered(self, tmp_path: Path) -> None:
        path = tmp_path / "runs.csv"
        path.write_text("chip_id,n_gpus,framework_id\nh100-sxm,8,fsdp\nh100-sxm,8,fsdp\n")
        assert [row.id for row in read_rows(path)] == ["1", "2"]

    def test_other_files_are_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "other.csv"
        path.write_text("a,b\n1,2\n")
        with pytest.raises(BadInput, match="no column chip_id"):
            read_rows(path)
        with pytest.raises(BadInput, match="no such file"):
            read_rows(tmp_path / "missing.csv")

    def test_the_verb(self, tmp_path: Path) -> None:
        path = tmp_path / "runs.csv"
        path.write_text("chip_id,n_gpus,framework_id,model\nabacus,8,fsdp,Llama3 8B\n")
        outcome = foretell("validate", "training", str(path), "--json")
        assert outcome.code == 0
        assert set(KEYS) <= set(json.loads(outcome.out))
        text = foretell("validate", "training", str(path))
        assert text.code == 0
        assert "no target" in text.out


@pytest.fixture(scope="module")
def scores(data_dir: Path) -> Mapping[str, Any]:
    return training_scores(data_dir)  # kept for the tests of pages, which tell the same scores


class TestCommands:
    def test_a_line_for_every_row(self, tmp_path: Path) -> None:
        path = tmp_path / "runs.csv"
        head = "id,chip_id,n_gpus,framework_id,model,tp"
        path.write_text(f"{head}\na-1,h100-sxm,8,fsdp,Llama3 8B,1\na-2,abacus,8,fsdp,Llama3 8B,1\n")
        outcome = foretell("validate", "training", str(path), "--commands")
        first, second = outcome.out.splitlines()
        assert first.startswith("foretell estimate llama-3-8b --system h100-sxm --gpus 8 ")
        assert first.endswith("framework=fsdp' # a-1")
        assert second == "# a-2: the chip abacus is not in the catalogue"
        told = foretell("validate", "training", str(path), "--commands", "--json").json["commands"]
        assert [one["id"] for one in told] == ["a-1", "a-2"]
        assert told[0]["command"] == first
        assert "abacus" in told[1]["reason"]

    @pytest.mark.parametrize("name", ["measured_runs.csv.gz", "measured_runs_2.csv.gz"])
    def test_what_is_printed_gives_what_is_scored(self, data_dir: Path, name: str) -> None:
        """The first and the last scored run of every source and framework, by the command line."""
        rows = read_rows(data_dir / "training" / name)
        groups: dict[tuple[str, str], list[TrainingRow]] = {}
        for row in rows:
            if row.step_s or row.rate:
                groups.setdefault((row.source, row.framework), []).append(row)
        checked = 0
        for group in groups.values():
            for row in {id(one): one for one in (group[0], group[-1])}.values():
                told = prediction_of(row)
                if isinstance(told, str):
                    continue
                line, _, number = told.asked.command().rpartition(" # ")
                assert number == row.id
                program, *words = shlex.split(line)
                assert program == "foretell"
                answer = foretell(*words, "--json").json
                assert answer["step_s"] == pytest.approx(told.answer.step_s, rel=1e-9), line
                checked += 1
        assert checked >= len(groups)


class TestPublishedData:
    """Bounds as measured, with a margin; the frameworks' own time is not yet in the estimate."""

    def test_every_row_is_scored_or_has_a_reason(self, scores: Mapping[str, Any]) -> None:
        assert scores["rows"] == 3224
        assert scores["scored"] + len(scores["unsupported"]) == scores["rows"]
        assert not [u for u in scores["unsupported"] if u["reason"].startswith("fault")]
        assert scores["supported_share"] > 0.96

    def test_sources(self, scores: Mapping[str, Any]) -> None:
        assert scores["sources"] >= 25
        assert scores["median_of_sources"] < 0.16
        assert scores["by_source"]["Korthikanti et al. 2022 Table 5"]["median_ape"] < 0.08
        assert scores["by_framework"]["megatron-core"]["median_ape"] < 0.12

    def test_left_out_differs_only_where_something_was_read(
        self, data_dir: Path, scores: Mapping[str, Any]
    ) -> None:
        rows = read_rows(data_dir / "training" / "measured_runs.csv.gz")[:20]
        some = score_rows(rows, "source").to_dict()
        assert some["leave_one_out"] == "source"
        told = {p["id"]: p["predicted"] for p in scores["predictions"]}
        assert all(told[p["id"]] == p["predicted"] for p in some["predictions"])


def test_a_strange_row_says_fault_and_not_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr("foretell.lab.validate.training.answer_of", broken)
    assert prediction_of(make_row()) == "fault: ZeroDivisionError: by nothing"


def test_prediction_blocks_are_read_out_of_the_operations_in_print() -> None:
    row = TrainingRow(
        id="1", model="DeepSeekV3", family="moe", layers=61, hidden=7168, heads=128, experts=256,
        top_k=8, seq_len=4096, rate=4912.0, tera_flop_per_s=1276.0,
    )  # fmt: skip
    assert model_text(row) == "deepseek-v3"
    without = replace(row, tera_flop_per_s=0.2491 * 4912.0)
    assert model_text(without) == "deepseek-v3:prediction=no"
    assert model_text(replace(row, tera_flop_per_s=None)) == "deepseek-v3:prediction=no"
    # Counts of another convention say nothing.
    assert model_text(replace(row, tera_flop_per_s=0.5 * 4912.0)) == "deepseek-v3:prediction=no"
    assert model_text(replace(without, model="DeepSeekV3 (w/ MTP)")) == "deepseek-v3"
