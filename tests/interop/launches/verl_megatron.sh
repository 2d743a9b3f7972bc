python3 -m verl.trainer.main_ppo --config-path=config --config-name='ppo_megatron_trainer.yaml' algorithm.adv_estimator=grpo \
 data.train_batch_size=512 data.max_prompt_length=1024 data.max_response_length=2048 actor_rollout_ref.model.path=Qwen/Qwen3-30B-A3B \
 actor_rollout_ref.actor.strategy=megatron actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4 actor_rollout_ref.actor.megatron.expert_model_parallel_size=4 \
 actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=2 actor_rollout_ref.actor.ppo_mini_batch_size=128 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 \
 actor_rollout_ref.rollout.n=8 actor_rollout_ref.rollout.tensor_model_parallel_size=4 trainer.n_gpus_per_node=8 trainer.nnodes=4
