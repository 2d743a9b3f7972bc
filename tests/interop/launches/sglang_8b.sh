python -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct --tp-size 2 --dp-size 2 \
  --quantization fp8 --kv-cache-dtype fp8_e5m2 --host 0.0.0.0 --port 30000
