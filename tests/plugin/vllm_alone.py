"""A real vLLM Scheduler with no model behind it, to be run by vLLM's own Python with the plug-in on PYTHONPATH.

python vllm_alone.py MODEL check SEED STEPS    drives it at random; after every half step the box must be equal
                                               to what the scheduler holds. Prints a JSON object
python vllm_alone.py MODEL cost RUNNING STEPS  ns a step of schedule and update_from_output, with and without
"""

import json
import random
import sys
import time

from comparing import differences
from inferdbg_vllm.entry import attach
from inferdbg_vllm.hooking import Foreign
from inferdbg_vllm.truth import state_of

BLOCK = 16


def make_scheduler(model: str, blocks: int, seats: int, budget: int, longest: int, **options: Foreign) -> Foreign:
    import torch
    from vllm.config import (
        CacheConfig,
        DeviceConfig,
        ModelConfig,
        SchedulerConfig,
        VllmConfig,
    )
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import init_none_hash
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import (
        FullAttentionSpec,
        KVCacheConfig,
        KVCacheGroupSpec,
    )
    from vllm.v1.structured_output import StructuredOutputManager

    init_none_hash(sha256)
    ahead = bool(options.pop("ahead", False))
    config = VllmConfig(
        model_config=ModelConfig(model=model, dtype="bfloat16", seed=0, max_model_len=longest),
        cache_config=CacheConfig(block_size=BLOCK, enable_prefix_caching=True),
        scheduler_config=SchedulerConfig(
            max_num_seqs=seats,
            max_num_batched_tokens=budget,
            max_model_len=longest,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            async_scheduling=ahead,
            **options,
        ),
        device_config=DeviceConfig("cpu"),
    )
    config.cache_config.num_gpu_blocks = blocks
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32)
    return (AsyncScheduler if ahead else Scheduler)(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
        ),
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK,
        log_stats=True,
    )


class Traffic:
    def __init__(self, scheduler: Foreign, seed: int) -> None:
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher

        self.scheduler = scheduler
        self.random = random.Random(seed)
        self.hasher = get_request_block_hasher(BLOCK, sha256)
        self.count = 0

    def add(self, prompt: int, outputs: int) -> None:
        """Half of the prompts begin like another one."""
        from vllm import SamplingParams
        from vllm.v1.request import Request

        family = self.random.randrange(6)
        tokens = [family] * prompt if self.random.random() < 0.5 else [self.random.randrange(4096)] * prompt
        self.count += 1
        self.scheduler.add_request(
            Request(
                request_id=f"cmpl-{self.count}",
                prompt_token_ids=tokens,
                sampling_params=SamplingParams(max_tokens=outputs, ignore_eos=True),
                pooling_params=None,
                block_hasher=self.hasher,
            )
        )

    def answer(self, output: Foreign) -> Foreign:
        """What workers would say: a token for whoever has its prompt computed."""
        from vllm.v1.outputs import ModelRunnerOutput

        names = list(output.num_scheduled_tokens)
        requests = self.scheduler.requests
        tokens = [[7] if name in requests and not requests[name].is_prefill_chunk else [] for name in names]
        return ModelRunnerOutput(
            req_ids=names, req_id_to_index={name: place for place, name in enumerate(names)}, sampled_token_ids=tokens
        )


def check(model: str, seed: int, steps: int) -> dict[str, Foreign]:
    ahead = seed % 2
    scheduler = make_scheduler(model, 40 + seed % 40, 8, 128, 512, ahead=ahead)
    watcher = attach(scheduler)
    box, width = watcher._box, watcher._requests._width
    traffic = Traffic(scheduler, seed)
    pick = traffic.random
    wrong: list[str] = []
    flying: list[Foreign] = []
    for step in range(steps):
        for _ in range(pick.choice((0, 0, 0, 1, 3))):
            if len(scheduler.requests) < 30:
                traffic.add(pick.randrange(1, 300), pick.randrange(1, 200))
        if pick.random() < 0.05 and scheduler.requests:
            from vllm.v1.request import RequestStatus

            scheduler.finish_requests(pick.choice(list(scheduler.requests)), RequestStatus.FINISHED_ABORTED)
        if pick.random() < 0.01:
            scheduler.reset_prefix_cache(reset_running_requests=not ahead and pick.random() < 0.5)
        flying.append(scheduler.schedule())
        wrong += [
            f"step {step} scheduled: {what}" for what in differences(state_of(scheduler, "", 0), box.columns, width)
        ]
        if len(flying) > ahead:
            output = flying.pop(0)
            scheduler.update_from_output(output, traffic.answer(output))
            wrong += [
                f"step {step} updated: {what}" for what in differences(state_of(scheduler, "", 0), box.columns, width)
            ]
        if wrong:
            break
    counters = list(box.columns["counters"])
    box.stop(0)
    return {"wrong": wrong, "preempted": counters[9], "evicted": counters[10], "finished": counters[13],
            "aborted": counters[14], "hooks": watcher._hooks.on}  # fmt: skip


def cost(model: str, running: int, steps: int) -> dict[str, Foreign]:
    """Alternating, so that both see the same machine."""
    figures: dict[str, list[float]] = {"with": [], "without": []}
    for turn in range(6):
        scheduler = make_scheduler(model, running * 80, running, 8192, 1024)
        watcher = attach(scheduler) if turn % 2 == 0 else None
        traffic = Traffic(scheduler, turn)
        for _ in range(running):
            traffic.add(100, 1024)
        spent = []
        for _ in range(steps):
            began = time.thread_time_ns()
            output = scheduler.schedule()
            spent.append(time.thread_time_ns() - began)
            answer = traffic.answer(output)
            began = time.thread_time_ns()
            scheduler.update_from_output(output, answer)
            spent[-1] += time.thread_time_ns() - began
        spent = sorted(spent[10:])
        figures["with" if watcher else "without"].append(spent[len(spent) // 2])
        if watcher:
            watcher._box.stop(0)
    medians = {name: sorted(values)[len(values) // 2] for name, values in figures.items()}
    return {"running": running, "ns_a_step": medians, "ours_ns": medians["with"] - medians["without"], "all": figures}


if __name__ == "__main__":
    model, verb, first, second = sys.argv[1:]
    sys.stdout.write(json.dumps({"check": check, "cost": cost}[verb](model, int(first), int(second))) + "\n")
