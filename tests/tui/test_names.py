"""What a request is called: never the same as another one."""

from collections.abc import Sequence

from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.requests import Request, Requests
from inferdbg.facts.snapshot import Snapshot, Target
from inferdbg.tui.drawing.names import NAME_WIDTH, names_of
from inferdbg.tui.drawing.request_table import matches


def snapshot(*requests: tuple[int, str]) -> Snapshot:
    items = tuple(Request(number, name, "decode") for number, name in requests)
    return Snapshot(1, 0, 0, Target("process", "x", 1), requests=Requests(Origin("test", 0), items))


def called(requests: Sequence[tuple[int, str]], width: int = NAME_WIDTH) -> list[str]:
    names = names_of(snapshot(*requests))
    return [names(number, width) for number, _ in requests]


def test_a_request_is_called_as_its_client_calls_it_else_by_its_number() -> None:
    assert called([(6, "r-91"), (7, "")]) == ["r-91", "#7"]
    assert names_of(snapshot((6, "r-91")))(9) == "#9"
    assert names_of(snapshot())(None) == "-"


def test_continuations_of_one_request_are_told_apart_by_number() -> None:
    assert called([(6, "r-91"), (7, "r-91"), (8, "r-92")]) == ["r-91#6", "r-91#7", "r-92"]
    assert called([(227, "synthetic-158"), (228, "synthetic-158")]) == ["synth…-158#227", "synth…-158#228"]


def test_names_that_look_alike_only_when_cut_are_told_apart_where_they_are_cut() -> None:
    twins = [(1, "batch-2026-11-30-request"), (2, "batch-2026-12-01-request")]
    assert called(twins) == ["batch-…quest#1", "batch-…quest#2"]
    assert called(twins, width=40) == [name for _, name in twins]


def test_no_name_is_wider_than_asked() -> None:
    long = [(number, "chatcmpl-8f53d717282f40ff8d70") for number in (7, 123_456)]
    for width in (14, 32, 60):
        assert all(len(name) <= width for name in called(long, width))


def test_a_request_is_found_by_the_name_that_the_screen_gives_it() -> None:
    two = snapshot((6, "r-91"), (7, "r-91"))
    assert two.requests is not None
    assert [matches(request, "r-91#7", names_of(two)) for request in two.requests.items] == [False, True]
