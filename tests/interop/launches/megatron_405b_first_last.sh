torchrun --nnodes 64 --nproc_per_node 8 pretrain_gpt.py --num-layers 126 --hidden-size 16384 \
  --ffn-hidden-size 53248 --num-attention-heads 128 --group-query-attention --num-query-groups 8 --swiglu \
  --normalization RMSNorm --disable-bias-linear --position-embedding-type rope \
  --untie-embeddings-and-output-weights --vocab-size 128256 --make-vocab-size-divisible-by 16 \
  --tokenizer-type HuggingFaceTokenizer --tokenizer-model meta-llama/Llama-3.1-405B \
  --seq-length 8192 --max-position-embeddings 8192 --tensor-model-parallel-size 8 \
  --pipeline-model-parallel-size 16 --account-for-embedding-in-pipeline-split \
  --account-for-loss-in-pipeline-split --sequence-parallel --tp-comm-overlap --micro-batch-size 1 \
  --global-batch-size 256 --bf16 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather
