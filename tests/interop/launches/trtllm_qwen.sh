cat > /tmp/extra.yml <<EOF2
enable_attention_dp: true
kv_cache_config:
  dtype: fp8
  free_gpu_memory_fraction: 0.85
cuda_graph_config:
  enable_padding: true
EOF2
trtllm-serve Qwen/Qwen3-235B-A22B --backend pytorch --max_batch_size 128 --max_num_tokens 4096 \
  --tp_size 8 --ep_size 8 --pp_size 1 --extra_llm_api_options /tmp/extra.yml --host 0.0.0.0 --port 8000
