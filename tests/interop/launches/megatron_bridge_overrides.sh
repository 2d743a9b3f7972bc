torchrun --nnodes=4 --nproc-per-node=8 scripts/training/run_recipe_megatron_bridge.py \
  model.hf_model_id=Qwen/Qwen3-32B \
  model.tensor_model_parallel_size=8 model.pipeline_model_parallel_size=1 model.context_parallel_size=1 \
  model.sequence_parallel=true model.seq_length=4096 \
  train.micro_batch_size=1 train.global_batch_size=256 train.train_iters=100 \
  ddp.use_distributed_optimizer=true ddp.overlap_grad_reduce=true ddp.grad_reduce_in_fp32=false \
  mixed_precision=bf16_mixed
