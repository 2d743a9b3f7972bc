#!/bin/bash
#SBATCH --nodes=16
#SBATCH --gres=gpu:8
srun python pretrain_gpt.py --num-layers 48 --hidden-size 6144 --num-attention-heads 48 --seq-length 4096 \
  --max-position-embeddings 4096 --tokenizer-type HuggingFaceTokenizer \
  --tokenizer-model meta-llama/Llama-3.1-8B --vocab-size 128256 --micro-batch-size 1 \
  --tensor-model-parallel-size 4 --pipeline-model-parallel-size 4 --fp16 --recompute-activations \
  --use-distributed-optimizer
