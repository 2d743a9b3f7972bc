set -exo pipefail
MODEL_NAME=${1:-Qwen/Qwen3-8B}
TP=${2:-1}
vllm serve $MODEL_NAME \
    --trust-remote-code \
    --dtype bfloat16 \
    --tensor-parallel-size $TP \
    --gpu-memory-utilization 0.9
