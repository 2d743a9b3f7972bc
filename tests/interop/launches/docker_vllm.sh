docker run --runtime nvidia --gpus '"device=0,1,2,3"' \
    -v ~/.cache/huggingface:/root/.cache/huggingface \
    --env "HF_TOKEN=$HF_TOKEN" -e VLLM_ATTENTION_BACKEND=FLASHINFER \
    -p 8000:8000 --ipc=host --shm-size 16g --name llama70 --rm -d \
    vllm/vllm-openai:v0.11.0 \
    --model meta-llama/Llama-3.3-70B-Instruct \
    --tensor-parallel-size 4 --max-model-len 16384 --gpu-memory-utilization 0.92 --kv-cache-dtype fp8
