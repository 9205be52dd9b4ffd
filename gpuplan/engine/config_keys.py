"""The keys each JSON configuration argument accepts at its top level, from the dataclasses of vLLM 0.33;
data only.
"""

CONFIG_KEYS = """\
--quantization-config | linear moe ignore targets
--pooler-config | task pooling_type seq_pooling_type tok_pooling_type use_activation
    enable_flash_late_interaction dimensions enable_chunked_processing max_embed_len logit_mean logit_sigma
    step_tag_id returned_token_ids
--eplb-config | window_size step_interval num_redundant_experts log_balancedness log_balancedness_interval
    use_async policy communicator enable_migration_batching
--fault-tolerance-config | engine_recovery_timeout_sec
--logging-config | log_level formatter configure_logging pylogging_config_file
--ir-op-priority | rms_norm fused_add_rms_norm gelu_and_mul_sparse
--kv-transfer-config | kv_connector engine_id kv_buffer_device kv_role kv_port kv_connector_extra_config
    kv_connector_module_path enable_permute_local_kv kv_load_failure_policy
--kv-events-config | enable_kv_cache_events publisher endpoint replay_endpoint buffer_steps hwm
    max_queue_size topic
--ec-transfer-config | ec_connector engine_id ec_buffer_device ec_buffer_size ec_role ec_ip ec_port
    ec_connector_extra_config ec_connector_module_path
--ec-manager-config | encoder_cache_manager_cls manager_config
--compilation-config | mode debug_dump_path cache_dir compile_cache_save_format backend custom_ops
    ir_enable_torch_wrap splitting_ops compile_mm_encoder cudagraph_mm_encoder
    encoder_cudagraph_token_budgets encoder_cudagraph_max_vision_items_per_batch
    encoder_cudagraph_max_frames_per_batch cudagraph_decoder_replay decoder_replay_cudagraph_capture_sizes
    decoder_replay_trim_threshold compile_sizes compile_ranges_endpoints inductor_compile_config
    inductor_passes cudagraph_mode cudagraph_num_of_warmups cudagraph_capture_sizes cudagraph_copy_inputs
    cudagraph_specialize_lora use_inductor_graph_partition pass_config max_cudagraph_capture_size
    dynamic_shapes_config fast_moe_cold_start
--attention-config | backend minimax_m3_msa_decode_backend backend_per_kind flash_attn_version
    flash_attn_max_num_splits_for_cuda_graph tokenspeed_mla_min_split_kv tq_max_kv_splits_for_cuda_graph
    use_trtllm_attention disable_flashinfer_q_quantization mla_prefill_backend
    use_prefill_query_quantization trtllm_ragged_backend indexer_kv_dtype indexer_sparse_logits
    indexer_tp_shard_min_rows minimax_m3_indexer_cp hisparse_config use_non_causal sparse_mla_force_mqa
    sparse_mla_prefill_workspace_factor flex_attn_block_m flex_attn_block_n flex_attn_q_block_size
    flex_attn_kv_block_size
--engram-config | cpu_offload embedding_across_dp dp_shared_memory use_thp
--reasoning-config | reasoning_parser reasoning_start_str reasoning_end_str
--kernel-config | ir_op_priority enable_flashinfer_autotune enable_rocm_segmented_attn_autotune
    enable_cutedsl_warmup enable_jit_warmup monokernel moe_backend sparse_indexer_topk_backend
    linear_backend linear_backend_per_quant
--structured-outputs-config | backend disable_any_whitespace disable_additional_properties reasoning_parser
    reasoning_parser_plugin enable_in_reasoning
--aux-output-config | enable_return_routed_experts max_bytes
--profiler-config | profiler torch_profiler_dir torch_profiler_activities proton_profiler_dir proton_context
    proton_data proton_backend proton_mode proton_hook proton_output_format proton_graph_attribution
    torch_profiler_with_stack torch_profiler_with_flops torch_profiler_use_gzip
    torch_profiler_dump_cuda_time_total torch_profiler_record_shapes torch_profiler_with_memory
    capture_torch_profiler detailed_trace_annotation ignore_frontend delay_iterations max_iterations
    warmup_iterations active_iterations wait_iterations
--watchdog-config | timeout check_interval dump_dir
--weight-transfer-config | backend
--speculative-config | enforce_eager num_speculative_tokens model method draft_tensor_parallel_size
    tensor_parallel_size quantization moe_backend attention_backend kv_cache_dtype max_model_len revision
    code_revision index_share_for_mtp_iteration disable_padded_drafter_batch disable_eagle_block_drop
    disable_lookahead_block_hashes draft_lm_head_quantization use_local_argmax_reduction
    use_heterogeneous_vocab prompt_lookup_max prompt_lookup_min parallel_drafting
    num_speculative_tokens_per_batch_size suffix_decoding_max_tree_depth suffix_decoding_max_cached_requests
    suffix_decoding_max_spec_factor suffix_decoding_min_token_prob draft_load_config rejection_sample_method
    synthetic_acceptance_rates synthetic_acceptance_length enable_adaptive_verification draft_sample_method
    dspark_draft_topk xpress_topc fly_window_size fly_entropy_threshold fly_entropy_top_k
"""
