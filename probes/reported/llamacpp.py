"""llama.cpp's table, /slots and /props. Run: the server of xllamacpp 2026.10; read: tools/server/server-context.cpp.

/metrics (--metrics) counts generated tokens only when a request ends; /slots (--slots) tells how far each one is, so
live totals are the sum of both. A slot's n_prompt_tokens is what it holds in its cache: prompt and generated tokens.
"""

import os
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.kvcache import KVCache
from inferdbg.facts.sections.metrics import Caveat
from inferdbg.facts.sections.requests import Request, Requests
from inferdbg.facts.sections.scheduler import Scheduler
from inferdbg.facts.sections.server import EngineConfig, ModelFacts

from .exposition import counted
from .tables import Name, Row, Scrape, Table

_LATE = "llama.cpp counts them when a request ends"
LATE = (Caveat("scheduler.generated_tokens_total", _LATE),)
"""Where /slots is not to be had."""
LIVE = (
    Caveat(
        "scheduler.generated_tokens_total",
        f"{_LATE}; what running requests made so far (/slots) is added",
    ),
)
_MOST_SLOTS = 4096


Number = Annotated[int, msgspec.Meta(ge=-1, le=1 << 40)]
"""-1 is none or without end."""
Words = Annotated[str, msgspec.Meta(max_length=1000)]


class NextToken(Struct):
    n_decoded: Number | None = None
    n_remain: Number | None = None


class Slot(Struct):
    """What of an answer to /slots is kept: prompts and generated text, where a server gives them, are not."""

    id: Number
    is_processing: bool | None = None
    state: Number | None = None  # in 2024: 1 is processing
    id_task: Number | None = None
    n_ctx: Number | None = None
    n_prompt_tokens: Number | None = None
    n_prompt_tokens_processed: Number | None = None
    n_prompt_tokens_cache: Number | None = None
    next_token: NextToken | list[NextToken] | None = None

    @property
    def busy(self) -> bool:
        return self.is_processing if self.is_processing is not None else self.state == 1

    @property
    def next(self) -> NextToken:
        if isinstance(self.next_token, list):
            return self.next_token[0] if self.next_token else NextToken()
        return self.next_token or NextToken()


class _Settings(Struct):
    n_ctx: Number | None = None


class Props(Struct):
    """What of an answer to /props is kept."""

    total_slots: Number | None = None
    model_alias: Words | None = None
    model_path: Words | None = None
    model_ftype: Words | None = None
    build_info: Words | None = None
    is_sleeping: bool | None = None
    default_generation_settings: _Settings | None = None


class _Meta(Struct):
    n_vocab: Number | None = None
    n_embd: Number | None = None
    n_params: Number | None = None
    size: Number | None = None


class _Model(Struct):
    id: Words = ""
    meta: _Meta | None = None


class _Models(Struct):
    data: list[_Model] = []


_slots = msgspec.json.Decoder(list[Slot])
_props = msgspec.json.Decoder(Props)
_models = msgspec.json.Decoder(_Models)


def parse_slots(body: bytes) -> tuple[Slot, ...]:
    """msgspec.DecodeError when it is not that."""
    return tuple(_slots.decode(body)[:_MOST_SLOTS])


def parse_props(body: bytes) -> Props:
    """msgspec.DecodeError when it is not that."""
    return _props.decode(body)


def model(props: Props | None, models: bytes | None) -> ModelFacts | None:
    """Its name is the alias, or what the file is called. Raises msgspec.DecodeError."""
    listed = _models.decode(models).data[:1] if models is not None else []
    found = listed[0] if listed else _Model()
    meta = found.meta or _Meta()
    name = (props.model_alias or props.model_path if props is not None else None) or found.id
    if not name:
        return None
    return ModelFacts(
        os.path.basename(name.rstrip("/")) or name,
        hidden_size=meta.n_embd,
        vocabulary=meta.n_vocab,
        parameters=meta.n_params,
        weight_bytes=meta.size,
        weight_dtype=props.model_ftype if props is not None else None,
    )


def limits(props: Props) -> EngineConfig:
    settings = props.default_generation_settings
    return EngineConfig(max_running=props.total_slots, max_model_len=settings.n_ctx if settings is not None else None)


def requests(slots: Sequence[Slot], origin: Origin) -> Requests:
    """One for each slot that works. Its number is the task's: the server's own, never used twice, and the one that
    its log names."""
    return Requests(
        origin,
        tuple(_request(slot) for slot in slots if slot.busy and (slot.id_task or 0) >= 0 and slot.id_task is not None),
    )


