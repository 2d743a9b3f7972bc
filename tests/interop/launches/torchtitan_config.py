from mine.models import model_registry
from torchtitan.components.optimizer import default_adamw
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import FullAC
from torchtitan.trainer import Trainer


def qwen3_mine() -> Trainer.Config:
    return Trainer.Config(
        hf_assets_path="./assets/hf/Qwen3-32B",
        model_spec=model_registry("32B"),
        optimizer=default_adamw(lr=8e-4),
        training=TrainingConfig(
            local_batch_size=8, global_batch_size=256, seq_len=4096, steps=3000
        ),
        parallelism=ParallelismConfig(
            data_parallel_replicate_degree=2,
            data_parallel_shard_degree=8,
            tensor_parallel_degree=4,
            pipeline_parallel_degree=2,
            pipeline_parallel_microbatch_size=2,
        ),
        compile=CompileConfig(enable=True),
        activation_checkpoint=FullAC.Config(),
    )
