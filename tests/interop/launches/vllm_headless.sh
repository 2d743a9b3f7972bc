# node 0 (10.0.0.1)
vllm serve deepseek-ai/DeepSeek-V3 --data-parallel-size 16 --data-parallel-size-local 8 \
    --data-parallel-address 10.0.0.1 --data-parallel-rpc-port 13345 --enable-expert-parallel --max-model-len 8192
# node 1
# vllm serve deepseek-ai/DeepSeek-V3 --headless --data-parallel-size 16 --data-parallel-size-local 8 --data-parallel-start-rank 8 --data-parallel-address 10.0.0.1 --data-parallel-rpc-port 13345 --enable-expert-parallel
