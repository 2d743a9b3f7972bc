accelerate launch --num_processes 8 trl/scripts/sft.py \
    --model_name_or_path Qwen/Qwen3-8B \
    --dataset_name trl-lib/Capybara \
    --learning_rate 2.0e-5 \
    --per_device_train_batch_size 2 \
    --gradient_accumulation_steps 8 \
    --max_length 4096 \
    --packing \
    --eos_token '<|im_end|>' \
    --output_dir Qwen3-8B-SFT
