"""Follows one Scheduler of vLLM from its first step to its last, and writes into a black box what it does.

add_request ─► schedule ─────────────────────────► (workers compute) ─► update_from_output ─► … ─► shutdown
                 │ allocate_slots: blocks, or none       forward            │ free: finished       clean, or the
                 │ free: preempted, for whom                                │ tokens, times        error that ended it
"""

import os
import signal
import sys
import threading
from array import array
from contextlib import suppress
from time import monotonic_ns
from typing import TYPE_CHECKING

from inferdbg.engine.hooks import EventKind, Operation, WorkKind
from inferdbg.engine.state import Counter, Phase, Pulse, WaitReason, column_specs

from .facts import static_facts
from .hooking import Foreign, Hooks
from .pool import Intent, Pool
from .requests import DECODE, PREEMPTED, PREFILL, WAITING, Kept, Requests
from .steps import Plan, Steps
from .truth import Truth
from .waiting import Queue

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from inferdbg.blackbox.writer import BlackBox

SHOWN_WAITING = 1024
"""Waiting requests that get a slot each; those beyond are only counted, until they run."""
MOST_TABLE_ENTRIES = 1 << 22
"""16 MB; beyond that fewer requests have a table in the box."""
LAST_WORDS = "the engine's thread ended: "
"""As diagnosis.rules.engine_thread_gone reads them."""
_HEARTBEAT_S = 0.2
_IDLE, _SCHEDULE, _FORWARD, _COMMIT = int(Phase.IDLE), int(Phase.SCHEDULE), int(Phase.FORWARD), int(Phase.COMMIT)
_HEARTBEAT_NS, _STEP = int(Pulse.HEARTBEAT_NS), int(Pulse.STEP)
_PHASE, _PHASE_SINCE_NS = int(Pulse.PHASE), int(Pulse.PHASE_SINCE_NS)
_PREFILL, _DECODE = int(WorkKind.PREFILL), int(WorkKind.DECODE)
_RUNNING, _WAITING, _PREEMPTED_NOW = int(Counter.RUNNING), int(Counter.WAITING), int(Counter.PREEMPTED_NOW)
_STEPS, _PREFILLED_TOKENS = int(Counter.STEPS), int(Counter.PREFILLED_TOKENS)  # plain ints: see pool.py
_FULL_ATTENTION = "FullAttentionManager"


