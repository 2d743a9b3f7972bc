#!/bin/bash
# Runs the "7B" parameter model
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
MASTER_ADDR=localhost
MASTER_PORT=6000
NUM_NODES=2
NODE_RANK=0
WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))
CHECKPOINT_PATH=$1
DATA_PATH=$2
DISTRIBUTED_ARGS="--nproc_per_node $GPUS_PER_NODE --nnodes $NUM_NODES --node_rank $NODE_RANK --master_addr $MASTER_ADDR --master_port $MASTER_PORT"
OPTIONS=" \
  --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 11008 \
  --swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights \
  --position-embedding-type rope --seq-length 4096 --max-position-embeddings 4096 --bf16 \
  --tensor-model-parallel-size 2 --pipeline-model-parallel-size 1 --sequence-parallel \
  --micro-batch-size 2 --global-batch-size 256 --use-flash-attn --use-distributed-optimizer \
  --tokenizer-type Llama2Tokenizer --tokenizer-model $TOKENIZER --no-save-optim --optimizer adam --log-params-norm"
torchrun $DISTRIBUTED_ARGS pretrain_gpt.py $OPTIONS --save $CHECKPOINT_PATH --data-path $DATA_PATH "$@"
