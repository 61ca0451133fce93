"""Made-up Snapshots: a busy engine that looks real and is the same for the same seed.

busy(blocks=2048, requests=16, snapshots=40)      a list, oldest first
Workload(blocks=100_000, requests=256).snapshot() one after the other, each some steps later
arbitrary_snapshots()                             hypothesis: anything that the types allow
"""

import random
from array import array
from bisect import bisect_left
from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import pairwise

from inferdbg.facts.histogram import Histogram
from inferdbg.facts.provenance import Origin, ProbeReport
from inferdbg.facts.sections.events import Event, Events
from inferdbg.facts.sections.kernels import Kernel, Kernels
from inferdbg.facts.sections.kvcache import CACHED, FREE, USED, KVCache
from inferdbg.facts.sections.processes import Process, Processes
from inferdbg.facts.sections.pulse import Pulse
from inferdbg.facts.sections.requests import Request, Requests, Stage, Wait
from inferdbg.facts.sections.scheduler import Scheduler
from inferdbg.facts.sections.server import EngineConfig, ModelFacts, Server
from inferdbg.facts.sections.steps import Shares, Step, Steps, Work
from inferdbg.facts.snapshot import Snapshot, Target

SECOND = 1_000_000_000
START_MONO_NS = 86_400 * SECOND
START_WALL_NS = 1_790_000_000 * SECOND
_BOUNDS = tuple(mantissa * 10**power for power in range(5, 11) for mantissa in (1, 2, 5))
_MODEL = ModelFacts(
    name="SmolLM2-135M-Instruct",
    architecture="LlamaForCausalLM",
    layers=30,
    heads=9,
    kv_heads=3,
    head_size=64,
    hidden_size=576,
    intermediate_size=1536,
    vocabulary=49152,
    parameters=134_515_008,
    weight_bytes=269_030_016,
    weight_dtype="bfloat16",
    kv_dtype="bfloat16",
    kv_bytes_per_token=23_040,
)


@dataclass
class _Sequence:
    """One request as the made-up scheduler sees it."""

    number: int
    prompt: int
    output_limit: int
    arrived_ns: int
    prefix: int  # which shared prompt it starts with
    computed: int = 0
    cached: int = 0
    output: int = 0
    recomputed: int = 0
    preemptions: int = 0
    scheduled_ns: int | None = None
    first_ns: int | None = None
    last_ns: int | None = None
    worst_itl_ns: int | None = None
    blocks: list[int] = field(default_factory=list)
    wait: Wait | None = None

    @property
    def length(self) -> int:
        return self.prompt + self.output


