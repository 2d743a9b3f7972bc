NGPU=8 NNODES=8
torchrun --nproc_per_node=8 --nnodes=8 --rdzv_backend c10d --rdzv_endpoint="$MASTER:29500" --local-ranks-filter 0 \
  --role rank --tee 3 -m torchtitan.train --module llama3 --config llama3_70b \
  --parallelism.tensor_parallel_degree 4 --training.local_batch_size 4 --compile.enable
