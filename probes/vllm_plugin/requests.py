"""vLLM's requests as columns: a slot each, a row of the block tables while one holds blocks, and why it waits."""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Mapping
from time import monotonic_ns, time_ns

from inferdbg.engine.hooks import EventKind
from inferdbg.engine.state import (
    BUCKETS_NS,
    HISTOGRAMS,
    REQUEST_COLUMNS,
    REQUEST_ID_BYTES,
    Column,
    Counter,
    Stage,
    WaitReason,
)

from .hooking import Foreign

WAITING, PREFILL, DECODE, PREEMPTED = int(Stage.WAITING), int(Stage.PREFILL), int(Stage.DECODE), int(Stage.PREEMPTED)
_GENERATED_TOKENS = int(Counter.GENERATED_TOKENS)  # a plain int: an enum member costs a hot path
_SUM = len(BUCKETS_NS) + 1
_LONGEST_WAY_NS = 600 * 10**9  # from the front end to the scheduler; beyond it the clocks disagree
_ENDS = {
    "FINISHED_STOPPED": (EventKind.FINISHED, Counter.FINISHED, "stop"),
    "FINISHED_LENGTH_CAPPED": (EventKind.FINISHED, Counter.FINISHED, "length"),
    "FINISHED_REPETITION": (EventKind.FINISHED, Counter.FINISHED, "repetition"),
    "FINISHED_IGNORED": (EventKind.FINISHED, Counter.FINISHED, "longer than the model allows"),
    "FINISHED_ABORTED": (EventKind.ABORTED, Counter.ABORTED, "aborted by the front end"),
    "FINISHED_ERROR": (EventKind.FAILED, Counter.FAILED, "error"),
}

Say = Callable[[int, int, int, int, int, str], None]
"""kind, request, other, block, tokens, text of an event."""


class Kept:
    """What we know of one request beside its columns. ``lost``: tokens that preemptions threw away, from the start."""

    __slots__ = ("blocks", "last_token_ns", "lost", "number", "outputs", "prompt", "request", "row", "slot", "stage")

    def __init__(self, request: Foreign, number: int, slot: int) -> None:
        self.request = request
        self.number = number
        self.slot = slot
        self.row = -1
        self.blocks = 0
        self.prompt = int(request.num_prompt_tokens)
        self.outputs = int(request.num_output_tokens)
        self.last_token_ns = 0
        self.lost = 0
        self.stage = 0


