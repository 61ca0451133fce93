"""The KV cache is too small for what runs: requests wait for blocks, or are preempted and computed again."""

from collections.abc import Iterator, Sequence
from math import ceil

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.diagnosis.lately import MINUTE, counters_tell, events_of, requests_now, rose, steps_of
from inferdbg.diagnosis.options import option, option_or_words
from inferdbg.facts.sections.kvcache import KVCache
from inferdbg.facts.sections.requests import Request
from inferdbg.facts.sections.steps import Step
from inferdbg.facts.window import SECOND, Window

_WAITS_THAT_MATTER_NS = SECOND
_FEW, _TOO_SHORT_NS = 3, 5 * SECOND
_SHARE_THAT_MATTERS = 0.05  # of all tokens computed
_DOES = {
    (True, False): "is the bottleneck",
    (True, True): "was the bottleneck",
    (False, False): "runs short at times",
    (False, True): "ran short at times",
}
"""By whether it hurts, and whether all is over."""


def check(window: Window) -> Iterator[Finding]:
    starved = _starved(window)
    preemptions, over_ns = rose(window, lambda s: s.scheduler.preempted_total if s.scheduler else None, "preempted")
    if not starved and not preemptions:
        return
    cost, share = _cost(window) if preemptions else ("", 0.0)
    lately = preemptions < _FEW and over_ns < _TOO_SHORT_NS  # for a rate
    hurts = bool(starved) or (share >= _SHARE_THAT_MATTERS and not lately)
    server = window.now.server
    over = server is not None and server.state not in ("alive", "copied")
    said = []
    if starved:
        waiting = text.counted(_waiting(window), "waiting request")
        need = "needed" if over else "needs" if len(starved) == 1 else "need"
        said.append(f"{len(starved)} of {waiting} {need} more blocks than {'were' if over else 'are'} free")
    if preemptions:
        when = "just now" if over_ns < SECOND else f"in {text.duration(over_ns)}"
        said.append(f"{text.counted(preemptions, 'preemption')} {when}{cost}")
    yield Finding(
        cause="kv_pressure",
        severity="slow" if hurts else "note",
        confidence="sure" if preemptions and not lately else "likely",
        summary=f"KV cache {_DOES[hurts, over]}: {'; '.join(said)}",
        evidence=tuple(_evidence(window, starved)),
        next_step=_advice(window),
        since_ns=_since(window, starved),
        explains=("queue_full", "long_queue") if hurts else (),
    )


def _starved(window: Window) -> list[Request]:
    """Requests that wait for blocks, longest first, if the first has waited long enough for a person to care."""
    waiting = [r for r in requests_now(window) if r.wait is not None and r.wait.reason == "blocks"]
    return waiting if any(_waited_ns(window, one) >= _WAITS_THAT_MATTER_NS for one in waiting) else []


def _waited_ns(window: Window, request: Request) -> int:
    return window.now.mono_ns - _waits_since(window, request)


def _waits_since(window: Window, request: Request) -> int:
    """Since it came, its last token, or its last preemption; of a preempted one, where nothing tells since when, for no
    longer than it was seen."""
    preempted = [event.mono_ns for event in events_of(window, "preempted") if event.request == request.number]
    known = [request.last_token_ns or 0, *preempted[-1:]]
    if request.stage != "preempted":
        known.append(request.arrived_ns or 0)
    return max(known) or window.snapshots[0].mono_ns


def _waiting(window: Window) -> int:
    return sum(request.stage in ("waiting", "preempted") for request in requests_now(window))


def _cost(window: Window) -> tuple[str, float]:
    """What was computed twice, in words and as a share of all tokens computed in the same stretch; no words where the
    engine does not tell."""
    again = window.delta(lambda s: s.scheduler.recomputed_tokens_total if s.scheduler else None, MINUTE)
    counted = _counted_work(window)
    if counters_tell(window) and again is not None:
        share = again / max(1, again, counted)
        return f" cost {text.counted(again, 'recomputed token')} ({text.percent(share)} of all work)", share
    steps = steps_of(window)
    first_ns = steps[0].start_ns if steps and not counted else window.now.mono_ns - MINUTE
    told = [e.tokens for e in events_of(window, "preempted") if e.mono_ns >= first_ns and e.tokens]
    if not told or not (steps or counted):
        return "", 0.0
    lost = sum(told)
    work = counted + lost if counted else _seen_work(steps)
    share = lost / max(1, lost, work)
    of = "all work" if counted else "the work of the last steps"
    beside = f" ({text.percent(share)} of {of})" if lost < work else ""
    events = window.now.events
    about = "about " if events is not None and events.origin.probe == "memory" else ""  # as they were last seen
    return f" threw away {about}{text.counted(lost, 'computed token')}{beside}", share


