docker run --gpus all --shm-size 1g -p 8080:80 -v $PWD/data:/data ghcr.io/huggingface/text-generation-inference:3.3 \
  text-generation-launcher --model-id meta-llama/Llama-3.1-8B-Instruct --num-shard 2 \
  --max-concurrent-requests 128 --quantize fp8 --max-total-tokens 8192