class Requests:
    """``req_to_blocks``: request id to blocks, of the group whose tables we keep. ``appended``: tables only grow at
    their end, so that no entry is written twice. ``reserved``: slots that waiting requests leave to those that run."""

    def __init__(
        self,
        columns: Mapping[str, Column],
        req_to_blocks: Foreign,
        *,
        blocks_per_row: int,
        appended: bool,
        reserved: int,
        say: Say,
    ) -> None:
        self._id = columns["requests.id"]
        self._number, self._stage = columns["requests.number"], columns["requests.stage"]
        self._row, self._blocks = columns["requests.row"], columns["requests.blocks"]
        self._prompt, self._output = columns["requests.prompt_tokens"], columns["requests.output_tokens"]
        self._limit, self._computed = columns["requests.max_output_tokens"], columns["requests.computed_tokens"]
        self._cached, self._recomputed = columns["requests.cached_tokens"], columns["requests.recomputed_tokens"]
        self._preemptions = columns["requests.preemptions"]
        self._reason, self._needs = columns["requests.wait_reason"], columns["requests.wait_needs"]
        self._available = columns["requests.wait_available"]
        self._arrived, self._scheduled = columns["requests.arrived_ns"], columns["requests.scheduled_ns"]
        self._first, self._last = columns["requests.first_token_ns"], columns["requests.last_token_ns"]
        self._worst = columns["requests.worst_itl_ns"]
        self._numbers = tuple(
            columns[f"requests.{name}"] for name in REQUEST_COLUMNS if name not in ("number", "stage", "row")
        )
        self._counters = columns["counters"]
        self._histograms = {name: columns[f"histograms.{name}"] for name in HISTOGRAMS}
        self._tables = columns["tables"]
        self._width = blocks_per_row
        self._req_to_blocks = req_to_blocks
        self._appended = appended
        self._reserved = reserved
        self._say = say
        self._slots = list(range(len(self._stage)))[::-1]
        self._rows = list(range(len(self._tables) // blocks_per_row))[::-1]
        self._upcoming = 1
        self._counts_in_flight = True
        self.by_id: dict[str, Kept] = {}
        self.preempted = 0

    def open(self, request: Foreign, *, runs: bool = False) -> "Kept | None":
        """Gives the request a slot, and a number that counts from 1. None: as many wait as are shown."""
        if len(self._slots) <= (0 if runs else self._reserved):
            return None
        self._counts_in_flight = hasattr(
            request, "num_in_flight_tokens"
        )  # newer vLLM: computed once they are scheduled
        slot = self._slots.pop()
        kept = Kept(request, self._upcoming, slot)
        self._upcoming += 1
        for column in self._numbers:
            column[slot] = 0
        self._row[slot] = -1
        self._number[slot] = kept.number
        encoded = str(request.request_id).encode("utf-8", "replace")[:REQUEST_ID_BYTES]
        start = slot * REQUEST_ID_BYTES
        self._id[start : start + REQUEST_ID_BYTES] = encoded.ljust(REQUEST_ID_BYTES, b"\0")
        self._prompt[slot] = kept.prompt
        self._output[slot] = kept.outputs
        self._limit[slot] = min(max(0, request.max_tokens or 0), 0xFFFFFFFF)
        arrival_time = getattr(request, "arrival_time", None)
        way_ns = time_ns() - int(arrival_time * 1e9) if arrival_time is not None else 0
        self._arrived[slot] = monotonic_ns() - (way_ns if 0 < way_ns < _LONGEST_WAY_NS else 0)
        self.by_id[request.request_id] = kept
        self.enter(kept, WAITING)  # last: from here on the slot counts
        return kept

    def enter(self, kept: Kept, stage: int) -> None:
        self.preempted += (stage == PREEMPTED) - (kept.stage == PREEMPTED)
        kept.stage = stage
        self._stage[kept.slot] = stage

    def admit(self, kept: Kept, context: int, tokens: int, now_ns: int) -> None:
        """It runs, for the first time or again; ``context`` tokens were found computed, ``tokens`` it has in all."""
        slot = kept.slot
        self._cached[slot] = self._computed[slot] = context
        self.wait(kept, WaitReason.NONE)
        if not self._scheduled[slot]:
            self._scheduled[slot] = now_ns
            self._observe("queue_time", now_ns - self._arrived[slot])
        self._counters[Counter.PREFIX_QUERIED_TOKENS] += tokens
        self._counters[Counter.PREFIX_HIT_TOKENS] += context
        self._say(EventKind.SCHEDULED, kept.number, 0, -1, context, "")

    def grow(self, kept: Kept) -> None:
        """Writes what its table has more than before."""
        blocks = self._req_to_blocks.get(kept.request.request_id)
        if not blocks:
            return
        if kept.row < 0:
            if not self._rows:
                return  # more hold blocks than there are rows: its blocks still say whose they are
            kept.row = self._rows.pop()
            self._row[kept.slot] = kept.row
        known = kept.blocks if self._appended else 0
        count = min(len(blocks), self._width)
        start = kept.row * self._width
        self._tables[start + known : start + count] = array("i", [block.block_id for block in blocks[known:count]])
        kept.blocks = self._blocks[kept.slot] = count

    def give_back(self, kept: Kept) -> None:
        """Its table is empty."""
        self._blocks[kept.slot] = kept.blocks = 0
        if kept.row >= 0:
            self._row[kept.slot] = -1
            self._rows.append(kept.row)
            kept.row = -1

    def preempt(self, kept: Kept, other: int, lost: int) -> None:
        kept.lost = max(kept.lost, lost)
        self._computed[kept.slot] = 0
        self._preemptions[kept.slot] += 1
        self.enter(kept, PREEMPTED)
        self._counters[Counter.PREEMPTED] += 1
        self._say(EventKind.PREEMPTED, kept.number, other, -1, lost, "")

    def store(self, step: "list[Kept]", now_ns: int) -> None:
        """After a step: what its requests have computed and produced. The hot loop: most have one token more, and the
        gaps between tokens are those of the request before."""
        computed, output, last, worst = self._computed, self._output, self._last, self._worst
        generated, gap, same = 0, -1, 0
        for kept in step:
            stage = kept.stage
            if not stage:
                continue
            request, slot = kept.request, kept.slot
            outputs = request.num_output_tokens  # also of one that was preempted since: what it was owed still comes
            if outputs == kept.outputs + 1 and kept.last_token_ns:
                kept.outputs = output[slot] = outputs
                generated += 1
                since = now_ns - kept.last_token_ns
                if since != gap:
                    self._gaps(gap, same)
                    gap, same = since, 0
                same += 1
                if since > worst[slot]:
                    worst[slot] = since
                last[slot] = kept.last_token_ns = now_ns
            elif outputs != kept.outputs:
                self.produced(kept, outputs, now_ns)
            if stage != PREEMPTED:
                in_flight = request.num_in_flight_tokens if self._counts_in_flight else 0
                computed[slot] = max(0, request.num_computed_tokens - in_flight)
        self._gaps(gap, same)
        self._counters[_GENERATED_TOKENS] += generated

    def recomputed(self, kept: Kept, context: int, tokens: int) -> None:
        """A prefill chunk of ``tokens`` on top of ``context`` is done."""
        if context < kept.lost:
            again = min(context + tokens, kept.lost) - context
            self._recomputed[kept.slot] += again
            self._counters[Counter.RECOMPUTED_TOKENS] += again

    def produced(self, kept: Kept, outputs: int, now_ns: int) -> None:
        """It has ``outputs`` tokens of output now. A streaming session that goes on has fewer: it begins again."""
        new, slot = outputs - kept.outputs, kept.slot
        kept.outputs = self._output[slot] = outputs
        if new <= 0:
            return
        self._counters[Counter.GENERATED_TOKENS] += new
        if kept.last_token_ns:
            gap = (now_ns - kept.last_token_ns) // new
            self._gaps(gap, new)
            self._worst[slot] = max(self._worst[slot], gap)
        else:
            self._first[slot] = now_ns
            self._observe("ttft", now_ns - self._arrived[slot])
            self._say(EventKind.FIRST_TOKEN, kept.number, 0, -1, 0, "")
        self._last[slot] = kept.last_token_ns = now_ns

    def _gaps(self, gap: int, times: int) -> None:
        if times:
            itl = self._histograms["itl"]
            itl[bisect_left(BUCKETS_NS, gap)] += times
            itl[_SUM] += gap * times

    def wait(self, kept: Kept, reason: int, needs: int = 0, available: int = 0) -> None:
        slot = kept.slot
        self._needs[slot] = needs
        self._available[slot] = available
        self._reason[slot] = reason

    def close(self, kept: Kept, now_ns: int) -> None:
        """It ended: as its status says. Its table is empty by now."""
        outputs = int(kept.request.num_output_tokens)
        if outputs != kept.outputs:
            self.produced(kept, outputs, now_ns)
        status = getattr(kept.request.status, "name", str(kept.request.status))
        kind, counter, words = _ENDS.get(status, (EventKind.FINISHED, Counter.FINISHED, status))
        if kind == EventKind.FINISHED:
            self._observe("e2e", now_ns - self._arrived[kept.slot])
        self._counters[counter] += 1
        self._say(kind, kept.number, 0, -1, outputs, words)
        self.forget(kept)

    def forget(self, kept: Kept) -> None:
        self.give_back(kept)
        self.enter(kept, Stage.EMPTY)
        self.by_id.pop(kept.request.request_id, None)
        self._slots.append(kept.slot)

    def _observe(self, name: str, ns: int) -> None:
        column = self._histograms[name]
        column[bisect_left(BUCKETS_NS, ns)] += 1
        column[_SUM] += max(0, ns)
