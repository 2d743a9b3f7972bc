source "${SCRIPT_DIR}/models/qwen3-4B.sh"
CKPT_ARGS=(
   --hf-checkpoint /root/Qwen3-4B
   --ref-load /root/Qwen3-4B_torch_dist
)
ROLLOUT_ARGS=(
   --prompt-data /root/d.jsonl
   --rollout-batch-size 64
   --n-samples-per-prompt 8
   --rollout-max-response-len 8192
   --num-steps-per-rollout 2
)
PERF_ARGS=(
   --tensor-model-parallel-size 2
   --sequence-parallel
   --context-parallel-size 2
   --recompute-granularity full
   --use-dynamic-batch-size
   --max-tokens-per-gpu 9216
)
SGLANG_ARGS=(
   --rollout-num-gpus-per-engine 2
   --sglang-mem-fraction-static 0.7
)
ray job submit -- python3 train_async.py \
   --actor-num-nodes 1 --actor-num-gpus-per-node 8 --rollout-num-gpus 8 \
   ${MODEL_ARGS[@]} ${CKPT_ARGS[@]} ${ROLLOUT_ARGS[@]} ${PERF_ARGS[@]} ${SGLANG_ARGS[@]}
