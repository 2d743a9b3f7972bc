"""Arguments of Megatron-LM that take no value, that change no answer, and that each value is read from."""

from collections.abc import Mapping

from foretell.interop.keys import CHIP_KEYS

SWITCHES = frozenset(
    """sequence_parallel use_distributed_optimizer bf16 fp16 overlap_grad_reduce overlap_param_gather
    tp_comm_overlap use_megatron_fsdp use_custom_fsdp use_torch_fsdp2 recompute_activations swiglu
    group_query_attention untie_embeddings_and_output_weights disable_bias_linear use_flash_attn
    multi_latent_attention qk_layernorm overlap_moe_expert_parallel_comm moe_enable_deepep
    grad_reduce_in_bf16 accumulate_allreduce_grads_in_fp32 use_precision_aware_optimizer
    optimizer_cpu_offload cpu_offloading use_tp_pp_dp_mapping fp8_param_gather moe_grouped_gemm
    add_qkv_bias use_mcore_models mock_data delay_wgrad_compute first_last_layers_bf16""".split()
)
"""Flags without a value."""
IGNORED = frozenset(
    """lr min_lr lr_decay_style lr_warmup_iters lr_warmup_fraction lr_warmup_samples lr_decay_iters
    lr_decay_samples weight_decay clip_grad adam_beta1 adam_beta2 adam_eps init_method_std seed train_iters
    train_samples data_path split save load save_interval log_interval eval_interval eval_iters
    tensorboard_dir wandb_project wandb_exp_name tokenizer_model tokenizer_type vocab_file merge_file
    attention_dropout hidden_dropout rotary_base rotary_percent use_rotary_position_embeddings
    rope_scaling_factor norm_epsilon layernorm_epsilon no_masked_softmax_fusion distributed_backend
    distributed_timeout_minutes use_mcore_models transformer_impl moe_grouped_gemm moe_permute_fusion
    moe_aux_loss_coeff moe_router_dtype moe_router_score_function
    moe_router_bias_update_rate moe_router_group_topk moe_router_num_groups
    moe_router_topk_scaling_factor moe_router_pre_softmax mock_data
    num_workers master_addr master_port node_rank rdzv_id rdzv_backend rdzv_endpoint ckpt_format
    log_throughput manual_gc manual_gc_interval use_cpu_initialization exit_duration_in_mins
    overlap_param_gather gradient_accumulation_fusion no_gradient_accumulation_fusion
    cross_entropy_loss_fusion cross_entropy_fusion_impl bias_swiglu_fusion bias_dropout_fusion
    position_embedding_type moe_layer_freq delay_wgrad_compute fsdp_double_buffer use_nccl_ub
    calculate_per_token_loss init_model_with_meta_device tp_comm_bootstrap_backend
    eval_interval split mock_data train_iters average_in_collective check_for_nan_in_grad dataloader_type
    tee m standalone use_precision_aware_optimizer grad_reduce_in_fp32 apply_query_key_layer_scaling
    accumulate_allreduce_grads_in_fp32 accelerator max_steps log_every_n_steps mcore_gpt name optim sched
    megatron_amp_O2 transformer_engine resume_if_exists create_* explicit_log_dir gradient_as_bucket_view
    apply_layernorm_1p apply_rope_fusion no_rope_fusion no_save_* no_load_* no_bias_*
    check_for_nan_in_loss_and_grad log_* timing_log_level tensorboard_* wandb_* save_* load_* ckpt_*
    dist_ckpt_* async_save eval_* exit_* use_dist_ckpt use_checkpoint_* rotary_* rope_* use_rope_scaling
    mmap_bin_files no_mmap_bin_files num_dataset_builder_threads data_* train_data_path valid_data_path
    test_data_path reset_* eod_mask_loss attention_softmax_in_fp32 masked_softmax_fusion persist_layer_norm
    use_legacy_models enable_* profile* cuda_graph_warmup_steps empty_unused_memory_level
    high_priority_stream_groups distribute_saved_activations override_opt_param_scheduler use_tokenizer_*
    decoupled_* start_weight_decay end_weight_decay weight_decay_incr_style loss_scale initial_loss_scale
    min_loss_scale hysteresis recompute_loss_function bias_gelu_fusion bias_activation_fusion
    deterministic_mode te_rng_tracker inference_* moe_z_loss_coeff moe_input_jitter_eps
    moe_per_layer_logging moe_router_* ddp_* suggested_communication_unit_size
    pad_buckets_for_high_nccl_busbw align_* overlap_param_gather_with_* use_sharp sharp_enabled_group
    nccl_communicator_config_path cp_* node_rank local_addr squared_relu exp_manager restore_from_path
    hidden_act activation pipeline_dtype tokenizer_library library merges_file special_tokens
    tokenizer""".split()
)
"""Arguments that change no time, memory or cost that is told here."""
SOURCES: Mapping[str, tuple[str, ...]] = {
    "model": ("num_layers", "hidden_size", "hf_model_id", "hf_model_path", "tokenizer_model"),
    "gpus": CHIP_KEYS,
    "global_batch": ("global_batch_size", "micro_batch_size"),
    "seq_len": ("seq_length", "encoder_seq_length", "sequence_length"),
    "tp": ("tensor_model_parallel_size",),
    "pp": ("pipeline_model_parallel_size",),
    "vpp": ("virtual_pipeline_model_parallel_size", "num_virtual_stages_per_pipeline_rank",
            "num_layers_per_virtual_pipeline_stage", "pipeline_model_parallel_layout"),
    "dp": CHIP_KEYS,
    "cp": ("context_parallel_size",),
    "ep": ("expert_model_parallel_size",),
    "etp": ("expert_tensor_parallel_size",),
    "zero": ("use_distributed_optimizer", "use_megatron_fsdp", "use_custom_fsdp", "use_torch_fsdp2",
             "data_parallel_sharding_strategy", "name"),
    "micro_batch": ("micro_batch_size",),
    "sp": ("sequence_parallel", "no_sequence_parallel"),
    "order": ("use_tp_pp_dp_mapping",),
    "layout": ("pipeline_model_parallel_layout", "num_layers_in_first_pipeline_stage",
               "num_layers_in_last_pipeline_stage", "decoder_first_pipeline_num_layers",
               "decoder_last_pipeline_num_layers", "account_for_embedding_in_pipeline_split",
               "account_for_loss_in_pipeline_split"),
    "flash": ("attention_backend", "use_flash_attn"),
    "attention": ("attention_backend",),
    "cp_mode": ("cp_comm_type",),
    "recompute": ("recompute_granularity", "recompute_activations", "recompute_method",
                  "recompute_modules", "activations_checkpoint_granularity"),
    "precision": ("bf16", "fp16", "fp8_format", "fp8", "fp8_recipe", "fp4_format", "fp4", "mixed_precision",
                  "transformer_impl", "precision"),
    "scaling": ("fp8_recipe",),
    "wide_layers": ("first_last_layers_bf16", "num_layers_at_start_in_bf16", "num_layers_at_end_in_bf16"),
    "gradients": ("grad_reduce_in_bf16", "grad_reduce_in_fp32", "main_grads_dtype",
                  "accumulate_allreduce_grads_in_fp32"),
    "master": ("main_params_dtype",),
    "states": ("exp_avg_dtype", "exp_avg_sq_dtype"),
    "gather": ("fp8_param_gather", "fp8_param"),
    "dispatch": ("moe_token_dispatcher_type", "moe_enable_deepep", "moe_flex_dispatcher_backend"),
    "ep_overlap": ("overlap_moe_expert_parallel_comm", "moe_shared_expert_overlap"),
    "routing": ("moe_router_load_balancing_type", "moe_router_enable_expert_bias",
                "moe_router_force_load_balancing"),
    "capacity": ("moe_expert_capacity_factor",),
    "shard": ("num_distributed_optimizer_instances",),
    "optimizer": ("optimizer", "name"),
    "offload": ("optimizer_cpu_offload", "cpu_offloading", "cpu_offloading_num_layers"),
    "framework": ("overlap_grad_reduce", "tp_comm_overlap", "enable_cuda_graph", "cuda_graph_impl"),
    "tp_overlap": ("tp_comm_overlap",),
    "lora": ("dim",),
}  # fmt: skip
"""The arguments that each value is from."""