class Workload:
    """An engine of ``blocks`` blocks under more load than it can take: chunked prefill, decode, shared prompts,
    eviction and preemption, step by step. Slow enough parts are plain Python: it is a model, not an engine."""

    def __init__(
        self,
        *,
        blocks: int = 2048,
        requests: int = 16,
        waiting: int = 6,
        steps_per_snapshot: int = 8,
        step_ms: float = 31.0,
        block_size: int = 16,
        budget: int = 512,
        prompt_tokens: int = 400,
        output_tokens: int = 200,
        seed: int = 0,
    ) -> None:
        self.random = random.Random(seed)
        self.num_blocks, self.block_size, self.budget = blocks, block_size, budget
        self.max_running, self.wanted_waiting = requests, waiting
        self.steps_per_snapshot, self.step_ns = steps_per_snapshot, int(step_ms * 1e6)
        self.prompt_tokens, self.output_tokens = prompt_tokens, output_tokens
        self.mono_ns = START_MONO_NS
        self.seq = self.step = self.last_number = self.event_seq = 0
        self.running: list[_Sequence] = []
        self.waiting: list[_Sequence] = []
        self.free: OrderedDict[int, None] = OrderedDict((block, None) for block in range(blocks))
        self.prefixes: dict[int, list[int]] = {}
        self.state = bytearray(blocks)
        self.refcount, self.filled = _zeros("H", blocks), _zeros("H", blocks)
        self.owner, self.hash, self.last_used = _zeros("I", blocks), _zeros("Q", blocks), _zeros("Q", blocks)
        self.counters = dict.fromkeys(Scheduler.__struct_fields__, 0)
        self.histograms = {name: [0] * (len(_BOUNDS) + 2) for name in ("ttft", "itl", "queue_time", "e2e")}
        self.kernels = {name: [0, 0, 0, 0] for name in ("embed", "attention", "mlp", "lm head", "sample")}
        self.steps: list[Step] = []
        self.events: list[Event] = []

    # the engine ---------------------------------------------------------------------------------------------

    def run_step(self) -> None:
        self.step += 1
        self._admit_arrivals()
        self._schedule_waiting()
        work, left = [], self.budget
        for sequence in list(self.running):
            if sequence not in self.running:
                continue
            tokens = min(left, max(1, sequence.length - sequence.computed))
            if tokens <= 0 or not self._reserve(sequence, sequence.computed + tokens):
                continue
            kind = "decode" if sequence.first_ns is not None and tokens == 1 else "prefill"
            work.append(Work(sequence.number, kind, tokens, sequence.computed))
            left -= tokens
        jitter = self.random.uniform(0.9, 1.2)
        active = {sequence.number: sequence for sequence in self.running}
        work = [share for share in work if share.request in active]
        forward = int(self.step_ns * 0.85 * jitter)
        finished_ns = self.mono_ns + int(self.step_ns * jitter)
        for share in work:
            self._commit(active[share.request], share, finished_ns)
        for index, kernel in enumerate(self.kernels.values()):
            kernel[0] += 30 if 0 < index < 3 else 1
            kernel[1] += forward // (3 if 0 < index < 3 else 20)
            kernel[2] += 270_000_000 * len(work)
            kernel[3] += 269_030_016
        prefilled = sum(share.tokens for share in work if share.kind == "prefill")
        self.counters["steps_total"] += 1
        self.counters["prefilled_tokens_total"] += prefilled
        self.steps.append(
            Step(
                step=self.step,
                start_ns=self.mono_ns,
                schedule_ns=int(self.step_ns * 0.03 * jitter) + self.random.randrange(9999),
                prepare_ns=int(self.step_ns * 0.02 * jitter) + self.random.randrange(9999),
                forward_ns=forward,
                sample_ns=int(self.step_ns * 0.06 * jitter) + self.random.randrange(9999),
                commit_ns=int(self.step_ns * 0.02 * jitter) + self.random.randrange(9999),
                idle_ns=self.random.randrange(30_000, 60_000),
                budget=self.budget,
                prefill_tokens=prefilled,
                decode_tokens=sum(share.kind == "decode" for share in work),
                running=len(self.running),
                waiting=len(self.waiting),
                shares=Shares.of(work),
            )
        )
        self.mono_ns = finished_ns

    def _admit_arrivals(self) -> None:
        while len(self.waiting) < self.wanted_waiting + self.random.randrange(2):
            self.last_number += 1
            self.counters["added_total"] += 1
            prompt = max(4, int(self.random.lognormvariate(0, 0.5) * self.prompt_tokens))
            self.waiting.append(
                _Sequence(
                    self.last_number,
                    min(prompt, self.num_blocks * self.block_size // 4),
                    max(2, int(self.random.lognormvariate(0, 0.6) * self.output_tokens)),
                    self.mono_ns - self.random.randrange(SECOND // 10),
                    self.random.randrange(4),
                )
            )

    def _schedule_waiting(self) -> None:
        for index, sequence in enumerate(self.waiting):
            before = self.waiting[index - 1].number if index else 0
            sequence.wait = Wait("behind", behind=before)
        while self.waiting:
            first = self.waiting[0]
            if len(self.running) >= self.max_running:
                first.wait = Wait("max running", needs=len(self.running), available=self.max_running)
                return
            needed = -(-first.length // self.block_size)
            if needed > len(self.free):
                first.wait = Wait("blocks", needs=needed, available=len(self.free))
                return
            self.waiting.pop(0)
            self.running.append(first)
            first.wait = None
            self._reuse_prefix(first)
            if first.scheduled_ns is None:
                first.scheduled_ns = self.mono_ns
                self._observe("queue_time", self.mono_ns - first.arrived_ns)
            self._happened("scheduled", request=first.number, tokens=first.cached)

    def _reuse_prefix(self, sequence: _Sequence) -> None:
        self.counters["prefix_queried_tokens_total"] += sequence.length
        shared = self.prefixes.get(sequence.prefix, [])[: (sequence.length - 1) // self.block_size]
        for block in shared:
            self.refcount[block] += 1
            self.state[block] = USED
            self.free.pop(block, None)
            self.last_used[block] = self.mono_ns
        sequence.blocks = list(shared)
        sequence.computed = sequence.cached = len(shared) * self.block_size
        self.counters["prefix_hit_tokens_total"] += sequence.cached

    def _reserve(self, sequence: _Sequence, tokens: int) -> bool:
        """Blocks for ``tokens``; throws out the youngest until they are there. False when it had to go itself."""
        while len(sequence.blocks) * self.block_size < tokens:
            if not self.free:
                victim = self.running[-1]
                self._preempt(victim, sequence)
                if victim is sequence:
                    return False
                continue
            block, _ = self.free.popitem(last=False)
            if self.state[block] == CACHED:
                self.counters["evicted_blocks_total"] += 1
                self._happened("evicted", request=self.owner[block], other=sequence.number, block=block)
                for prefix in [key for key, blocks in self.prefixes.items() if block in blocks]:
                    del self.prefixes[prefix]
            self.state[block], self.refcount[block], self.filled[block] = USED, 1, 0
            self.owner[block], self.hash[block], self.last_used[block] = sequence.number, 0, self.mono_ns
            sequence.blocks.append(block)
        return True

    def _commit(self, sequence: _Sequence, share: Work, now_ns: int) -> None:
        start = sequence.computed
        sequence.computed += share.tokens
        for index in range(start // self.block_size, -(-sequence.computed // self.block_size)):
            block = sequence.blocks[index]
            self.filled[block] = min(self.block_size, sequence.computed - index * self.block_size)
            if self.filled[block] == self.block_size and not self.hash[block]:
                self.hash[block] = self.random.getrandbits(63)
        if sequence.computed < sequence.length:
            return
        if sequence.prefix not in self.prefixes:
            self.prefixes[sequence.prefix] = sequence.blocks[: sequence.prompt // self.block_size // 2]
        if sequence.first_ns is None:
            sequence.first_ns = now_ns
            self._observe("ttft", now_ns - sequence.arrived_ns)
            self._happened("first token", request=sequence.number)
        elif sequence.last_ns is not None:
            gap = now_ns - sequence.last_ns
            sequence.worst_itl_ns = max(gap, sequence.worst_itl_ns or 0)
            self._observe("itl", gap)
        sequence.last_ns = now_ns
        sequence.output += 1
        self.counters["generated_tokens_total"] += 1
        if sequence.output >= sequence.output_limit:
            self.running.remove(sequence)
            self._release(sequence)
            self.counters["finished_total"] += 1
            self._observe("e2e", now_ns - sequence.arrived_ns)
            self._happened("finished", request=sequence.number, tokens=sequence.output, text="length")

    def _preempt(self, victim: _Sequence, winner: _Sequence) -> None:
        self.running.remove(victim)
        self._release(victim)
        victim.recomputed += victim.computed
        victim.preemptions += 1
        self.counters["preempted_total"] += 1
        self.counters["recomputed_tokens_total"] += victim.computed
        self._happened("preempted", request=victim.number, other=winner.number, tokens=victim.computed)
        victim.computed = 0
        self.waiting.insert(0, victim)

    def _release(self, sequence: _Sequence) -> None:
        for block in reversed(sequence.blocks):
            self.refcount[block] -= 1
            if not self.refcount[block]:
                self.state[block] = CACHED if self.hash[block] else FREE
                self.last_used[block] = self.mono_ns
                self.free[block] = None
        sequence.blocks = []

    def _observe(self, name: str, value_ns: int) -> None:
        self.histograms[name][bisect_left(_BOUNDS, value_ns)] += 1
        self.histograms[name][-1] += value_ns

    def _happened(self, kind: str, **what: int | str) -> None:
        self.event_seq += 1
        self.events.append(Event(self.event_seq, self.mono_ns, self.step, kind, **what))  # type: ignore[arg-type]

    # what is seen of it -------------------------------------------------------------------------------------

    def snapshot(self, steps: int | None = None) -> Snapshot:
        """Runs ``steps`` more (default: steps_per_snapshot) and looks."""
        for _ in range(self.steps_per_snapshot if steps is None else steps):
            self.run_step()
        self.seq += 1
        origin = Origin("engine box", self.mono_ns)
        found = Snapshot(
            seq=self.seq,
            wall_ns=START_WALL_NS + self.mono_ns - START_MONO_NS,
            mono_ns=self.mono_ns,
            target=Target("process", "pid 58", pid=58, path="/dev/shm/inferdbg-1000/58.box"),
            server=self._server(),
            pulse=Pulse(
                origin,
                heartbeat_ns=self.mono_ns - 2_000_000,
                step=self.step + 1,
                phase="forward",
                phase_since_ns=self.mono_ns - 2_000_000,
                layer=self.random.randrange(30),
                kernel="attention",
                kernels_launched=self.kernels["attention"][0] + 1,
                kernels_completed=self.kernels["attention"][0],
                generation=self.step * 2,
            ),
            scheduler=self._scheduler(origin),
            requests=Requests(origin, tuple(self._request(one) for one in sorted(self._known(), key=_arrival))),
            kvcache=self._kvcache(origin),
            steps=Steps(origin, tuple(self.steps)),
            kernels=Kernels(origin, tuple(Kernel(name, *numbers) for name, numbers in self.kernels.items())),
            events=Events(origin, tuple(self.events)),
            processes=self._processes(),
            probes=(
                ProbeReport(
                    "engine box",
                    "ok",
                    ("server", "pulse", "scheduler", "requests", "kvcache", "steps", "kernels", "events"),
                    2_400_000 + self.random.randrange(99_999),
                    self.mono_ns,
                ),
                ProbeReport("processes", "ok", ("processes",), 600_000 + self.random.randrange(99_999), self.mono_ns),
                ProbeReport("nvml", "absent", ("gpus",), message="no NVML: there is no libnvidia-ml.so.1"),
            ),
        )
        self.steps, self.events = [], []
        return found

    def _known(self) -> list[_Sequence]:
        return self.running + self.waiting

    def _server(self) -> Server:
        config = EngineConfig(
            self.block_size, self.num_blocks, self.budget, self.max_running, 1024, 8192, True, "fcfs", "reference"
        )
        return Server(
            Origin("engine box", START_MONO_NS),
            engine="inferdbg",
            version="0.1.0",
            pid=58,
            started_wall_ns=START_WALL_NS,
            started_mono_ns=START_MONO_NS,
            url="http://127.0.0.1:8000",
            model=_MODEL,
            config=config,
            box_path="/dev/shm/inferdbg-1000/58.box",
        )

    def _scheduler(self, origin: Origin) -> Scheduler:
        counters = {name: value for name, value in self.counters.items() if name.endswith("_total")}
        histograms = {
            name: Histogram(_BOUNDS, tuple(numbers[:-1]), numbers[-1]) for name, numbers in self.histograms.items()
        }
        preempted = sum(one.preemptions > 0 for one in self.waiting)
        return Scheduler(origin, len(self.running), len(self.waiting), preempted, **counters, **histograms)

    def _request(self, one: _Sequence) -> Request:
        running = one.wait is None and bool(one.blocks)
        stage: Stage = "waiting" if one.preemptions == 0 else "preempted"
        if running:
            stage = "prefill" if one.computed < one.length - 1 else "decode"
        return Request(
            number=one.number,
            id=f"cmpl-{one.number:08x}",
            stage=stage,
            prompt_tokens=one.prompt,
            output_tokens=one.output,
            max_output_tokens=one.output_limit,
            computed_tokens=one.computed,
            cached_tokens=one.cached,
            recomputed_tokens=one.recomputed,
            preemptions=one.preemptions,
            arrived_ns=one.arrived_ns,
            scheduled_ns=one.scheduled_ns,
            first_token_ns=one.first_ns,
            last_token_ns=one.last_ns,
            worst_itl_ns=one.worst_itl_ns,
            wait=one.wait,
            blocks=array("i", one.blocks).tobytes(),
        )

    def _kvcache(self, origin: Origin) -> KVCache:
        chain = list(self.free)
        next_free = array("i", [-1]) * self.num_blocks
        for block, following in pairwise(chain):
            next_free[block] = following
        used = self.num_blocks - len(chain)
        cached = sum(self.state[block] == CACHED for block in chain)
        return KVCache(
            origin,
            num_blocks=self.num_blocks,
            block_size=self.block_size,
            free_blocks=len(chain) - cached,
            cached_blocks=cached,
            used_blocks=used,
            shared_blocks=sum(count > 1 for count in self.refcount),
            tokens=sum(fill for fill, state in zip(self.filled, self.state, strict=True) if state == USED),
            first_free=chain[0] if chain else None,
            state=bytes(self.state),
            refcount=self.refcount.tobytes(),
            filled=self.filled.tobytes(),
            owner=self.owner.tobytes(),
            hash=self.hash.tobytes(),
            last_used=self.last_used.tobytes(),
            next_free=next_free.tobytes(),
        )

    def _processes(self) -> Processes:
        elapsed = self.mono_ns - START_MONO_NS
        items = (
            Process(58, "inferdbg", "engine", "R", int(elapsed * 1.7), 2_100_000_000, 7, 31, 1024),
            Process(61, "inferdbg", "front end", "S", elapsed // 12, 180_000_000, 3, 24, 1024),
        )
        return Processes(Origin("processes", self.mono_ns), items, 2, 8_200_000_000, 5_100_000_000)


def busy(
    *,
    blocks: int = 2048,
    requests: int = 16,
    snapshots: int = 8,
    steps_per_snapshot: int = 8,
    warm_steps: int = 0,
    waiting: int = 6,
    seed: int = 0,
) -> list[Snapshot]:
    """Snapshots of one busy engine, oldest first, about a quarter of a second (8 steps of 31 ms) apart."""
    engine = Workload(
        blocks=blocks, requests=requests, steps_per_snapshot=steps_per_snapshot, waiting=waiting, seed=seed
    )
    for _ in range(warm_steps):
        engine.run_step()
    engine.steps, engine.events = [], []
    return [engine.snapshot() for _ in range(snapshots)]


def _zeros(typecode: str, length: int) -> "array[int]":
    return array(typecode, [0]) * length


def _arrival(one: _Sequence) -> int:
    return one.number
