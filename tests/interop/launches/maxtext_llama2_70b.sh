python3 -m MaxText.train MaxText/configs/base.yml run_name=llama2-70b model_name=llama2-70b \
  base_output_directory=gs://bucket steps=30 enable_checkpointing=false per_device_batch_size=2 \
  max_target_length=4096 remat_policy=full ici_fsdp_parallelism=-1 ici_tensor_parallelism=4 \
  dataset_type=synthetic attention=flash
