"""Every request the engine knows, with what it holds, how far it is and why it waits."""

from typing import Literal

from msgspec import Struct

from inferdbg.facts.provenance import Origin

Stage = Literal["waiting", "prefill", "decode", "preempted", "finished"]
WaitReason = Literal["blocks", "behind", "max running", "token budget"]
"""``blocks``: needs more free blocks than there are. ``behind``: first come, first served, and one before it waits.
``max running``: as many requests run as may. ``token budget``: the step had no tokens left for it."""


class Wait(Struct, frozen=True, omit_defaults=True, gc=False):
    """Why a request waits, with the numbers: ``blocks``: needs/available blocks; ``max running``: running/limit;
    ``token budget``: needs/left; ``behind``: the number of the request before it."""

    reason: WaitReason
    needs: int | None = None
    available: int | None = None
    behind: int | None = None


Missed = Literal["never seen", "evicted", "partial block", "skipped", "caching off"]
"""Why a prefix ends where it ends. ``never seen``: we have not seen the first block that was not there; ``evicted``: we
had seen it; ``partial block``: all full blocks were there, and what is not full is never cached; ``skipped``: the
request does not want to use the cache; ``caching off``: there is none."""


class Reuse(Struct, frozen=True, omit_defaults=True, gc=False):
    """What the prefix cache had for a request that was about to be computed, as inferred from the hashes of both: what
    the engine then took is ``Request.cached_tokens``.

    ``prefix``: hash of the first block of the prompt, 16 hexadecimal digits: requests that begin alike have it in
    common (None: the prompt is shorter than a block, or there is no caching). ``full_blocks``: of the prompt; of these
    ``found_blocks`` leading ones were there (None: when it came was not seen). The next one was the first to miss.
    ``keys``: what else than tokens its hashes depend on (adapter, salt, images, embeddings): under others the same
    tokens are not found. Whether they were there under others cannot be told.
    """

    prefix: str | None = None
    full_blocks: int | None = None
    found_blocks: int | None = None
    missed: Missed | None = None
    keys: tuple[str, ...] = ()


class Request(Struct, frozen=True, omit_defaults=True, gc=False):
    """``number`` counts requests since the engine's start and is never used twice; ``id`` is the client's name for it.
    ``computed_tokens``: tokens whose KV is in the cache. ``blocks``: its block table, block numbers in order of the
    sequence as little-endian int32. Times are CLOCK_MONOTONIC ns, None until they happened."""

    number: int
    id: str
    stage: Stage
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    max_output_tokens: int | None = None
    computed_tokens: int | None = None
    cached_tokens: int | None = None  # of the prompt, found in the prefix cache when last scheduled
    recomputed_tokens: int | None = None
    preemptions: int | None = None
    arrived_ns: int | None = None
    scheduled_ns: int | None = None
    first_token_ns: int | None = None
    last_token_ns: int | None = None
    worst_itl_ns: int | None = None
    wait: Wait | None = None
    blocks: bytes = b""
    priority: int | None = None  # as the client gave it; what comes first is the policy's
    reuse: Reuse | None = None
    adapter: str | None = None  # name of the LoRA adapter
    client: int | None = None  # number of the front end that sent it

    @property
    def block_count(self) -> int:
        return len(self.blocks) // 4

    def block_table(self) -> memoryview:
        """The block numbers, in the order of the sequence."""
        return memoryview(self.blocks).cast("i")


class Requests(Struct, frozen=True, gc=False, omit_defaults=True):
    """``items`` in order of arrival."""

    origin: Origin
    items: tuple[Request, ...] = ()
