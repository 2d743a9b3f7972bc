ray job submit --address="http://127.0.0.1:8265" -- python3 -m openrlhf.cli.train_ppo_ray \
 --actor.num_nodes 2 --actor.num_gpus_per_node 8 --ref.num_nodes 2 --ref.num_gpus_per_node 8 --train.colocate_all \
 --vllm.num_engines 8 --vllm.tensor_parallel_size 2 --vllm.gpu_memory_utilization 0.6 --vllm.enable_sleep \
 --actor.model_name_or_path Qwen/Qwen3-4B-Thinking-2507 --rollout.batch_size 128 --rollout.n_samples_per_prompt 8 --rollout.max_new_tokens 8192 \
 --train.batch_size 1024 --train.micro_batch_size 1 --ds.zero_stage 3 --ds.packing_samples --data.max_len 10240 --algo.advantage.estimator reinforce_baseline
