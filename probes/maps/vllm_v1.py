"""Where vLLM's V1 engine keeps what we show. Seen in 0.32; names of older versions stand behind the new ones.

EngineCoreProc.run_busy_loop ─ self ─► scheduler ─┬─ running, waiting, requests ─► Request
     (v1/engine/core.py)                          └─ kv_cache_manager ─► coordinator ─► req_to_blocks ─► KVCacheBlock
                                                                      └─ block_pool ─► blocks, free_block_queue
"""

from . import EngineMap

_HF = "self.vllm_config.model_config.hf_text_config"
_MANAGER = "self.scheduler.kv_cache_manager"

MAP = EngineMap(
    engine="vllm",
    module="vllm",
    loop="run_busy_loop",
    steps=("step_with_batch_queue", "step"),
    waits=("result",),
    changing=frozenset(
        {
            "schedule",
            "update_from_output",
            "finish_requests",
            "add_request",
            "abort_requests",
            "_process_aborts_queue",
            "_handle_client_request",
            "reset_prefix_cache",
            "update_draft_token_ids",
            "update_draft_token_ids_in_output",
            "hooked",  # our own plug-in's: it calls the ones above at the place where they were called
            "begin",
        }
    ),
    phases={
        "schedule": "schedule",
        "add_request": "schedule",
        "_handle_client_request": "schedule",
        "abort_requests": "schedule",
        "_process_aborts_queue": "commit",
        "get_grammar_bitmask": "prepare",
        "update_from_output": "commit",
        "post_step": "commit",
        "put_nowait": "commit",
        "execute_model": "forward",
        "sample_tokens": "forward",
        "execute_dummy_batch": "forward",
        "step": "forward",
        "step_with_batch_queue": "forward",
        "_process_engine_step": "commit",
        "_handle_shutdown": "commit",
        "_process_input_queue": "schedule",
        "run_busy_loop": "commit",
    },
    idle=("_process_input_queue", "get"),
    starting="run_engine_core",
    output="scheduler_output",
    objects={
        "scheduler": ("self.scheduler",),
        "pool": (f"{_MANAGER}.block_pool",),
        "free queue": (f"{_MANAGER}.block_pool.free_block_queue",),
        "free head": (f"{_MANAGER}.block_pool.free_block_queue.fake_free_list_head",),
        "tables": (
            f"{_MANAGER}.coordinator.single_type_managers[0].req_to_blocks",
            f"{_MANAGER}.single_type_manager.req_to_blocks",
            f"{_MANAGER}.req_to_blocks",
        ),
    },
    scheduler={
        "step": ("current_step",),
        "running": ("running",),
        "waiting": ("waiting",),
        "waiting with blocks": ("kv_holding_waiting",),
        "deferred": ("deferred_waiting", "skipped_waiting"),
        "requests": ("requests",),
    },
    pool={"blocks": ("blocks",)},
    free_queue={"free": ("num_free_blocks",)},
    block={
        "references": ("ref_cnt",),
        "hash": ("_block_hash",),
        "next": ("next_free_block",),
    },
    request={
        "id": ("request_id",),
        "status": ("status",),
        "prompt_tokens": ("num_prompt_tokens",),
        "computed_tokens": ("num_computed_tokens",),
        "in_flight": ("num_in_flight_tokens",),
        "outputs": ("_output_token_ids",),
        "max_output_tokens": ("max_tokens",),
        "preemptions": ("num_preemptions",),
        "arrival": ("arrival_time",),
        "priority": ("priority",),
        "client": ("client_index",),
    },
    reuse={
        "hashes": ("block_hashes",),
        "adapter": ("lora_request",),
        "adapter name": ("lora_name",),
        "salt": ("cache_salt",),
        "images": ("mm_features", "mm_hashes"),
        "embeddings": ("prompt_embeds",),
        "skips": ("skip_reading_prefix_cache",),
    },
    scheduled={"tokens": ("num_scheduled_tokens",)},
    facts={
        "model.name": (
            "self.vllm_config.model_config.served_model_name",
            "self.vllm_config.model_config.model",
        ),
        "model.architecture": ("self.vllm_config.model_config.hf_config.architectures",),
        "model.layers": (f"{_HF}.num_hidden_layers",),
        "model.heads": (f"{_HF}.num_attention_heads",),
        "model.kv_heads": (f"{_HF}.num_key_value_heads", f"{_HF}.num_attention_heads"),
        "model.head_size": (f"{_HF}.head_dim",),
        "model.hidden_size": (f"{_HF}.hidden_size",),
        "model.intermediate_size": (f"{_HF}.intermediate_size",),
        "model.vocabulary": (f"{_HF}.vocab_size",),
        "config.block_size": (
            f"{_MANAGER}.coordinator.single_type_managers[0].block_size",
            f"{_MANAGER}.block_size",
            "self.scheduler.block_size",
        ),
        "config.num_blocks": (f"{_MANAGER}.block_pool.num_gpu_blocks",),
        "config.token_budget": ("self.scheduler.max_num_scheduled_tokens",),
        "config.max_running": ("self.scheduler.max_num_active_reqs", "self.scheduler.max_num_running_reqs"),
        "config.max_model_len": ("self.scheduler.max_model_len",),
        "config.prefix_caching": (f"{_MANAGER}.enable_caching",),
        "config.policy": ("self.scheduler.policy",),
        "config.backend": ("self.vllm_config.device_config.device_type",),
        "engines": ("self.vllm_config.parallel_config.data_parallel_size",),
        "watermark": (f"{_MANAGER}.watermark_blocks",),
        "groups": (f"{_MANAGER}.coordinator.single_type_managers",),
        "connector": ("self.scheduler.connector",),
        "defers frees": ("self.scheduler.defer_block_free",),
    },
    statuses={"RUNNING": "running", "PREEMPTED": "preempted"},
    threads={
        "MainThread": "runs the steps",
        "process_input_sockets": "takes requests from the front end",
        "process_output_sockets": "sends tokens to the front end",
    },
    queues={
        "input": ("self.input_queue.queue",),
        "output": ("self.output_queue.queue",),
        "aborts": ("self.aborts_queue.queue",),
    },
    front="AsyncLLM",
    front_states=("output_processor.request_states",),
    front_request={
        "id": ("request_id",),
        "cached_tokens": ("num_cached_tokens",),
        "stats": ("stats",),
    },
    front_times={
        "scheduled_ns": ("scheduled_ts",),
        "first_token_ns": ("first_token_ts",),
        "last_token_ns": ("last_token_ts",),
    },
)
