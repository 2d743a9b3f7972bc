cat > ds.json <<'JSON'
{"train_batch_size": 128, "gradient_accumulation_steps": 2, "fp16": {"enabled": true},
 "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": true}}}
JSON
deepspeed --num_gpus 8 --num_nodes 4 train.py --deepspeed --deepspeed_config ds.json
