"""Programs that train and serve nothing are refused; adapters behind a switch; blanks to fill in."""

import pytest

from foretell.api.launches import read_launch
from foretell.errors import BadInput

PRETRAIN = (
    "pretrain_gpt.py --tensor-model-parallel-size 2 --num-layers 2 --hidden-size 64 --num-attention-heads 2 "
    "--seq-length 64 --micro-batch-size 1 --global-batch-size 8"
)
NEMO_RL = (
    "policy:\n  model_name: meta-llama/Llama-3.1-8B\n  train_global_batch_size: 128\n"
    "  max_total_sequence_length: 4096\n"
    "  dtensor_cfg: {enabled: false}\n  generation:\n    vllm_kwargs: {moe_backend: triton}\n"
    "  megatron_cfg: {enabled: true, peft: {enabled: %s, dim: 128}}\nsft: {max_num_steps: 9}\n"
    "cluster: {gpus_per_node: 8, num_nodes: 1}\n"
)


@pytest.mark.parametrize(
    "text",
    [
        "swift deploy --model Qwen/Qwen3-8B --infer_backend sglang --sglang_tp_size 2",
        "swift infer --adapters out/checkpoint-1 --stream true --max_batch_size 1",
        "llamafactory-cli export --model_name_or_path Qwen/Qwen3-8B --template qwen --export_dir out",
        "python tools/preprocess_data.py --input a.json --tokenizer-type GPT2BPETokenizer --workers 8",
        "python3 -m verl.trainer.main_generation trainer.n_gpus_per_node=8 model.path=Qwen/Qwen3-8B",
    ],
)
def test_another_verb_of_a_trainer_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        read_launch(text)


@pytest.mark.parametrize(("enabled", "there"), [("true", True), ("false", False)])
def test_adapters_behind_a_switch(enabled: str, there: bool) -> None:
    launch = read_launch(NEMO_RL % enabled)
    assert ("lora=128" in launch.plan.split()) is there
    assert "policy.generation.vllm_kwargs.moe_backend" in launch.unmodelled
    assert not launch.not_understood


def test_places_that_the_user_fills_in_are_asked_for() -> None:
    launch = read_launch(
        "#!/bin/bash\n#SBATCH --nodes=your_own_num_nodes\n#SBATCH --ntasks-per-node=<tasks>\n"
        f"#SBATCH --gres=gpu:your_own_gpus\nsrun python {PRETRAIN}\n"
    )
    assert launch.gpus is None
    assert any("your_own" in ask and "--gpus" in ask for ask in launch.asks)