class Watcher:
    """``scheduler``: one that was just made. ``make_box``: from column specs. ``log``: gets a line for people.

    Raises whatever a vLLM raises that lacks what nothing works without; then nothing was changed in it.
    """

    def __init__(
        self,
        scheduler: Foreign,
        make_box: "Callable[[list[tuple[str, str, int]]], BlackBox]",
        log: "Callable[[str], None]",
        truth: "Truth | None" = None,
    ) -> None:
        manager = scheduler.kv_cache_manager
        managers = manager.coordinator.single_type_managers
        pool, tables = manager.block_pool, _main_group(managers)
        self._scheduler = scheduler
        self._manager = manager
        self._log = log
        self._truth = truth
        seats = int(scheduler.max_num_running_reqs)
        width = max(1, min(-(-int(scheduler.max_model_len) // int(tables.block_size)) + 1, len(pool.blocks)))
        rows = max(1, min(seats + 8, MOST_TABLE_ENTRIES // width))
        notes = _notes(scheduler, managers, rows, seats)
        specs = column_specs(
            num_blocks=len(pool.blocks), slots=SHOWN_WAITING + seats + 8, rows=rows, blocks_per_row=width
        )
        left_out = {"blocks.previous_free", *(spec.name for spec in specs if spec.name.startswith("kernels."))}
        if not _books_balance(scheduler, managers):
            left_out.add("blocks.refcount")
        self._box = box = make_box([spec for spec in specs if spec.name not in left_out])
        columns = box.columns
        self._pulse, self._counters = columns["pulse"], columns["counters"]
        self._events = box.events.add
        self._intent = Intent(box.intent)
        self._current: Foreign = None  # request that vLLM is looking for blocks for
        self._steps = Steps(box.steps)
        self._requests = Requests(
            columns,
            tables.req_to_blocks,
            blocks_per_row=width,
            appended=type(tables).__name__ == _FULL_ATTENTION,
            reserved=seats + 8,
            say=self._say,
        )
        self._pool = Pool(pool, box, self._intent, self._whose, self._evicted)
        self._budget = int(scheduler.max_num_scheduled_tokens)
        self._queue = Queue(
            scheduler,
            self._requests,
            budget=self._budget,
            most_running=int(getattr(scheduler, "max_num_active_reqs", seats)),
            block_size=int(tables.block_size),
        )
        self._running_status: Foreign = None  # RequestStatus.RUNNING, from the first request on
        self._needed = 0  # blocks that the waiting request asked for which was looked at last
        self._started_ns = 0
        self._last_plan: Plan | None = None
        self._own_step = 0
        self._freeing: tuple[Kept | None, bool, int] = (None, False, 0)
        self._over = threading.Event()
        self._hooks = Hooks(self._give_up)
        self._thread = threading.Thread(
            target=self._beat, args=(threading.current_thread(),), name="inferdbg heartbeat", daemon=True
        )
        try:
            missing = self._hook(scheduler, manager, pool)
            if missing:
                notes.append("this vLLM lacks " + ", ".join(missing) + ": what they would tell is not known")
            box.update_static(
                static_facts(
                    scheduler, block_size=int(tables.block_size), blocks_per_row=width, notes=[*box.notes, *notes]
                )
            )
            for request in list(scheduler.requests.values()):
                self._added(None, request)
            self._enter(_IDLE)
            self._thread.start()
            self._hear_of_stop()
        except BaseException:
            self._hooks.remove()
            raise

    @property
    def path(self) -> str:
        return self._box.path

    def _hook(self, scheduler: Foreign, manager: Foreign, pool: Foreign) -> "list[str]":
        hooks = self._hooks
        there = {
            "schedule": hooks.around(scheduler, "schedule", before=self._scheduling, after=self._scheduled),
            "update_from_output": hooks.around(
                scheduler, "update_from_output", before=self._updating, after=self._updated
            ),
            "add_request": hooks.around(scheduler, "add_request", after=self._added),
            "shutdown": hooks.around(scheduler, "shutdown", before=self._stopping),
            "KVCacheManager.allocate_slots": hooks.replace(manager, "allocate_slots", self._allocating),
            "KVCacheManager.free": hooks.around(manager, "free", before=self._free_begins, after=self._free_ended),
        }
        hooks.around(manager, "pop_blocks_for_free", before=self._free_begins, after=self._free_ended)
        if not (there["schedule"] and there["update_from_output"]):
            raise AttributeError("this vLLM's Scheduler has no schedule and update_from_output")
        return [name for name, found in there.items() if not found] + self._pool.hook(hooks)

    # -- requests come, get blocks, lose them, go

    def _added(self, _: Foreign, request: Foreign, *__: Foreign, **___: Foreign) -> None:
        name = request.request_id
        if name in self._requests.by_id or name not in self._scheduler.requests:
            return  # more input of a session, or its end
        if self._running_status is None:
            self._running_status = type(request.status).RUNNING
        last = self._queue.before(request)
        kept = self._requests.open(request)
        self._counters[Counter.ADDED] += 1
        self._counters[_WAITING] = len(self._queue)
        if kept is not None and last is not None:
            self._requests.wait(kept, WaitReason.BEHIND, last.number)

    def _allocating(self, original: "Callable[..., Foreign]") -> "Callable[..., Foreign]":
        """Called for every request of every step: it does nothing more than it must."""
        hooks, pool = self._hooks, self._pool

        def allocate_slots(request: Foreign, *args: Foreign, **kwargs: Foreign) -> Foreign:
            self._current = request
            if request.status is not self._running_status and hooks.on:
                result = self._listening(original, request, *args, **kwargs)
            else:
                result = original(request, *args, **kwargs)
            if (result is None or pool.changed) and hooks.on:
                try:
                    self._allocated(request, got=result is not None)
                except Exception as error:  # noqa: BLE001  vLLM goes on, whatever it is
                    hooks.fail(error)
            return result

        return allocate_slots

    def _listening(
        self, original: "Callable[..., Foreign]", request: Foreign, *args: Foreign, **kwargs: Foreign
    ) -> Foreign:
        """Hears how many blocks a waiting request needs. Only those: for all of a step it would cost too much."""
        coordinator, name = self._manager.coordinator, "get_num_blocks_to_allocate"
        ask = getattr(coordinator, name, None)
        self._needed = 0
        if ask is None:
            return original(request, *args, **kwargs)

        def asked(*args: Foreign, **kwargs: Foreign) -> Foreign:
            self._needed = needed = ask(*args, **kwargs)
            return needed

        coordinator.__dict__[name] = asked
        try:
            return original(request, *args, **kwargs)
        finally:
            coordinator.__dict__.pop(name, None)

    def _allocated(self, request: Foreign, *, got: bool) -> None:
        if self._pool.changed:
            self._pool.changed = False
            kept = self._requests.by_id.get(request.request_id) or self._requests.open(request, runs=True)
            if kept is not None:
                self._requests.grow(kept)
            self._intent.end()
        if not got:
            free = self._manager.block_pool.free_block_queue.num_free_blocks
            if request.status is self._running_status:
                self._queue.starved = (request, 0, free)
            else:
                watermark = int(getattr(self._manager, "watermark_blocks", 0) or 0)
                self._queue.starved = (request, int(self._needed or 0) + watermark, free)

    def _free_begins(self, request: Foreign, *_: Foreign, **__: Foreign) -> None:
        kept = self._requests.by_id.get(request.request_id)
        runs = request.status is self._running_status  # and loses its blocks: it is preempted
        lost = request.num_computed_tokens - (getattr(request, "num_in_flight_tokens", 0) or 0)
        self._freeing = kept, runs, max(0, lost)
        if kept is not None and kept.blocks:
            self._intent.begin(Operation.FREE, -1, kept.number)

    def _free_ended(self, _: Foreign, request: Foreign, *__: Foreign, **___: Foreign) -> None:
        kept, runs, lost = self._freeing
        if kept is not None:
            self._requests.give_back(kept)
            if request.is_finished():
                self._requests.close(kept, monotonic_ns())
            elif runs:
                self._requests.preempt(kept, self._whose(), lost)
        self._count()
        self._intent.end()

    # -- a step

    def _scheduling(self, *_: Foreign, **__: Foreign) -> None:
        self._intent.end()
        self._own_step += 1
        self._current = self._queue.starved = None
        self._started_ns = self._enter(_SCHEDULE)
        self._pulse[_STEP] = getattr(self._scheduler, "current_step", self._own_step - 1) + 1

    def _scheduled(self, output: Foreign, *_: Foreign, **__: Foreign) -> None:
        self._current = None
        plan = self._plan(output)
        self._queue.explain(plan)
        self._count()
        running, waiting = len(self._scheduler.running), len(self._queue)
        plan.limits = (self._budget, plan.prefill, plan.decode, running, waiting)
        if plan.kept or running or waiting:
            self._steps.planned(plan)
        plan.ended_ns = self._enter(_FORWARD)
        if self._truth is not None:
            self._truth.write(self._scheduler, "scheduled", self._pulse[_STEP], output.num_scheduled_tokens)

    def _plan(self, output: Foreign) -> Plan:
        plan = Plan(output, self._pulse[_STEP], self._started_ns)
        scheduled: dict[str, int] = output.num_scheduled_tokens
        last = self._last_plan
        if last is not None and not last.prefill and scheduled == last.output.num_scheduled_tokens and all(
            kept.stage == DECODE for kept in last.kept
        ) and len(last.kept) == len(scheduled):  # fmt: skip
            # The same requests decode again: most steps are like that.
            plan.kept, plan.numbers, plan.kinds, plan.tokens = last.kept, last.numbers, last.kinds, last.tokens
            plan.contexts = array(
                "I",
                [kept.request.num_computed_tokens - n for kept, n in zip(last.kept, last.tokens, strict=True)],
            )
            plan.decode = last.decode
            self._last_plan = plan
            return plan
        requests, drafts = self._requests, output.scheduled_spec_decode_tokens
        now = monotonic_ns()
        for name, tokens in scheduled.items():
            kept = requests.by_id.get(name) or requests.open(self._scheduler.requests[name], runs=True)
            if kept is None:
                continue
            context = max(0, kept.request.num_computed_tokens - tokens)
            prefill = context < kept.prompt or tokens > 1 + len(drafts.get(name, ()) if drafts else ())
            if kept.stage == WAITING or kept.stage == PREEMPTED:
                requests.admit(kept, context, context + tokens, now)
            stage = PREFILL if prefill else DECODE
            if stage != kept.stage:
                requests.enter(kept, stage)
            plan.kept.append(kept)
            plan.numbers.append(kept.number)
            plan.kinds.append(_PREFILL if prefill else _DECODE)
            plan.tokens.append(tokens)
            plan.contexts.append(context)
            if prefill:
                plan.prefill += tokens
            else:
                plan.decode += tokens
        self._last_plan = plan
        return plan

    def _updating(self, *_: Foreign, **__: Foreign) -> None:
        self._taken_ns = self._enter(_COMMIT)

    def _updated(self, _: Foreign, output: Foreign, *__: Foreign, **___: Foreign) -> None:
        now = monotonic_ns()
        plan = self._steps.taken(output)
        if plan is not None:
            self._store(plan, now)
            counters = self._counters
            counters[_STEPS] += 1
            if plan.prefill:
                counters[_PREFILLED_TOKENS] += plan.prefill
        self._forget_unknown()
        self._count()
        if plan is not None:
            self._steps.finished(plan, self._taken_ns, monotonic_ns())
        if self._steps.running:
            self._enter(_FORWARD)
        elif not self._scheduler.running and not self._queue:
            self._enter(_IDLE)
        if self._truth is not None:
            self._truth.write(self._scheduler, "updated", self._pulse[_STEP])

    def _store(self, plan: Plan, now: int) -> None:
        """What the step's requests have now. Those that ended meanwhile were stored when they did."""
        requests = self._requests
        requests.store(plan.kept, now)
        if not plan.prefill:
            return
        for place, kept in enumerate(plan.kept):
            if kept.stage == PREFILL and plan.kinds[place] == _PREFILL:
                context, tokens, request = plan.contexts[place], plan.tokens[place], kept.request
                requests.recomputed(kept, context, tokens)
                if not getattr(request, "is_prefill_chunk", context + tokens < request.num_tokens - 1):
                    requests.enter(kept, DECODE)

    # -- the rest

    def _forget_unknown(self) -> None:
        """Requests that went by ways that we do not watch."""
        known = self._scheduler.requests
        if len(known) >= len(self._requests.by_id):
            return
        for name, kept in list(self._requests.by_id.items()):
            if name not in known:
                self._requests.close(kept, monotonic_ns())

    def _count(self) -> None:
        counters = self._counters
        counters[_RUNNING] = len(self._scheduler.running)
        counters[_WAITING] = len(self._queue)
        counters[_PREEMPTED_NOW] = self._requests.preempted
        self._pool.count()

    def _enter(self, phase: int) -> int:
        pulse, now = self._pulse, monotonic_ns()
        pulse[_HEARTBEAT_NS] = now
        pulse[_PHASE_SINCE_NS] = now
        pulse[_PHASE] = phase
        return now

    def _beat(self, engine: threading.Thread) -> None:
        """An idle core sleeps in its input queue, so this says for it that process and thread are there."""
        while not self._over.wait(_HEARTBEAT_S):
            if not engine.is_alive():
                return
            if self._pulse[_PHASE] == _IDLE:
                self._pulse[_HEARTBEAT_NS] = monotonic_ns()

    def _whose(self) -> int:
        if self._current is None:
            return 0
        kept = self._requests.by_id.get(self._current.request_id) or self._requests.open(self._current, runs=True)
        return kept.number if kept is not None else 0

    def _say(self, kind: int, request: int, other: int, block: int, tokens: int, text: str) -> None:
        self._events(kind, self._pulse[_STEP], request, other, block, tokens, text)

    def _evicted(self, kind: int, request: int, other: int, block: int) -> None:
        self._events(kind, self._pulse[_STEP], request, other, block, 0, "")

    def _hear_of_stop(self) -> None:
        """vLLM's front end sends SIGTERM and, unless it drains, SIGKILL at once: then ``shutdown`` is never called, and
        without this every ordinary stop would look like a death. The handler stores one word, whatever it interrupts.
        """
        drains = getattr(getattr(self._scheduler, "vllm_config", None), "shutdown_timeout", 0)
        theirs = signal.getsignal(signal.SIGTERM)
        if drains or not callable(theirs) or threading.current_thread() is not threading.main_thread():
            return

        def asked(number: int, frame: "FrameType | None") -> Foreign:
            if self._hooks.on:
                with suppress(Exception):
                    self._box.stop(len(self._scheduler.requests))
            return theirs(number, frame)

        signal.signal(signal.SIGTERM, asked)

    def _stopping(self, *_: Foreign, **__: Foreign) -> None:
        """The last that vLLM calls, after a request to stop or after the error that ended its loop."""
        error = sys.exc_info()[1]
        self._over.set()
        if error is None or (isinstance(error, SystemExit) and not error.code):
            self._enter(int(Phase.STOPPING))
            self._box.stop(len(self._scheduler.requests))
        else:
            words = f"{LAST_WORDS}{type(error).__name__}: {error}"
            self._say(EventKind.LOGGED, 0, 0, -1, 0, words)
        self._hooks.remove()

    def _give_up(self, error: Exception) -> None:
        """Of our own error: vLLM runs on as if we had never been there. A box that stands still while vLLM runs would
        say that it hangs, so it goes."""
        self._over.set()
        self._box.stop(0)
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = f"{os.path.basename(place.tb_frame.f_code.co_filename)}:{place.tb_lineno}" if place else "?"
        self._log(f"inferdbg stops watching and takes its black box away: {type(error).__name__}: {error} ({where})")


def _main_group(managers: Foreign) -> Foreign:
    """The group whose block tables are kept: full attention if there is one."""
    return next((one for one in managers if type(one).__name__ == _FULL_ATTENTION), managers[0])


def _books_balance(scheduler: Foreign, managers: Foreign) -> bool:
    """Every hold of a block stands in a table of ours. Otherwise reference counts stay out: they would look like a
    leak."""
    return (
        len(managers) == 1
        and type(managers[0]).__name__ == _FULL_ATTENTION
        and not getattr(scheduler, "defer_block_free", False)
        and getattr(scheduler, "connector", None) is None
    )


def _notes(scheduler: Foreign, managers: Foreign, rows: int, seats: int) -> "list[str]":
    notes = []
    if not _books_balance(scheduler, managers):
        kinds = ", ".join(sorted({type(one).__name__ for one in managers}))
        notes.append(
            f"the KV cache has {len(managers)} groups ({kinds}): block tables are of the first full-attention one"
        )
    if rows < seats:
        notes.append(f"block tables of {rows:,} requests are kept, though {seats:,} may run: sequences are long here")
    return notes
