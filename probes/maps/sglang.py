"""Where SGLang's scheduler keeps what we show: seen as read in its source (0.4 to 0.5), never against one that runs.

Scheduler.event_loop_… ─ self ─┬─ waiting_queue ─► Req           (managers/scheduler.py, schedule_batch.py)
                               ├─ running_batch, cur_batch, last_batch ─ reqs ─► Req;   chunked_req ─► Req
                               ├─ tree_cache ─ evictable_size_, protected_size_          (mem_cache/radix_cache.py)
                               └─ token_to_kv_pool_allocator ─ free_pages, release_pages (mem_cache/allocator)

A batch that was just prefilled stands in last_batch only, until the next one is planned. Pages that are freed in a
group are not in any list until the group ends.
"""

from msgspec import Struct

from . import EngineMap, Names

LOOPS: Names = (
    "event_loop_overlap",
    "event_loop_normal",
    "event_loop_pp",
    "event_loop_pdmux",
    "event_loop_overlap_disagg_prefill",
    "event_loop_normal_disagg_prefill",
    "event_loop_overlap_disagg_decode",
    "event_loop_normal_disagg_decode",
)
"""One of them runs for ever, by how the server was started."""

FINISHING = frozenset(
    {"process_batch_result", "process_batch_result_decode", "process_batch_result_prefill", "pop_and_process"}
)
"""They wait for the GPU first, which changes nothing, and then write its results into the requests."""

SEEN_AS = "SGLang's objects are seen as read in its source, not as run: check them before you rely on them"

_ALLOCATOR = ("self.token_to_kv_pool_allocator", "self.token_to_kv_pool")
_ARGUMENTS = "self.server_args"
_HF = "self.model_config.hf_text_config"


class BatchMap(Struct, frozen=True):
    """What SGLang has and other engines have not. ``request``: our word to attributes of one, beside EngineMap's.
    ``batch``: where a batch has its requests. ``stats``, ``sampling``: attributes of these parts of a request.
    ``allocator``, ``tree``: of the pool and of the cache of prefixes."""

    request: dict[str, Names]
    batch: Names
    stats: Names
    sampling: Names
    allocator: dict[str, Names]
    tree: dict[str, Names]


BATCHES = BatchMap(
    request={
        "finished": ("finished_reason",),
        "prompt": ("origin_input_ids",),
        "outputs": ("output_ids",),
        "prefix": ("prefix_indices",),
        "cached": ("cached_tokens",),
        "retracted": ("is_retracted",),
        "retractions": ("retraction_count",),
        "adapter": ("lora_id", "lora_path"),
        "stats": ("time_stats",),
        "queued": ("queue_time_start",),
        "sampling": ("sampling_params",),
    },
    batch=("reqs",),
    stats=("wait_queue_entry_time",),
    sampling=("max_new_tokens",),
    allocator={
        "size": ("size",),
        "page_size": ("page_size",),
        "free": ("free_pages", "free_slots"),
        "released": ("release_pages",),
    },
    tree={"evictable": ("evictable_size_",)},
)

MAP = EngineMap(
    engine="sglang",
    module="sglang",
    loop=LOOPS[0],
    steps=("run_batch", *FINISHING),
    waits=("synchronize",),
    changing=frozenset(
        {
            "get_next_batch_to_run",
            "get_new_batch_prefill",
            "update_running_batch",
            "process_input_requests",
            "handle_generate_request",
            "abort_request",
            "flush_cache",
        }
    ),
    phases={
        "recv_requests": "schedule",
        "process_input_requests": "schedule",
        "get_next_batch_to_run": "schedule",
        "run_batch": "forward",
        "synchronize": "forward",
        **dict.fromkeys(FINISHING, "commit"),
        **dict.fromkeys(LOOPS, "commit"),
    },
    idle=(),
    starting="run_scheduler_process",
    output="",
    objects={"scheduler": ("self",), "pool": _ALLOCATOR, "tree": ("self.tree_cache",)},
    scheduler={
        "step": ("forward_ct",),
        "waiting": ("waiting_queue",),
        "running": ("running_batch",),
        "current": ("cur_batch_for_debug", "cur_batch"),
        "last": ("last_batch",),
        "chunked": ("chunked_req", "being_chunked_req", "current_inflight_req"),
    },
    pool={},
    free_queue={},
    block={},
    request={"id": ("rid",), "priority": ("priority",)},
    reuse={},
    scheduled={},
    facts={
        "model.name": (f"{_ARGUMENTS}.served_model_name", f"{_ARGUMENTS}.model_path"),
        "model.layers": (f"{_HF}.num_hidden_layers",),
        "model.heads": (f"{_HF}.num_attention_heads",),
        "model.kv_heads": (f"{_HF}.num_key_value_heads",),
        "model.hidden_size": (f"{_HF}.hidden_size",),
        "config.block_size": ("self.page_size", f"{_ALLOCATOR[0]}.page_size"),
        "config.token_budget": ("self.chunked_prefill_size", "self.max_prefill_tokens"),
        "config.max_running": ("self.max_running_requests",),
        "config.policy": ("self.schedule_policy", "self.policy.policy"),
        "config.backend": ("self.device",),
    },
    statuses={"RUNNING": "running", "CHUNKED": "running", "RETRACTED": "preempted"},
    threads={"MainThread": "runs the steps"},
    queues={},
    front="",
    front_states=(),
    front_request={},
    front_times={},
)
