"""The first source is believed; later ones fill what is None, row by row and field by field."""

from hypothesis import given, settings
from msgspec.structs import replace

from inferdbg.collect.merge import carried, filled
from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.requests import Request, Requests
from inferdbg.facts.sections.scheduler import Scheduler
from inferdbg.facts.sections.server import EngineConfig, ModelFacts, Server
from tests.support.arbitrary import any_of
from tests.support.snapshots import busy

FIRST, LATER = Origin("box", 2), Origin("metrics", 1, "reported")


def test_a_known_field_is_not_overwritten_and_an_unknown_one_is_filled() -> None:
    found = filled(Scheduler(FIRST, running=3), Scheduler(LATER, running=5, waiting=7))
    assert found == Scheduler(FIRST, running=3, waiting=7)


def test_who_counted_the_totals_is_said_where_another_filled_the_rest() -> None:
    found = filled(Scheduler(FIRST, running=3), Scheduler(LATER, running=5, generated_tokens_total=9))
    assert isinstance(found, Scheduler)
    assert (found.origin, found.totals_origin) == (FIRST, LATER)
    own = filled(Scheduler(FIRST, generated_tokens_total=8), Scheduler(LATER, waiting=1, generated_tokens_total=9))
    assert isinstance(own, Scheduler)
    assert own.totals_origin == FIRST


def test_zero_is_known() -> None:
    assert filled(Scheduler(FIRST, running=0), Scheduler(LATER, running=5)) == Scheduler(FIRST, running=0)


def test_what_is_known_of_model_and_limits_is_put_together() -> None:
    first = Server(FIRST, "vllm", model=ModelFacts("m", layers=3), config=EngineConfig(block_size=16))
    later = Server(LATER, "other", model=ModelFacts("n", layers=4, heads=2), config=EngineConfig(num_blocks=80))
    assert filled(first, later) == Server(
        FIRST, "vllm", model=ModelFacts("m", layers=3, heads=2), config=EngineConfig(block_size=16, num_blocks=80)
    )


def test_rows_are_joined_by_their_number() -> None:
    first = Requests(FIRST, (Request(1, "a", "decode", prompt_tokens=9), Request(2, "b", "waiting")))
    later = Requests(LATER, (Request(2, "other", "decode", prompt_tokens=5), Request(3, "c", "waiting")))
    found = filled(first, later)
    assert isinstance(found, Requests)
    assert found.origin == FIRST
    assert found.items == (first.items[0], Request(2, "b", "waiting", prompt_tokens=5), later.items[1])


@settings(max_examples=50, deadline=None)
@given(any_of(Scheduler), any_of(Scheduler), any_of(Scheduler))
def test_merging_is_associative_and_the_same_twice(one: Scheduler, two: Scheduler, three: Scheduler) -> None:
    assert filled(filled(one, two), three) == filled(one, filled(two, three))
    assert filled(one, one) == one


def test_what_is_carried_over_has_no_news() -> None:
    (snapshot,) = busy(snapshots=1)
    assert snapshot.steps is not None
    assert snapshot.scheduler is not None
    assert carried(replace(snapshot.steps, dropped=3)) == replace(snapshot.steps, items=())
    assert carried(snapshot.scheduler) is snapshot.scheduler
