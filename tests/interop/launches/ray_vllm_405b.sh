#!/usr/bin/env bash
# node 0 of 2; the other runs: ray start --address=$HEAD_IP:6379 --block
export VLLM_HOST_IP=$(hostname -I | awk '{print $1}')
export NCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0
ray stop -f
ray start --head --port=6379 --num-gpus=8
sleep 10
vllm serve meta-llama/Llama-3.1-405B-Instruct-FP8 \
  --tensor-parallel-size 8 --pipeline-parallel-size 2 \
  --distributed-executor-backend ray \
  --max-model-len 32768 --max-num-seqs 128 --gpu-memory-utilization 0.95 \
  --enable-chunked-prefill --served-model-name llama405 --port 8000 2>&1 | tee vllm.log