def _request(slot: Slot) -> Request:
    made = slot.next.n_decoded
    held = slot.n_prompt_tokens
    remain = slot.next.n_remain
    return Request(
        number=slot.id_task or 0,
        id=f"task {slot.id_task} in slot {slot.id}",
        stage="decode" if made else "prefill",
        prompt_tokens=held - made if held is not None and made and held >= made else None,
        output_tokens=made,
        max_output_tokens=made + remain if made is not None and remain is not None and remain >= 0 else None,
        computed_tokens=held,
        cached_tokens=slot.n_prompt_tokens_cache,
    )


def kvcache(scrape: Scrape, origin: Origin) -> KVCache | None:
    """Only where the server tells it, which later ones do not: a block is one cell, for one token."""
    tokens = scrape.total(Name("llamacpp:kv_cache_tokens", "to 2025.05"))
    share = scrape.gauge("llamacpp:kv_cache_usage_ratio")
    if not tokens or share is None or not 0 < share <= 1:
        return None
    cells = counted(tokens / share)
    return KVCache(origin, num_blocks=cells, block_size=1, used_blocks=tokens, tokens=tokens) if cells else None


def of_slots(slots: Sequence[Slot], origin: Origin) -> Scheduler:
    """What /slots alone tells, where /metrics is off."""
    return Scheduler(origin, running=sum(slot.busy for slot in slots))


class LiveTotals:
    """Totals that rise while requests run: the server's own, and what its slots have done since. A look at both is two
    looks, so the sum may fall by what ended in between: then it waits for the next look; what is still missing then
    will never be in the server's total, and stays counted."""

    def __init__(self) -> None:
        self._prefilled = _Rising()
        self._generated = _Rising()

    def of(self, scheduler: Scheduler, slots: Sequence[Slot]) -> Scheduler:
        """``slots`` were read after ``scheduler``: what ended in between is missing for a look, never there twice."""
        busy = [slot for slot in slots if slot.busy]
        making = sum(slot.next.n_decoded or 0 for slot in busy)
        reading = sum(slot.n_prompt_tokens_processed or 0 for slot in busy if not slot.next.n_decoded)
        return replace(
            scheduler,
            generated_tokens_total=self._generated.take(scheduler.generated_tokens_total, making),
            prefilled_tokens_total=self._prefilled.take(scheduler.prefilled_tokens_total, reading),
        )


class _Rising:
    _total = 0  # as the server has it
    _shown = 0
    _lost = 0
    _short = False  # at the last look

    def take(self, total: int | None, on_the_way: int) -> int | None:
        if total is None:
            return None
        if total < self._total:  # it began anew
            self._shown = self._lost = 0
            self._short = False
        self._total = total
        now = total + on_the_way + self._lost
        if now < self._shown and self._short:
            self._lost += self._shown - now
            now = self._shown
        self._short = now < self._shown
        self._shown = max(now, self._shown)
        return self._shown


TABLE = Table(
    engine="llama.cpp",
    prefix="llamacpp:",
    rows=(
        Row("running", (Name("llamacpp:requests_processing", "2024-"),)),
        Row("waiting", (Name("llamacpp:requests_deferred", "2024-"),)),
        Row("steps_total", (Name("llamacpp:n_decode_total", "2024.09-"),)),
        Row("prefilled_tokens_total", (Name("llamacpp:prompt_tokens_total", "2024-"),)),
        Row("generated_tokens_total", (Name("llamacpp:tokens_predicted_total", "2024-"),)),
        Row(
            "prefix_queried_tokens_total",
            (Name("llamacpp:prompt_tokens_total", "by 2026.10", plus="llamacpp:prompt_tokens_cached_total"),),
        ),
        Row("prefix_hit_tokens_total", (Name("llamacpp:prompt_tokens_cached_total", "by 2026.10"),)),
        Row("drafts_total", (Name("llamacpp:spec_decode_num_drafts_total", "by 2026.10"),)),
        Row("drafted_tokens_total", (Name("llamacpp:spec_decode_num_draft_tokens_total", "by 2026.10"),)),
        Row("accepted_tokens_total", (Name("llamacpp:spec_decode_num_accepted_tokens_total", "by 2026.10"),)),
    ),
    kvcache=kvcache,
    config=lambda _: None,  # /props has it
    switch="start llama-server with --metrics to see its queue and totals",
)
