"""What KV events alone tell is drawn, with what is not certain of it."""

from inferdbg.facts.provenance import Origin, ProbeReport
from inferdbg.facts.sections.prefixes import Prefix, Prefixes, PrefixPool
from inferdbg.facts.snapshot import Snapshot, Target
from inferdbg.facts.window import SECOND, Window
from inferdbg.tui.drawing.prefixes import prefix_lines
from inferdbg.tui.frame import Frame
from inferdbg.tui.ink import plain, width_of
from inferdbg.tui.views.kvmap import KVMap

NOW = 100 * SECOND
POOL = PrefixPool(
    0, "GPU", 0, 32, 1234, 39_488, copies=3, kind="full_attention", first_blocks=2, detached=5, ends=40, deepest=12,
    depths=(2, 4, 0, 800, 423), branchings=(40, 1190, 3, 1),
)  # fmt: skip
SHARED = Prefix("00000000000000ff", 0, "GPU", 0, 8, 256, 3, 31, 700, 0)


def window(*, complete: bool = True, pools: tuple[PrefixPool, ...] = (POOL,)) -> Window:
    """Two looks ten seconds apart: 500 blocks stored and 20 removed in between."""
    why = "" if complete else "3 batches lost"
    seen = [
        Prefixes(
            Origin("kv events", at, "reported" if complete else "inferred"), complete, why, pools, (SHARED,),
            stored_blocks_total=stored, removed_blocks_total=removed,
        )
        for at, stored, removed in ((NOW - 10 * SECOND, 1000, 0), (NOW, 1500, 20))
    ]  # fmt: skip
    report = ProbeReport("kv events", "ok", ("prefixes", "events"))
    target = Target("process", "a server")
    return Window(
        [
            Snapshot(at, found.origin.mono_ns, found.origin.mono_ns, target, prefixes=found, probes=(report,))
            for at, found in enumerate(seen)
        ]
    )


def said(shown: Window, width: int = 100) -> list[str]:
    return [plain(one).rstrip() for one in prefix_lines(shown, width)]


def frame(shown: Window) -> Frame:
    return Frame(shown, (), "fixed", False, "a server", (NOW, NOW))


def test_blocks_depths_and_shared_prefixes() -> None:
    assert said(window()) == [
        "blocks that can be reused  stored 50/s  removed 2/s",
        "1,234 r blocks × 32 tokens in GPU (full_attention) · 40 ends, deepest 12 blocks · 3 copies",
        "5 without the block before",
        f"           1 deep {'▒':<24} 2",
        f"           2 deep {'▒':<24} 4",
        f"         5-8 deep {'▒' * 24} 800",
        f"        9-16 deep {'▒' * 13:<24} 423",
        "",
        "shared prefix       tokens  ways on   ends   saved",
        "00000000000000ff       256        3     31    7.7k",
    ]


def test_what_is_not_certain_is_said_and_marked() -> None:
    found = said(window(complete=False))
    assert "not everything is known: 3 batches lost" in found
    assert any(one.startswith("1,234 ~ blocks") for one in found)


def test_the_kv_map_shows_it_where_no_source_knows_the_blocks() -> None:
    drawn = KVMap().draw(frame(window()), 100, 12)
    assert len(drawn) <= 12
    assert "blocks that can be reused" in "\n".join(map(plain, drawn))
    nothing = Window([Snapshot(1, NOW, NOW, Target("process", "a server"))])
    assert "not seen" in "\n".join(map(plain, KVMap().draw(frame(nothing), 100, 12)))


def test_it_fits_a_narrow_screen() -> None:
    assert all(width_of(one) <= 60 for one in prefix_lines(window(), 60))
