"""From the engine's raw columns to sections: pure, and without a Python loop over blocks.

Columns come from a file that anybody may have written: codes out of range, rows that do not exist and blocks beyond the
pool are left out.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from inferdbg.engine import state as words
from inferdbg.engine.hooks import Operation
from inferdbg.facts.histogram import Histogram
from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.kernels import Kernel, Kernels
from inferdbg.facts.sections.pulse import Intent, Phase, Pulse
from inferdbg.facts.sections.requests import Request, Requests, Stage, Wait, WaitReason
from inferdbg.facts.sections.scheduler import Scheduler

Columns = Mapping[str, bytes]

PHASES: tuple[Phase, ...] = ("starting", "idle", "schedule", "prepare", "forward", "sample", "commit", "stopping")
STAGES: tuple[Stage, ...] = ("waiting", "prefill", "decode", "preempted", "finished")
"""Code 0 is an empty slot; so the first of these is 1."""
WAIT_REASONS: tuple[WaitReason, ...] = ("blocks", "behind", "max running", "token budget")


def items(columns: Columns, name: str, typecode: Literal["B", "H", "I", "i", "Q", "q"]) -> list[int]:
    """A column as numbers; empty when the box has none."""
    return memoryview(columns.get(name, b"")).cast(typecode).tolist()


def pulse(
    columns: Columns, kernels: Sequence[str], origin: Origin, generation: int, intent: Intent | None
) -> Pulse | None:
    """None when the box has no pulse or its phase makes no sense."""
    found = items(columns, "pulse", "Q")
    if len(found) < len(words.Pulse) or found[words.Pulse.PHASE] >= len(PHASES):
        return None
    layer, kernel = found[words.Pulse.LAYER], found[words.Pulse.KERNEL]
    return Pulse(
        origin=origin,
        heartbeat_ns=found[words.Pulse.HEARTBEAT_NS],
        step=found[words.Pulse.STEP],
        phase=PHASES[found[words.Pulse.PHASE]],
        phase_since_ns=found[words.Pulse.PHASE_SINCE_NS],
        layer=layer - 1 if layer else None,
        kernel=kernels[kernel - 1] if 0 < kernel <= len(kernels) else None,
        kernels_launched=found[words.Pulse.LAUNCHED],
        kernels_completed=found[words.Pulse.COMPLETED],
        generation=generation,
        intent=intent,
    )


def intent(operation: int, block: int, request: int) -> Intent:
    """The intent words by name."""
    known = operation in Operation._value2member_map_
    return Intent(
        operation=Operation(operation).name.lower() if known else f"operation {operation}",
        block=block if block >= 0 else None,
        request=request if request > 0 else None,
    )


def scheduler(columns: Columns, origin: Origin) -> Scheduler | None:
    counters = items(columns, "counters", "Q")
    if len(counters) < len(words.Counter):
        return None
    counter = words.Counter
    return Scheduler(
        origin=origin,
        running=counters[counter.RUNNING],
        waiting=counters[counter.WAITING],
        preempted=counters[counter.PREEMPTED_NOW],
        steps_total=counters[counter.STEPS],
        prefilled_tokens_total=counters[counter.PREFILLED_TOKENS],
        generated_tokens_total=counters[counter.GENERATED_TOKENS],
        recomputed_tokens_total=counters[counter.RECOMPUTED_TOKENS],
        prefix_queried_tokens_total=counters[counter.PREFIX_QUERIED_TOKENS],
        prefix_hit_tokens_total=counters[counter.PREFIX_HIT_TOKENS],
        preempted_total=counters[counter.PREEMPTED],
        evicted_blocks_total=counters[counter.EVICTED_BLOCKS],
        copied_blocks_total=counters[counter.COPIED_BLOCKS],
        added_total=counters[counter.ADDED],
        finished_total=counters[counter.FINISHED],
        aborted_total=counters[counter.ABORTED],
        rejected_total=counters[counter.REJECTED],
        failed_total=counters[counter.FAILED],
        ttft=_histogram(columns, "ttft"),
        itl=_histogram(columns, "itl"),
        queue_time=_histogram(columns, "queue_time"),
        e2e=_histogram(columns, "e2e"),
    )


def _histogram(columns: Columns, name: str) -> Histogram | None:
    found = items(columns, f"histograms.{name}", "Q")
    bounds = words.BUCKETS_NS
    if len(found) != len(bounds) + 2:
        return None
    return Histogram(bounds=bounds, counts=tuple(found[:-1]), sum_ns=found[-1])


def kernels(columns: Columns, names: Sequence[str], origin: Origin) -> Kernels | None:
    """None when the engine has not named its kernels yet."""
    counts = (items(columns, f"kernels.{name}", "Q") for name in ("calls", "busy_ns", "flops", "moved_bytes"))
    rows = zip(names, *counts, strict=False)
    return Kernels(origin=origin, items=tuple(Kernel(*row) for row in rows)) if names else None


def block_tables(columns: Columns, blocks_per_row: int | None) -> dict[int, bytes]:
    """Block tables (int32) by request number, of the requests that hold blocks. No row counts twice."""
    tables = columns.get("tables")
    if tables is None or not blocks_per_row or blocks_per_row < 0:
        return {}
    width = 4 * blocks_per_row
    rows = len(tables) // width
    found: dict[int, bytes] = {}
    taken: set[int] = set()
    held = zip(
        columns.get("requests.stage", b""),
        items(columns, "requests.number", "I"),
        items(columns, "requests.row", "i"),
        items(columns, "requests.blocks", "i"),
        strict=False,
    )
    for stage, number, row, blocks in held:
        if stage and 0 <= row < rows and 0 < blocks <= blocks_per_row and row not in taken:
            taken.add(row)
            found[number] = tables[row * width : row * width + 4 * blocks]
    return found


def requests(columns: Columns, tables: Mapping[int, bytes], origin: Origin) -> Requests | None:
    """``tables``: block tables by request number."""
    ids, stages, numbers = (columns.get(f"requests.{name}", b"") for name in ("id", "stage", "number"))
    if not stages or not numbers:
        return None
    unknown = (None,) * len(stages)
    named: dict[str, Sequence[int | None]] = {
        name: items(columns, f"requests.{name}", code) or unknown for name, code in words.REQUEST_COLUMNS.items()
    }
    width = words.REQUEST_ID_BYTES
    found = [
        Request(
            number, ids[slot * width : (slot + 1) * width].rstrip(b"\0").decode("utf-8", "replace"), STAGES[stage - 1],
            prompt, output, limit, computed, cached, recomputed, preemptions, arrived or None, scheduled or None,
            first or None, last or None, worst or None, _wait(reason, needs, available) if reason else None,
            tables.get(number, b""),
        )
        for slot, (
            stage, number, prompt, output, limit, computed, cached, recomputed, preemptions, arrived, scheduled, first,
            last, worst, reason, needs, available,
        ) in enumerate(
            zip(
                stages, items(columns, "requests.number", "I"), named["prompt_tokens"], named["output_tokens"],
                named["max_output_tokens"], named["computed_tokens"], named["cached_tokens"],
                named["recomputed_tokens"], named["preemptions"], named["arrived_ns"], named["scheduled_ns"],
                named["first_token_ns"], named["last_token_ns"], named["worst_itl_ns"], named["wait_reason"],
                named["wait_needs"], named["wait_available"], strict=False,
            )
        )
        if 0 < stage <= len(STAGES)
    ]  # fmt: skip
    found.sort(key=lambda request: request.number)
    return Requests(origin=origin, items=tuple(found))


def _wait(reason: int, needs: int | None, available: int | None) -> Wait | None:
    if reason > len(WAIT_REASONS):
        return None
    named = WAIT_REASONS[reason - 1]
    return Wait(reason=named, behind=needs) if named == "behind" else Wait(named, needs, available)
