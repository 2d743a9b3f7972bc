# prefill
CUDA_VISIBLE_DEVICES=0,1,2,3 vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 4 --port 8100 --max-model-len 16384 --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_producer"}' &
# decode
CUDA_VISIBLE_DEVICES=4,5,6,7 vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 4 --port 8200 --max-num-seqs 512 --max-model-len 16384 --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_consumer"}' &
python3 toy_proxy_server.py --prefiller-port 8100 --decoder-port 8200
