"""The view of GPUs, and their piece of the overview, over what the real pynvml read of recorded answers."""

from collections.abc import Callable
from functools import cache

import pytest
from msgspec.structs import replace

from inferdbg.facts.provenance import Origin, ProbeReport
from inferdbg.facts.sections.processes import Process, Processes
from inferdbg.facts.snapshot import Snapshot
from inferdbg.facts.window import SECOND, Window
from inferdbg.tui.drawing.gpus import gpu_part, gpus_lines
from inferdbg.tui.ink import line, plain
from tests.nvml.recorded import built, seen
from tests.support import scenes
from tests.tui.looking import after, opened

Scene = Callable[[str], list[Snapshot]]
WORKERS = (Process(90, "VLLM::Worker", "worker", "R"), Process(91, "VLLM::Worker", "worker", "R"))
WELL = ProbeReport("nvml", "ok", ("gpus",), 31_000_000)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Three looks, a second apart."""
    library = built(tmp_path_factory.mktemp("nvml"))

    @cache
    def looks(name: str) -> list[Snapshot]:
        calm = scenes.healthy(1)[0]
        times = [calm.mono_ns + at * SECOND for at in range(3)]
        found = seen(name, library, *times)
        processes = [Processes(Origin("processes", at), WORKERS, 64) for at in times]
        return [
            replace(calm, seq=at, mono_ns=mono_ns, gpus=gpus, processes=running, probes=(*calm.probes[:2], WELL))
            for at, (mono_ns, gpus, running) in enumerate(zip(times, found, processes, strict=True))
        ]

    return looks


def text_of(snapshots: list[Snapshot], width: int = 120) -> str:
    return "\n".join(plain(one) for one in gpus_lines(Window(snapshots), width))


def part_of(snapshots: list[Snapshot]) -> str:
    return plain(line(*gpu_part(Window(snapshots))))


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80x24", "120x40"])
@pytest.mark.parametrize("name", ["h100", "a100", "l4", "mig", "lost", "not_available"])
def test_view(snap_compare: Callable[..., bool], scene: Scene, name: str, size: tuple[int, int]) -> None:
    assert snap_compare(opened(scene(name)), terminal_size=size, run_before=after("7"))


def test_view_without_a_gpu_says_why(snap_compare: Callable[..., bool]) -> None:
    assert snap_compare(opened(scenes.healthy(1)), terminal_size=(80, 24), run_before=after("7"))


def test_bandwidth_is_bytes_only_where_it_was_measured(scene: Scene) -> None:
    assert "2.4 TB/s of 3.4 TB/s, measured" in text_of(scene("h100"))
    old = text_of(scene("a100"))
    assert "58 % of time the memory controller was busy · bytes are not measured" in old
    assert "TB/s" not in old


def test_what_holds_a_gpu_back_and_what_ails_it_stands_in_words(scene: Scene) -> None:
    said = text_of(scene("a100"))
    assert "held back by heat (software)" in said
    assert "gen 4 x8 of 16" in said
    assert " NVLink   11 of 12 up" in said
    assert "7 corrected, 1 not · 1 row remapped · waits for a reset · Xid 94 3 s ago" in said
    assert "gen 1 of 4 (idle)" in text_of(scene("l4"))


def test_a_counter_that_began_again_gives_a_true_rate(scene: Scene) -> None:
    rise = ((2**32 - 4294900000) + 100000) * 1024 / 2  # in two seconds
    assert f"out {rise / 1e6:.0f} MB/s" in text_of(scene("a100"))


def test_who_uses_a_gpu_is_told_by_role(scene: Scene) -> None:
    assert "worker 90 67 GiB · pid 4711 1.9 GiB, not of this server" in text_of(scene("a100"))


def test_the_overview_has_a_piece_of_those_that_the_server_uses(scene: Scene) -> None:
    assert part_of(scene("h100")) == "2 gpus 91-97 % busy 149 GiB of 159 GiB 64 °C"
    assert part_of(scene("a100")) == "gpu 97 % busy 70 GiB of 80 GiB 86 °C heat (software)"
    assert part_of(scene("lost")) == "2 gpus 97 % busy 75 GiB of 80 GiB 64 °C GPU 1 lost"
    assert part_of(scenes.healthy(1)) == "gpu - (no NVML)"
    calm = scenes.healthy(1)[0]
    assert part_of([replace(calm, probes=())]) == ""
    assert part_of([replace(calm, probes=(replace(WELL, status="not answering"),))]) == "gpu - (not answering)"


def test_no_line_is_wider_than_the_screen(scene: Scene) -> None:
    for name in ("h100", "a100", "mig", "lost"):
        assert max(len(one) for one in text_of(scene(name), 60).splitlines()) <= 60


def test_gpus_alone_do_not_make_a_server_well(scene: Scene) -> None:
    from inferdbg.tui.drawing.verdict import verdict

    alone = scene("h100")[-1]
    blind = Snapshot(alone.seq, alone.wall_ns, alone.mono_ns, alone.target, gpus=alone.gpus, probes=alone.probes)
    assert verdict(Window([blind]), ()).word == "UNSEEN"
