torchrun --nproc_per_node 4 run_clm.py \
    --model_name_or_path meta-llama/Llama-3.2-1B \
    --dataset_name wikitext --dataset_config_name wikitext-2-raw-v1 \
    --per_device_train_batch_size 8 --gradient_accumulation_steps 2 --block_size 2048 \
    --bf16 true --gradient_checkpointing true --do_train --output_dir /tmp/test-clm
