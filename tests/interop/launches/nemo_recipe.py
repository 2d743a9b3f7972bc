from nemo.collections import llm
recipe = llm.llama3_70b.pretrain_recipe(name="x", dir="/ckpt", num_nodes=8, num_gpus_per_node=8)
recipe.trainer.strategy.tensor_model_parallel_size = 4
recipe.trainer.strategy.pipeline_model_parallel_size = 4
recipe.trainer.strategy.virtual_pipeline_model_parallel_size = 5
recipe.data.global_batch_size = 128
recipe.data.micro_batch_size = 1
