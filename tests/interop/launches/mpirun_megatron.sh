#!/bin/bash
GPUS_PER_NODE=8
NNODES=2
WORLD_SIZE=$(($GPUS_PER_NODE*$NNODES))
mpirun -np $WORLD_SIZE --hostfile hosts.txt --allow-run-as-root -map-by slot -x NCCL_DEBUG=INFO -x CUDA_DEVICE_MAX_CONNECTIONS=1 -x PATH \
  python pretrain_gpt.py \
  --num-layers 48 --hidden-size 8192 --num-attention-heads 64 --seq-length 2048 --max-position-embeddings 2048 \
  --tensor-model-parallel-size 8 --pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 64 \
  --vocab-size 50257 --tokenizer-type NullTokenizer --fp16 --recompute-activations --use-distributed-optimizer --mock-data
