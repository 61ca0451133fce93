"""A request as the engine knows it, and the table that gives it a slot and, while it holds blocks, a row."""

from array import array
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from .config import Limits
from .hooks import Observer, Operation
from .sampling_params import SamplingParams
from .state import REQUEST_COLUMNS, REQUEST_ID_BYTES, Column, Stage, WaitReason

FinishReason = Literal["stop", "length", "abort", "error"]


@dataclass(slots=True, eq=False)
class Request:
    """One sequence; a client's request with n > 1 is n of them (``index`` 0 to n-1), numbered one after another.

    ``tokens``: prompt and output, int64. The numbers that change (computed tokens, blocks, times, stage) live in the
    columns at ``slot``; its blocks in row ``row`` of the tables. ``parked``: its siblings, until the prompt that they
    share is computed. ``digests``: of its first full blocks. ``lost_tokens``: computed when it was last preempted.
    """

    id: str
    number: int
    index: int
    tokens: "array[int]"
    prompt_tokens: int
    params: SamplingParams
    stop_ids: frozenset[int] = frozenset()
    slot: int = -1
    row: int = -1
    parked: list["Request"] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    lost_tokens: int = 0
    finish_reason: FinishReason | None = None
    failure: str = ""

    @property
    def output(self) -> "array[int]":
        return self.tokens[self.prompt_tokens :]


class RequestTable:
    """The columns ``requests.*`` as attributes, with who owns which slot and row. Which slots and rows are free
    follows from the columns; the two lists only find one without a search, and ``disagreements`` compares them."""

    def __init__(self, columns: Mapping[str, Column], limits: Limits, observer: Observer) -> None:
        self.number = columns["requests.number"]
        self.stage = columns["requests.stage"]
        self.row = columns["requests.row"]
        self.blocks = columns["requests.blocks"]
        self.output_tokens = columns["requests.output_tokens"]
        self.computed_tokens = columns["requests.computed_tokens"]
        self.cached_tokens = columns["requests.cached_tokens"]
        self.recomputed_tokens = columns["requests.recomputed_tokens"]
        self.preemptions = columns["requests.preemptions"]
        self.arrived_ns = columns["requests.arrived_ns"]
        self.scheduled_ns = columns["requests.scheduled_ns"]
        self.first_token_ns = columns["requests.first_token_ns"]
        self.last_token_ns = columns["requests.last_token_ns"]
        self.worst_itl_ns = columns["requests.worst_itl_ns"]
        self._prompt_tokens = columns["requests.prompt_tokens"]
        self._max_output_tokens = columns["requests.max_output_tokens"]
        self._wait_reason = columns["requests.wait_reason"]
        self._wait_needs = columns["requests.wait_needs"]
        self._wait_available = columns["requests.wait_available"]
        self._ids = columns["requests.id"]
        self._zeroed = [columns[f"requests.{name}"] for name in REQUEST_COLUMNS if name not in ("stage", "row")]
        self._observer = observer
        self._free_slots = deque(range(limits.slots))  # oldest first, so that the dead stay readable for long
        self._free_rows = list(range(limits.max_running - 1, -1, -1))
        self.row[:] = array("i", [-1]) * limits.slots

    @property
    def free_slots(self) -> int:
        return len(self._free_slots)

    def open(self, request: Request, now_ns: int) -> None:
        """Gives the request a slot; it waits."""
        slot = self._free_slots.popleft()
        encoded = request.id.encode("utf-8", "replace")[:REQUEST_ID_BYTES]
        self._observer.mutating(Operation.ADMIT, -1, request.number)
        for column in self._zeroed:
            column[slot] = 0
        self.row[slot] = -1
        self._ids[slot * REQUEST_ID_BYTES : (slot + 1) * REQUEST_ID_BYTES] = encoded.ljust(REQUEST_ID_BYTES, b"\0")
        self._prompt_tokens[slot] = request.prompt_tokens
        self._max_output_tokens[slot] = request.params.max_tokens
        self.arrived_ns[slot] = now_ns
        self.number[slot] = request.number
        self.stage[slot] = Stage.WAITING
        self._observer.settled()
        request.slot = slot

    def seat(self, request: Request, stage: Stage) -> None:
        """Gives it a row, so that it may hold blocks."""
        row = self._free_rows.pop()
        self._observer.mutating(Operation.ADMIT, -1, request.number)
        self.row[request.slot] = row
        self._wait_reason[request.slot] = WaitReason.NONE
        self.stage[request.slot] = stage
        self._observer.settled()
        request.row = row

    def unseat(self, request: Request, stage: Stage) -> None:
        """Takes its row back; it holds no blocks any more."""
        self._observer.mutating(Operation.RELEASE, -1, request.number)
        self.row[request.slot] = -1
        self.stage[request.slot] = stage
        self._observer.settled()
        self._free_rows.append(request.row)
        request.row = -1

    def close(self, request: Request) -> None:
        """Takes its slot, and its row when it has one; it holds no blocks any more."""
        if request.row >= 0:
            self.unseat(request, Stage.FINISHED)
        self.stage[request.slot] = Stage.EMPTY
        self._free_slots.append(request.slot)
        request.slot = -1

    def wait(self, request: Request, reason: WaitReason, needs: int = 0, available: int = 0) -> None:
        """Says why it is not in the step, see WaitReason."""
        slot = request.slot
        self._wait_needs[slot] = needs
        self._wait_available[slot] = available
        self._wait_reason[slot] = reason

    def waiting_for(self, request: Request) -> tuple[WaitReason, int, int]:
        """Reason, needs and available as last said."""
        slot = request.slot
        return WaitReason(self._wait_reason[slot]), self._wait_needs[slot], self._wait_available[slot]

    def disagreements(self, requests: list[Request]) -> Iterator[str]:
        """Where the columns and the ``requests`` that the scheduler knows differ."""
        known = {request.slot: request for request in requests}
        if len(known) != len(requests):
            yield "two requests share a slot"
        stages = self.stage.tolist()
        for slot, stage in enumerate(stages):
            if (stage != Stage.EMPTY) != (slot in known):
                yield f"slot {slot} is in stage {Stage(stage).name} and the scheduler says otherwise"
        for slot, request in known.items():
            if self.number[slot] != request.number or self.row[slot] != request.row:
                yield f"request {request.number} is not in the slot and row where it believes to be"
            if self.output_tokens[slot] != len(request.tokens) - request.prompt_tokens:
                yield f"request {request.number} has another number of output tokens than its column says"
        if sorted(self._free_slots) != [slot for slot, stage in enumerate(stages) if stage == Stage.EMPTY]:
            yield "the list of free slots is not that of the empty ones"
        taken = {request.row for request in requests if request.row >= 0}
        if sorted(taken.union(self._free_rows)) != list(range(len(taken) + len(self._free_rows))):
            yield "the list of free rows and the rows in use do not add up"
