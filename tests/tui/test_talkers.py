"""Requests added up by what they have in common."""

from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.kvcache import KVCache
from inferdbg.facts.sections.requests import Request, Requests, Reuse, Stage
from inferdbg.facts.sections.steps import packed
from inferdbg.facts.snapshot import Snapshot, Target
from inferdbg.tui.drawing.talkers import offered, talker_lines, talkers
from inferdbg.tui.ink import plain
from tests.support.snapshots import busy

from .looking import awaited, drawn, opened, pressed_keys, screen_text, until

ORIGIN = Origin("test", 1)


def request(number: int, stage: Stage = "decode", blocks: tuple[int, ...] = (), **more: object) -> Request:
    return Request(number, f"r-{number}", stage, blocks=packed(blocks), **more)  # type: ignore[arg-type]


def snapshot(*items: Request, used: int | None = None) -> Snapshot:
    kvcache = KVCache(ORIGIN, 100, 16, used_blocks=used) if used is not None else None
    return Snapshot(1, 1, 1, Target("process", "x", 1), requests=Requests(ORIGIN, items), kvcache=kvcache)


PREFIX = Reuse(prefix="0123456789abcdef")
ITEMS = (
    request(1, blocks=(1, 2, 3), prompt_tokens=100, cached_tokens=0, output_tokens=20, reuse=PREFIX),
    request(2, blocks=(1, 2, 4), prompt_tokens=100, cached_tokens=32, output_tokens=5, reuse=PREFIX),
    request(3, "waiting", prompt_tokens=5000, reuse=PREFIX),
    request(4, blocks=(7, 8), prompt_tokens=300, output_tokens=1),
    request(5, "finished", blocks=(9,), prompt_tokens=300),
    request(6, "waiting"),
)


def test_a_block_that_two_of_a_group_share_counts_once_and_who_ended_does_not() -> None:
    found = talkers(Requests(ORIGIN, ITEMS), "prefix")
    assert [(one.key, one.blocks, len(one.requests), one.waiting) for one in found] == [
        ("01234567", 4, 3, 1),
        ("block 7", 2, 1, 0),
        ("not known yet", 0, 1, 1),
    ]
    first = found[0]
    assert (first.prompt_tokens, first.cached_tokens, first.output_tokens) == (5200, 32, 25)


def test_lengths_adapters_and_clients() -> None:
    requests = Requests(
        ORIGIN,
        (
            request(1, prompt_tokens=256, adapter="poet", client=0),
            request(2, prompt_tokens=257, client=1),
            request(3, prompt_tokens=99_999, adapter="poet", client=0),
        ),
    )
    assert offered(requests) == ["adapter", "client", "length"]
    assert [(one.key, len(one.requests)) for one in talkers(requests, "adapter")] == [("poet", 2), ("no adapter", 1)]
    assert [one.key for one in talkers(requests, "client")] == ["front end 0", "front end 1"]
    assert [one.key for one in talkers(requests, "length")] == [
        "prompts up to 256",
        "prompts up to 1,024",
        "prompts over 16,384",
    ]


def test_what_nobody_knows_is_not_offered() -> None:
    assert offered(Requests(ORIGIN, (request(1), request(2)))) == []


def test_lines_fit_and_say_how_many_are_left() -> None:
    now = snapshot(*ITEMS, used=8)
    for width in (40, 79, 119, 199):
        lines = [plain(line) for line in talker_lines(now, "prefix", width, 3)]
        assert all(len(line) <= width for line in lines)
        assert lines[-1] == "  and 2 more"
        assert width == 40 or "3" in lines[1].split()
    full = plain(talker_lines(now, "prefix", 119, 9)[1])
    assert full.split() == ["01234567", "r-1", "3", "1", "4", "50", "%", "5.2k", "<1", "%", "25"]


@awaited
async def test_g_goes_through_the_ways_and_back() -> None:
    app = opened(busy(blocks=256, requests=8, snapshots=3))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, drawn)
        await pressed_keys(pilot, "3", "g")
        await until(pilot, lambda app: "by prefix" in screen_text(app))
        await pressed_keys(pilot, "g")
        await until(pilot, lambda app: "by length" in screen_text(app))
        await pressed_keys(pilot, "g")
        await until(pilot, lambda app: "waits for" in screen_text(app))
