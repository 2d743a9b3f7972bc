vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-seqs 128 \
  --enable-lora --max-loras 2 --max-lora-rank 32 \
  --lora-modules sql=/adapters/sql chat=/adapters/chat legal=/adapters/legal --port 8000