def _counted_work(window: Window) -> int:
    """Tokens computed in the last minute by the server's own counts; 0 where they do not tell."""
    prefilled = window.delta(lambda s: s.scheduler.prefilled_tokens_total if s.scheduler else None, MINUTE)
    generated = window.delta(lambda s: s.scheduler.generated_tokens_total if s.scheduler else None, MINUTE)
    return (prefilled or 0) + generated if counters_tell(window) and generated else 0


def _seen_work(steps: Sequence[Step]) -> float:
    """Tokens of steps of which some were seen in passing. Those between are taken to have decoded as much; a step with
    a long prompt takes long and is not missed."""
    decoded = sum(step.decode_tokens for step in steps) * (steps[-1].step - steps[0].step + 1) / len(steps)
    return decoded + sum(step.prefill_tokens for step in steps)


def _advice(window: Window) -> str:
    """Counts every running and waiting request, up to the running limit, at its full length with nothing shared."""
    server, kvcache = window.now.server, window.now.kvcache
    limit = server.config.max_running if server is not None and server.config is not None else None
    rooms = [r for r in (_blocks_at_full_length(request, kvcache) for request in requests_now(window)) if r][:limit]
    if kvcache is None or not rooms:
        return "more KV blocks, or fewer requests at a time"
    ways = []
    fitting = kvcache.num_blocks * len(rooms) // sum(rooms)
    if 1 <= fitting < len(rooms):
        ways.append(f"lower {option_or_words(window, 'running')} to {fitting}")
    missing = sum(rooms) - kvcache.num_blocks
    if missing > 0:
        ways.append(f"add {text.counted(missing, 'block')}{_weight(window, missing, kvcache)}")
    return " or ".join(ways) or "at full length all of them fit: it passes by itself"


def _blocks_at_full_length(request: Request, kvcache: KVCache | None) -> int:
    if kvcache is None or request.prompt_tokens is None:
        return 0
    return ceil((request.prompt_tokens + (request.max_output_tokens or 0)) / kvcache.block_size)


def _weight(window: Window, blocks: int, kvcache: KVCache) -> str:
    """In brackets: the option and its value, and the memory that so many more take; as far as they are known."""
    server, name = window.now.server, option(window, "blocks")
    per_token = server.model.kv_bytes_per_token if server is not None and server.model is not None else None
    parts = [f"{name} {kvcache.num_blocks + blocks}"] if name is not None else []
    parts += [text.size(blocks * kvcache.block_size * per_token)] if per_token and kvcache.block_size else []
    return f" ({', '.join(parts)})" if parts else ""


def _evidence(window: Window, starved: list[Request]) -> Iterator[Evidence]:
    kvcache = window.now.kvcache
    if kvcache is not None and kvcache.used_blocks is not None:
        share = text.percent(kvcache.used_blocks / kvcache.num_blocks)
        yield Evidence("kvcache.used_blocks", f"{share} of {text.count(kvcache.num_blocks)} blocks are held")
    for request in starved[:1]:
        if request.wait is not None:
            waited = text.duration(_waited_ns(window, request))
            needs, free = text.count(request.wait.needs), text.count(request.wait.available)
            yield Evidence(
                f"requests.{request.number}.wait", f"{request.id} needs {needs} blocks, {free} free, for {waited}"
            )
    for event in events_of(window, "preempted")[-1:]:
        yield Evidence(f"events.{event.seq}", f"last preemption at step {text.count(event.step)}")


def _since(window: Window, starved: list[Request]) -> int | None:
    began = [event.mono_ns for event in events_of(window, "preempted")[:1]]
    began += [_waits_since(window, request) for request in starved[:1]]
    return min(began, default=None)
