python -m verl.experimental.fully_async_policy.fully_async_main --config-path=config --config-name='fully_async_ppo_trainer.yaml' \
  data.train_batch_size=0 data.gen_batch_size=1 data.max_prompt_length=2048 data.max_response_length=28672 \
  actor_rollout_ref.rollout.n=16 actor_rollout_ref.actor.strategy=fsdp2 actor_rollout_ref.model.path=Qwen/Qwen2.5-Math-7B \
  actor_rollout_ref.actor.ppo_mini_batch_size=32 actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_max_token_len_per_gpu=30720 \
  actor_rollout_ref.actor.fsdp_config.param_offload=True actor_rollout_ref.ref.fsdp_config.param_offload=True actor_rollout_ref.rollout.tensor_model_parallel_size=1 \
  algorithm.adv_estimator=grpo trainer.nnodes=8 trainer.n_gpus_per_node=8 rollout.nnodes=8 rollout.n_gpus_per_node=8 \
  async_training.staleness_threshold=0.5 async_training.trigger_parameter_sync_step=4 async_training.require_batches=4 async_training.partial_rollout=True
