#!/bin/bash
# hostfile: two workers, slots=8 each
deepspeed --hostfile=hostfile --num_nodes 2 --num_gpus 8 --master_port 29501 run_clm.py \
  --deepspeed ds_zero3_offload.json \
  --model_name_or_path meta-llama/Llama-2-13b-hf --dataset_name wikitext --dataset_config_name wikitext-2-raw-v1 \
  --do_train --bf16 --block_size 4096 --per_device_train_batch_size 2 --gradient_accumulation_steps 8 \
  --learning_rate 1e-5 --num_train_epochs 1 --output_dir out --gradient_checkpointing --report_to wandb
