accelerate launch --config_file examples/accelerate_configs/deepspeed_zero3.yaml --num_processes 8 examples/scripts/dpo.py \
    --dataset_name trl-lib/ultrafeedback_binarized --model_name_or_path Qwen/Qwen2.5-7B-Instruct --learning_rate 5.0e-7 \
    --num_train_epochs 1 --per_device_train_batch_size 2 --gradient_accumulation_steps 8 --max_length 2048 --eval_strategy steps --eval_steps 50 --output_dir out --no_remove_unused_columns
