#!/bin/bash
MODEL=deepseek-ai/DeepSeek-V3-0324
python -m sglang.launch_server --model-path $MODEL --disaggregation-mode prefill \
  --tp-size 32 --dp-size 32 --enable-dp-attention --moe-a2a-backend deepep --deepep-mode normal \
  --mem-fraction-static 0.85 --chunked-prefill-size 524288 --max-running-requests 8192 \
  --enable-two-batch-overlap --ep-num-redundant-experts 32 --port 30000 &
python -m sglang.launch_server --model-path $MODEL --disaggregation-mode decode \
  --tp-size 72 --dp-size 72 --enable-dp-attention --moe-a2a-backend deepep --deepep-mode low_latency \
  --mem-fraction-static 0.835 --max-running-requests 18432 --cuda-graph-bs 256 \
  --enable-two-batch-overlap --ep-num-redundant-experts 32 --port 30001 &
python3 -m sglang_router.launch_router --pd-disaggregation --prefill http://10.0.0.1:30000 --decode http://10.0.0.2:30001
