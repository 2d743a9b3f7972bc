#!/bin/bash
# Llama 3.1 70B with more pipeline and recomputation than it needs: foretell improve says what to change.
#SBATCH --nodes=16
#SBATCH --gpus-per-node=h100:8
torchrun --nnodes 16 --nproc_per_node 8 pretrain_gpt.py \
  --num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 --group-query-attention --num-query-groups 8 \
  --swiglu --normalization RMSNorm --disable-bias-linear --position-embedding-type rope --untie-embeddings-and-output-weights \
  --vocab-size 128256 --tokenizer-type HuggingFaceTokenizer --tokenizer-model meta-llama/Llama-3.1-70B \
  --seq-length 8192 --max-position-embeddings 8192 --micro-batch-size 1 --global-batch-size 256 --bf16 \
  --tensor-model-parallel-size 8 --pipeline-model-parallel-size 8 --sequence-parallel --use-distributed-optimizer \
  --overlap-grad-reduce --overlap-param-gather --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 \
  --lr 1.5e-4 --train-iters 1000 --mock-data
