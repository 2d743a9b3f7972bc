: "${NUM_GPUS:=4}"
uv run --isolated --extra vllm -m skyrl_train.entrypoints.main_base \
  trainer.policy.model.path="Qwen/Qwen2.5-1.5B-Instruct" \
  trainer.placement.colocate_all=true trainer.strategy=fsdp2 \
  trainer.placement.policy_num_gpus_per_node=$NUM_GPUS \
  generator.num_inference_engines=$NUM_GPUS \
  generator.inference_engine_tensor_parallel_size=1 \
  trainer.train_batch_size=1024 trainer.policy_mini_batch_size=256 \
  trainer.micro_train_batch_size_per_gpu=40 trainer.max_prompt_length=512 \
  generator.sampling_params.max_generate_length=1024 \
  generator.n_samples_per_prompt=5 generator.gpu_memory_utilization=0.8
