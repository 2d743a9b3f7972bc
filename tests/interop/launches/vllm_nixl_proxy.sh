MODEL=meta-llama/Llama-3.1-8B-Instruct
CUDA_VISIBLE_DEVICES=0 vllm serve $MODEL --port 8100 --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_both"}' &
CUDA_VISIBLE_DEVICES=1 vllm serve $MODEL --port 8200 --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_both"}' &
sleep 60
python tests/v1/kv_connector/nixl_integration/toy_proxy_server.py --port 8192 --prefiller-ports 8100 --decoder-ports 8200
vllm bench serve --num-prompts 100
