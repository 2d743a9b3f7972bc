python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 16 --dp 16 --enable-dp-attention \
  --moe-a2a-backend deepep --deepep-mode auto --mem-fraction-static 0.85 --nnodes 2 --node-rank 0 \
  --dist-init-addr 10.0.0.1:5000 --trust-remote-code --chunked-prefill-size 4096 --max-running-requests 512
