#!/bin/bash
# Llama 3.1 70B on 64 GPUs, as one would start it with Megatron-LM: foretell estimate --import reads it.
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=8
MODEL_ARGS=(
    --tokenizer-type HuggingFaceTokenizer
    --tokenizer-model meta-llama/Llama-3.1-70B
    --seq-length 8192
)
PARALLEL_ARGS=(
    --tensor-model-parallel-size 8
    --pipeline-model-parallel-size 2
    --num-layers-per-virtual-pipeline-stage 10
    --sequence-parallel
    --use-distributed-optimizer
    --overlap-grad-reduce --overlap-param-gather --tp-comm-overlap
)
srun torchrun pretrain_gpt.py "${MODEL_ARGS[@]}" "${PARALLEL_ARGS[@]}" \
    --micro-batch-size 1 --global-batch-size ${BATCH:-128} --bf16 --lr 1.5e-4 --my-own-batch-rule 3
