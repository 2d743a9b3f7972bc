"""Servers of one machine as their commands start them, each with the profile of its own engine."""

import pytest

import foretell
from foretell.api.launches import merge_launch, read_launch
from foretell.catalog import model as catalog_model

READ = [
    # huggingface/text-generation-inference, launcher/src/main.rs (3.x)
    ("text-generation-launcher --model-id m --quantize awq --max-batch-total-tokens 60000",
     "weights=int4 cache_tokens=60000"),
    ("text-generation-launcher --model-id m --cuda-graphs 1,2,64", "graph_batch=64"),
    ("text-generation-launcher --model-id m --cuda-graphs 0", "no-graph"),
    ("text-generation-launcher --model-id m --max-batch-size 16", "max_batch=16"),
    ("text-generation-launcher --model-id m --lora-adapters a,b=/c", "adapters=2"),
    ("text-generation-launcher --model-id m --speculate 3", "draft_tokens=3 drafter=ngram"),
    # ggml-org/llama.cpp, tools/server/README.md
    ("llama-server -m M-Q4_K_M.gguf -c 32768 -np 4 -ub 1024", "cache_tokens=32768 max_tokens=1024"),
    ("llama-server -m M-Q8_0.gguf -ctk q8_0 -ctv q8_0", "weights=int8 kv=int8"),
    ("llama-server -m M-Q8_0.gguf -md D.gguf --draft-max 8", "draft_tokens=8 drafter=model"),
    ("llama-server -m M-Q8_0.gguf -ts 1,1", "pp2"),
    # ollama/ollama, docs/faq.md
    ("OLLAMA_NUM_PARALLEL=2 OLLAMA_KV_CACHE_TYPE=q8_0 ollama run m:8b", "max_batch=2 kv=int8"),
    ("ollama run m:8b-instruct-q8_0", "weights=int8 max_batch=1"),
    # ml-explore/mlx-lm, mlx_lm/server.py
    ("mlx_lm.server --model a/M-8bit --decode-concurrency 4", "weights=int8 max_batch=4"),
    ("python -m mlx_lm.generate --model a/M-4bit --kv-bits 8", "weights=int4 kv=int8"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "words"), READ, ids=lambda value: str(value)[:70])
def test_a_flag_is_read_as_its_server_means_it(command: str, words: str) -> None:
    launch = read_launch(command)
    assert set(words.split()) <= set(launch.plan.split()), launch.plan
    assert not launch.unknown
    assert not launch.unmodelled


@pytest.mark.parametrize(
    ("command", "profile"),
    [
        ("text-generation-launcher --model-id meta-llama/Llama-3.1-8B", "tgi-3"),
        ("llama-server -m models/Llama-3.1-8B-Q4_K_M.gguf", "llamacpp-2025"),
        ("ollama run llama3.1:8b", "llamacpp-2025"),
        ("mlx_lm.server --model mlx-community/Llama-3.1-8B-Instruct-4bit", "mlx"),
    ],
)
def test_a_command_is_answered_with_its_own_engine(command: str, profile: str) -> None:
    load = {"system": "apple-m3-ultra", "concurrency": 1, "isl": 200, "osl": 50}
    found = foretell.serve(**merge_launch(read_launch(command), "", load))
    assert found.profile == profile


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("llama-server -m M-Q6_K.gguf", "6 bits"),
        ("llama-server -m M-Q4_0.gguf --n-cpu-moe 10", "n_cpu_moe"),
        (
            "text-generation-launcher --model-id m --waiting-served-ratio 1.2",
            "waiting_served_ratio",
        ),
    ],
)
def test_what_bears_on_the_answer_and_is_not_modelled_is_a_warning(command: str, name: str) -> None:
    assert any(name in text for text in read_launch(command).warnings())


def test_a_distilled_model_is_not_the_one_it_was_distilled_from() -> None:
    whole, small = (read_launch(f"ollama run deepseek-r1:{size}") for size in ("671b", "70b"))
    assert [catalog_model(name).id for name in whole.models] == ["deepseek-v3"]
    assert [catalog_model(name).id for name in small.models] in ([], ["llama-3.1-70b"])
