llama-server -hf Qwen/Qwen3-8B-GGUF:Q4_K_M -c 32768 --parallel 4 -ngl 99 --host 0.0.0.0 --port 8080
