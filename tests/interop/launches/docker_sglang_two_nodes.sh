docker run --gpus all \
  --shm-size 32g \
  --network host --privileged \
  -v /dev/infiniband:/dev/infiniband \
  -v ~/.cache/huggingface:/root/.cache/huggingface \
  --env HF_TOKEN=xxx --ulimit memlock=-1 --ulimit stack=67108864 \
  --ipc=host \
  lmsysorg/sglang:latest \
  python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 16 --dist-init-addr 192.168.114.10:20000 --nnodes 2 --node-rank 0 --trust-remote-code --host 0.0.0.0 --port 40000
