#!/bin/bash
source ~/miniconda3/etc/profile.d/conda.sh
conda activate vllm
mkdir -p logs
CUDA_VISIBLE_DEVICES=4,5,6,7 VLLM_USE_V1=1 nohup python -m vllm.entrypoints.openai.api_server \
    --model /data/models/Qwen3-14B \
    --served-model-name qwen3-14b \
    --tensor_parallel_size=4 --dtype bfloat16 \
    --gpu_memory_utilization 0.90 --max_model_len 16384 \
    --disable-log-requests > logs/vllm_$(date +%F).log 2>&1 &
echo "started $!"
