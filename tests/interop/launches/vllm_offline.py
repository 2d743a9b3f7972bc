import os
from vllm import LLM, SamplingParams

os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
llm = LLM(
    model="Qwen/Qwen2.5-7B-Instruct",
    tensor_parallel_size=2,
    max_model_len=8192,
    gpu_memory_utilization=0.85,
    max_num_seqs=128,
    enforce_eager=True,
    kv_cache_dtype="fp8",
)
params = SamplingParams(temperature=0.7, max_tokens=512)
print(llm.generate(["Hello"] * 1000, params))
