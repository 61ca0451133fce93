"""Moments worth looking at, as Windows and as a Source: healthy, pressed, hung, dead, unseen, empty."""

from collections.abc import Sequence

from msgspec.structs import replace

from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.errors import InferdbgError
from inferdbg.facts.provenance import Origin, ProbeReport
from inferdbg.facts.sections.events import Events
from inferdbg.facts.sections.pulse import Intent
from inferdbg.facts.sections.requests import Requests
from inferdbg.facts.sections.scheduler import Scheduler
from inferdbg.facts.sections.stacks import Call, ProcessStacks, Stacks, ThreadStack
from inferdbg.facts.sections.steps import Steps
from inferdbg.facts.sections.wiring import DeadThread, Queue, Stray, Wiring
from inferdbg.facts.snapshot import Snapshot, Target
from inferdbg.facts.window import SECOND, Window, lightened
from tests.support.snapshots import START_MONO_NS, START_WALL_NS, busy


class Stored:
    """A Source of Snapshots that are all there from the start; ``growing`` shows one more of them with each advance,
    as a live target does, beginning with ``seen``."""

    def __init__(self, snapshots: Sequence[Snapshot], *, live: bool = False, seen: int | None = None) -> None:
        self._snapshots = tuple(snapshots)
        self._live = live
        self._seen = len(self._snapshots) if seen is None else seen
        self.title = "pid 58" if live else "run.idbg"
        self.problem: InferdbgError | None = None

    @property
    def live(self) -> bool:
        return self._live

    def advance(self) -> bool:
        if self._seen == len(self._snapshots):
            return False
        self._seen += 1
        return True

    def span(self) -> tuple[int, int]:
        return self._snapshots[0].mono_ns, self._snapshots[self._seen - 1].mono_ns

    def window(self, at_ns: int | None = None) -> Window:
        seen = [s for s in self._snapshots[: self._seen] if at_ns is None or s.mono_ns <= at_ns] or [self._snapshots[0]]
        return Window([*map(lightened, seen[:-1]), seen[-1]])

    def close(self) -> None:
        """There is nothing to close."""


def healthy(snapshots: int = 40) -> list[Snapshot]:
    return busy(blocks=2048, requests=16, snapshots=snapshots, warm_steps=200, waiting=0)


def pressed(snapshots: int = 40) -> list[Snapshot]:
    """Too few blocks: requests wait for them, others are preempted."""
    return busy(blocks=700, requests=24, snapshots=snapshots, warm_steps=200)


PRESSURE = Finding(
    cause="kv_pressure",
    severity="slow",
    confidence="sure",
    summary="KV cache is the bottleneck: 3 of 11 waiting requests need more blocks than are free; 41 preemptions in "
    "60 s cost 12,380 recomputed tokens (31 % of all work)",
    evidence=(
        Evidence("scheduler.preempted_total", "rose by 41"),
        Evidence("requests.wait", "r-104 needs 37, 12 free"),
    ),
    next_step="lower --max-running to 8, or add 190 blocks",
    since_ns=START_MONO_NS + 5 * SECOND,
    explains=("slow_first_token",),
)
SLOW_FIRST_TOKEN = Finding(
    cause="slow_first_token",
    severity="slow",
    confidence="likely",
    summary="time to first token is 3.9 s at p95, 1.3 s of it in the queue",
    next_step="inferdbg top, view requests, sorted by age",
)


def hung() -> list[Snapshot]:
    """The last step of ``pressed`` has been in its forward pass for 12.4 s."""
    snapshots = pressed(20)
    last = snapshots[-1]
    assert last.pulse is not None
    pulse = replace(last.pulse, layer=14, heartbeat_ns=last.mono_ns, phase_since_ns=last.mono_ns)
    assert last.scheduler is not None
    assert last.requests is not None
    assert last.kvcache is not None
    assert last.kernels is not None
    assert last.processes is not None
    later_ns = 12_400_000_000
    origin = Origin("engine box", last.mono_ns + later_ns)
    last_step = (last.steps.items if last.steps is not None else ())[-1]
    now = replace(
        last,
        seq=last.seq + 1,
        mono_ns=last.mono_ns + later_ns,
        wall_ns=last.wall_ns + later_ns,
        pulse=replace(pulse, origin=origin),
        scheduler=replace(last.scheduler, origin=origin),
        requests=replace(last.requests, origin=origin),
        kvcache=replace(last.kvcache, origin=origin),
        kernels=replace(last.kernels, origin=origin),
        processes=replace(last.processes, origin=Origin("processes", origin.mono_ns)),
        steps=Steps(origin, running=replace(last_step, step=last_step.step + 1, start_ns=last.mono_ns)),
        events=Events(origin),
    )
    return [*snapshots, now]


HANG = Finding(
    cause="hang",
    severity="stuck",
    confidence="sure",
    summary="step 361 has been in forward for 12 s (a whole step usually takes 33 ms): layer 14, kernel attention was "
    "launched and has not returned",
    evidence=(Evidence("pulse.phase_since_ns", "12 s ago"),),
    next_step="inferdbg stacks 58",
)


