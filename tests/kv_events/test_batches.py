"""What a message says is read whatever version wrote it, and nonsense is refused."""

from pathlib import Path

import msgspec
import pytest

from inferdbg.probes.kv_events.batches import Cleared, PoolName, Removed, Stored, parse
from inferdbg.probes.kv_events.ranks import Ranks

from .publisher import CLEARED, TOKENS, number, payload, removed, stored

RECORDED = Path(__file__).parents[2] / "fixtures" / "vllm" / "kv_events.jsonl"
GPU = PoolName(0, "GPU", 0)


def test_events_as_maps() -> None:
    batch = parse(payload(stored([1, 2], parent=7), removed([3]), CLEARED, ts=12.5))
    assert batch.wall_ns == 12_500_000_000
    assert batch.changes == (
        Stored(GPU, [1, 2], 7, 4, 8, False, "full_attention"),
        Removed(GPU, [3]),
        Cleared(0),
    )


def test_the_first_batches_of_a_real_vllm() -> None:
    """0.32.0 with 79 blocks of 32 tokens under load; written by its replay socket, prompts of random tokens."""
    ranks = Ranks(replays=True)
    for line in RECORDED.read_text(encoding="ascii").splitlines():
        message = msgspec.json.decode(line)
        frames = [b"", message["topic"].encode(), number(message["seq"]), bytes.fromhex(message["payload"])]
        ranks.replay(frames, 0)
    ranks.replay([b"", b"", number(-1), b""], 0)
    rebuilt = ranks.rebuilt
    assert (rebuilt.batches, rebuilt.stored, rebuilt.removed) == (24, 146, 70)
    assert (ranks.missed, ranks.doubts(), rebuilt.doubts()) == (0, [], [])
    (tree,) = rebuilt.trees.values()
    tree.check()
    assert (len(tree.blocks), tree.block_size, tree.kind, tree.skips) == (76, 32, "full_attention", False)
    shape = tree.shape(3)
    assert (shape.detached, sum(shape.depths)) == (0, 76)


def test_events_as_arrays_of_older_vllm_and_of_sglang() -> None:
    """SGLang's hashes are signed, and a map of what the request brought may follow."""
    batch = parse(
        payload(
            ["BlockStored", [-1], -2, list(TOKENS[:2]), 2, None, "CPU_PINNED", {"cache_salt": "a salt"}],
            ["BlockStored", [5], None, list(TOKENS[:2]), 2, None],
            ["BlockRemoved", [9], "GPU"],
            ["BlockRemoved", [9]],
            ["AllBlocksCleared"],
            rank=3,
        )
    )
    assert batch.changes == (
        Stored(PoolName(3, "CPU_PINNED", None), [2**64 - 1], 2**64 - 2, 2, 2, False, None),
        Stored(PoolName(3, None, None), [5], None, 2, 2, False, None),
        Removed(PoolName(3, "GPU", None), [9]),
        Removed(PoolName(3, None, None), [9]),
        Cleared(3),
    )


def test_a_batch_without_a_rank_is_of_rank_0() -> None:
    assert parse(msgspec.msgpack.encode([1.0, [CLEARED]])).rank == 0


def test_whole_hashes_and_their_last_eight_bytes_are_the_same() -> None:
    whole = bytes(range(32))
    batch = parse(payload(stored([whole], parent=whole), stored([int.from_bytes(whole[-8:], "big")])))
    first, second = batch.changes
    assert isinstance(first, Stored)
    assert isinstance(second, Stored)
    assert first.hashes == second.hashes == [first.parent]


def test_more_tokens_than_blocks_means_that_blocks_were_left_out() -> None:
    (change,) = parse(payload(stored([1], size=4, token_ids=list(TOKENS[:12])))).changes
    assert isinstance(change, Stored)
    assert (change.tokens, change.skipped) == (12, True)


@pytest.mark.parametrize("count", [0, 15, 16, 70_000])
def test_tokens_are_counted_by_the_head_of_their_array(count: int) -> None:
    (change,) = parse(payload(stored([1], token_ids=[1] * count))).changes
    assert isinstance(change, Stored)
    assert change.tokens == count


def test_events_of_a_new_type_are_counted_and_the_others_read() -> None:
    for news in ({"type": "BlockMoved", "block_hashes": [1]}, ["BlockMoved", [1]]):
        batch = parse(payload(stored([1]), news))
        assert len(batch.changes) == 1
        assert batch.unknown == 1


def test_names_bring_no_control_sequences_along() -> None:
    (change,) = parse(payload(stored([1], medium="\x1b[2JGPU" + "x" * 1000))).changes
    assert isinstance(change, Stored)
    assert change.pool.medium is not None
    assert "\x1b" not in change.pool.medium
    assert len(change.pool.medium) < 40


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x91" * 100_000,
        b"\xdd\xff\xff\xff\xff",
        b"\x93\xcb",
        b"\x80",
        payload("text"),
        payload(5),
        payload([]),
        payload({}),
        payload({"type": 5}),
        payload({"type": "BlockStored"}),
        payload(stored([1], size=0)),
        payload(stored([1], block_size=2**63)),
        payload(stored([1], group_idx=2**64 - 1)),
        payload(removed([1], group_idx=-1)),
        payload(rank=2**64 - 1),
        payload(rank=-1),
        payload(stored([1], size=-4, token_ids=[])),
        payload(stored([1], block_hashes=["text"])),
        payload(stored([1], block_hashes=[1.5])),
        payload(stored([1], block_hashes={"a": 1})),
        payload(stored([1], parent_block_hash=[1])),
        payload(stored([1], medium=b"\xff")),
        payload(["BlockStored", [1]]),
        payload(ts=float("nan")),
        payload(ts=float("inf")),
        payload(ts=-1.0),
        payload(ts=1e300),
        msgspec.msgpack.encode([1.0, [], "rank"]),
        msgspec.msgpack.encode({"ts": 1.0, "events": []}),
        payload(stored([1]))[:-20],
    ],
)
def test_nonsense_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):
        parse(body)
