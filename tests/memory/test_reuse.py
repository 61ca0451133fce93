"""How much of a prompt was in the prefix cache, and why not more, is told from hashes alone."""

from collections.abc import Iterator

import pytest

from inferdbg.facts.sections.requests import Request, Requests, Reuse
from inferdbg.probes.vllm_memory import VllmMemory

from .shapes import Shapes, probed, read, shapes

SYSTEM = ["sys-1---", "sys-2---"]
A = {"id": "a", "status": "RUNNING", "prompt": 14, "computed": 14, "blocks": [3, 4, 5], "hashes": [*SYSTEM, "a-3-----"]}
IN_POOL = {"3": "sys-1---", "4": "sys-2---", "5": "a-3-----"}
PREFIX = b"sys-1---".hex()


@pytest.fixture
def core() -> Iterator[Shapes]:
    with shapes("core") as process:
        process.tell(moment(41, [A], IN_POOL))
        yield process


@pytest.fixture
def probe(core: Shapes) -> Iterator[VllmMemory]:
    with probed(core.pid) as opened:
        read(opened)
        yield opened


def moment(step: int, requests: list[dict[str, object]], hashes: dict[str, str]) -> dict[str, object]:
    waiting = [one["id"] for one in requests if one["status"] == "WAITING"]
    return {
        "step": step,
        "stand": "forward",
        "requests": requests,
        "waiting": waiting,
        "hashes": hashes,
        "free": [8, 9],
    }


def requests_of(probe: VllmMemory) -> dict[str, Request]:
    found = read(probe).sections["requests"]
    assert isinstance(found, Requests)
    return {request.id: request for request in found.items}


def waiting(name: str, hashes: list[str], **more: object) -> dict[str, object]:
    return {"id": name, "status": "WAITING", "prompt": 4 * len(hashes) + 2, "hashes": hashes, **more}


def test_a_shared_prefix_is_found_up_to_the_first_block_nobody_had(core: Shapes, probe: VllmMemory) -> None:
    core.tell(moment(42, [A, waiting("b", [*SYSTEM, "b-3-----", "b-4-----"])], IN_POOL))
    assert requests_of(probe)["b"].reuse == Reuse(PREFIX, 4, 2, "never seen")


def test_a_block_that_was_there_before_was_evicted(core: Shapes, probe: VllmMemory) -> None:
    core.tell(moment(42, [], {"3": "sys-1---", "4": "other---"}))
    requests_of(probe)
    core.tell(moment(43, [waiting("b", [*SYSTEM, "b-3-----"])], {"3": "sys-1---", "4": "other---"}))
    assert requests_of(probe)["b"].reuse == Reuse(PREFIX, 3, 1, "evicted")
    core.tell(moment(44, [waiting("b", [*SYSTEM, "b-3-----"])], {"3": "sys-1---", "4": "other---", "6": "sys-2---"}))
    assert requests_of(probe)["b"].reuse == Reuse(PREFIX, 3, 2, "never seen"), "while it waits, it is compared again"


def test_what_is_no_full_block_is_never_cached(core: Shapes, probe: VllmMemory) -> None:
    short = {"id": "s", "status": "WAITING", "prompt": 3, "hashes": []}
    whole = {"id": "w", "status": "WAITING", "prompt": 8, "hashes": SYSTEM}
    core.tell(moment(42, [A, waiting("b", SYSTEM), short, whole], IN_POOL))
    found = requests_of(probe)
    assert found["b"].reuse == Reuse(PREFIX, 2, 2, "partial block")
    assert found["s"].reuse == Reuse(None, 0, 0, "partial block")
    assert found["w"].reuse == Reuse(PREFIX, 2, 2)


def test_keys_that_hashes_depend_on_are_named(core: Shapes, probe: VllmMemory) -> None:
    salted = waiting("s", ["salted-1", "salted-2"], salt="x")
    adapted = waiting("l", ["adapt-1-", "adapt-2-"], adapter="french", images=2, client=3)
    core.tell(moment(42, [A, salted, adapted, waiting("k", SYSTEM, skips=True)], IN_POOL))
    found = requests_of(probe)
    assert found["s"].reuse == Reuse(b"salted-1".hex(), 2, 0, "never seen", ("salt",))
    assert found["l"].reuse == Reuse(b"adapt-1-".hex(), 2, 0, "never seen", ("adapter", "images"))
    assert (found["l"].adapter, found["l"].client, found["s"].adapter) == ("french", 3, None)
    assert found["k"].reuse == Reuse(PREFIX, 2, 0, "skipped")


def test_one_that_runs_when_it_is_first_seen_is_compared_with_the_cache_of_before(
    core: Shapes, probe: VllmMemory
) -> None:
    """Its own blocks are in the cache by then."""
    b = {"id": "b", "status": "RUNNING", "prompt": 14, "computed": 14, "blocks": [3, 4, 6], "hashes": [*SYSTEM, "b-3-----"]}  # fmt: skip  # noqa: E501
    core.tell(moment(42, [A, b], {**IN_POOL, "6": "b-3-----"}))
    found = requests_of(probe)
    assert found["b"].reuse == Reuse(PREFIX, 3, 2, "never seen")
    assert found["a"].reuse == Reuse(PREFIX, 3), "it was there before we were"
    assert requests_of(probe)["b"].reuse == found["b"].reuse


def test_a_version_without_hashes_says_nothing_of_reuse() -> None:
    with shapes("core", "block_hashes") as process:
        process.tell(moment(41, [A], IN_POOL))
        with probed(process.pid) as probe:
            assert requests_of(probe)["a"].reuse is None
            assert "request.block_hashes" in read(probe).message
