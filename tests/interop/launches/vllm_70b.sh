export HF_TOKEN=hf_xxx
vllm serve meta-llama/Llama-3.1-70B-Instruct \
  --tensor-parallel-size 4 --max-model-len 8192 --gpu-memory-utilization 0.92 \
  --max-num-seqs 256 --max-num-batched-tokens 8192 --kv-cache-dtype fp8 --port 8000 --enable-prefix-caching
