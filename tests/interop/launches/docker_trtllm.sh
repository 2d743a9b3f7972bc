docker run --rm -it --ipc host --gpus all --ulimit memlock=-1 --ulimit stack=67108864 -p 8000:8000 -e TLLM_LOG_LEVEL=INFO -w /app nvcr.io/nvidia/tensorrt-llm/release:1.1.0 \
  trtllm-serve Qwen/Qwen3-32B --backend pytorch --tp_size 2 --max_batch_size 128 --max_num_tokens 8192 --kv_cache_free_gpu_memory_fraction 0.85 --host 0.0.0.0