def dead() -> list[Snapshot]:
    """Killed while a block was being given to a request."""
    snapshots = pressed(20)
    last = snapshots[-1]
    assert last.server is not None
    assert last.pulse is not None
    assert last.requests is not None
    holder = last.requests.items[0]
    pulse = replace(
        last.pulse,
        phase="schedule",
        layer=None,
        kernel=None,
        kernels_launched=8,
        kernels_completed=8,
        generation=4711,
        intent=Intent("allocate", block=holder.block_table()[0], request=holder.number),
    )
    probes = (ProbeReport("engine box", "ok", last.probes[0].sections, 1_900_000, last.mono_ns),)
    return [*snapshots[:-1], replace(last, server=replace(last.server, state="dead"), pulse=pulse, probes=probes)]


def unseen() -> list[Snapshot]:
    """A server of somebody else: its memory may not be read."""
    first = busy(blocks=64, requests=2, snapshots=1)[0]
    denied = ProbeReport(
        "vLLM memory",
        "denied",
        ("pulse", "scheduler", "requests", "kvcache", "steps", "events"),
        120_000,
        message="reading the memory of pid 58 (owner uid 1001) is not permitted",
        hint="sudo inferdbg attach 58, or run it with CAP_SYS_PTRACE",
    )
    stuck = ProbeReport("nvml", "not answering", ("kernels",), message="no answer for 12 s", hint="nvidia-smi -q")
    return [
        Snapshot(
            seq=1,
            wall_ns=first.wall_ns,
            mono_ns=first.mono_ns,
            target=Target("process", "pid 58", 58),
            server=replace(first.server, engine="vLLM", version="0.32.0", box_path=None) if first.server else None,
            probes=(denied, stuck),
        )
    ]


def wired() -> list[Snapshot]:
    """Somebody else's server whose thread that answers is gone: its answers pile up in a queue."""
    last = busy(blocks=64, requests=6, snapshots=1)[0]
    origin = Origin("memory", last.mono_ns)
    wiring = Wiring(
        origin,
        (Queue("input", 0), Queue("aborts", 0), Queue("output", 812)),
        ("MainThread", "process_input_sockets"),
        (DeadThread("process_output_sockets", "sends tokens to the front end", last.mono_ns - 41 * SECOND),),
        front_requests=7,
        engine_requests=6,
        strays=(Stray("cmpl-8b1f66815990", "front end", last.mono_ns - 33 * SECOND),),
    )
    waiting = ThreadStack("process_input_sockets", 73, (Call("poll", "zmq/sugar/poll.py", 106),))
    running = ThreadStack(
        "MainThread",
        72,
        (
            Call("acquire_read", "vllm/distributed/device_communicators/shm_broadcast.py", 668),
            Call("dequeue", "vllm/distributed/device_communicators/shm_broadcast.py", 751),
            Call("get_response", "vllm/v1/executor/multiproc_executor.py", 371),
            Call("result", "vllm/v1/executor/multiproc_executor.py", 92),
            Call("step_with_batch_queue", "vllm/v1/engine/core.py", 514),
            Call("run_busy_loop", "vllm/v1/engine/core.py", 1555),
        ),
        active=True,
        holds_gil=True,
    )
    stacks = Stacks(
        Origin("stacks", last.mono_ns),
        (
            ProcessStacks(70, "front end", (ThreadStack("MainThread", 70, (Call("select", "selectors.py", 468),)),)),
            ProcessStacks(72, "engine core", (waiting, running)),
            ProcessStacks(90, "worker", why="py-spy did not finish within 3 s"),
        ),
    )
    return [replace(last, wiring=wiring, stacks=stacks)]


def empty() -> list[Snapshot]:
    """An engine that has just started: no request ever came."""
    snapshots = []
    for index in range(2):
        at_ns = START_MONO_NS + index * SECOND
        origin = Origin("engine box", at_ns)
        first = busy(blocks=512, requests=4, snapshots=1)[0]
        assert first.pulse is not None
        assert first.kvcache is not None
        snapshots.append(
            replace(
                first,
                seq=index + 1,
                mono_ns=at_ns,
                wall_ns=START_WALL_NS + index * SECOND,
                pulse=replace(
                    first.pulse,
                    origin=origin,
                    step=0,
                    phase="idle",
                    heartbeat_ns=at_ns - 40_000_000,
                    phase_since_ns=START_MONO_NS,
                    layer=None,
                    kernel=None,
                    kernels_launched=0,
                    kernels_completed=0,
                ),
                scheduler=Scheduler(origin, 0, 0, 0, 0, 0, 0),
                requests=Requests(origin),
                kvcache=replace(
                    first.kvcache,
                    origin=origin,
                    free_blocks=512,
                    cached_blocks=0,
                    used_blocks=0,
                    shared_blocks=0,
                    tokens=0,
                    first_free=0,
                    state=bytes(512),
                    refcount=bytes(2 * 512),
                    filled=bytes(2 * 512),
                    owner=bytes(4 * 512),
                    hash=bytes(8 * 512),
                    last_used=bytes(8 * 512),
                ),
                steps=Steps(origin),
                kernels=None,
                events=Events(origin),
                processes=None,
                probes=(ProbeReport("engine box", "ok", ("pulse", "scheduler"), 900_000, at_ns),),
            )
        )
    return snapshots
