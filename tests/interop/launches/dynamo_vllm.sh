python -m dynamo.vllm --model Qwen/Qwen3-32B --tensor-parallel-size 2 --max-num-seqs 128 --kv-cache-dtype fp8
