"""What the sampler promises: the right distribution, the right support, and the same draws in any company."""

from collections import Counter
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from inferdbg.engine.sampler import Sampler, draw, sampling_cost, uniform
from inferdbg.engine.sampling_params import SamplingParams

GREEDY = SamplingParams(temperature=0)


@dataclass
class Asking:
    params: SamplingParams
    number: int = 1
    index: int = 0
    tokens: list[int] = field(default_factory=list)


def logits(rows: int, vocabulary: int, seed: int = 0) -> torch.Tensor:
    return 2 * torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed))


def chi_square(counts: Counter[int], probabilities: list[float], draws: int) -> float:
    return sum(
        (counts[token] - draws * share) ** 2 / (draws * share) for token, share in enumerate(probabilities) if share
    )


def test_greedy_takes_the_likeliest_of_each_row() -> None:
    rows = logits(5, 100)
    sampled = Sampler().sample(rows, [Asking(GREEDY)] * 5)
    assert sampled.token_ids == rows.argmax(-1).tolist()
    assert sampled.logprobs == [None] * 5
    assert sampled.failures == {}


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1.0),
        SamplingParams(temperature=0.5),
        SamplingParams(temperature=2.0, top_k=4),
        SamplingParams(temperature=1.0, top_p=0.8),
        SamplingParams(temperature=1.3, top_k=6, top_p=0.7),
    ],
)
def test_draws_follow_the_distribution(params: SamplingParams) -> None:
    row, draws = logits(1, 12, seed=3), 20000
    sampler = Sampler(seed=1)
    counts: Counter[int] = Counter()
    for first in range(0, draws, 1000):
        asking = [Asking(params, number=number) for number in range(first, first + 1000)]
        counts.update(sampler.sample(row.expand(1000, -1), asking).token_ids)
    wanted = torch.softmax(row[0].double() / params.temperature, -1)
    order = wanted.argsort(descending=True).tolist()
    kept = order[: params.top_k or len(order)]
    mass = float(wanted[kept].sum())
    nucleus: list[int] = []
    for token in kept:
        if nucleus and float(wanted[nucleus].sum()) / mass >= params.top_p:
            break
        nucleus.append(token)
    shares = [float(wanted[token] / wanted[nucleus].sum()) if token in nucleus else 0.0 for token in range(12)]
    assert set(counts) <= set(nucleus)
    assert chi_square(counts, shares, draws) < 35  # of 11 degrees of freedom at most: exceeded once in 4,000 seeds


@given(
    st.lists(st.floats(-30, 30, width=32), min_size=2, max_size=40),
    st.floats(0.1, 5),
    st.integers(0, 50),
    st.floats(0.01, 1),
    st.floats(0, 1, exclude_max=True),
)
@example([-1.1154335776025544e-42, 0.0], 1.0, 0, 0.25, 0.0)
@settings(max_examples=300, deadline=None)
def test_nothing_outside_top_k_and_top_p_is_drawn(
    row: list[float], temperature: float, top_k: int, top_p: float, number: float
) -> None:
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p)
    (token,) = draw(torch.tensor([row]), [params], [number])
    shares = torch.softmax(torch.tensor(row) / temperature, 0).tolist()
    better = [share for share in shares if share > shares[token] * (1 + 1e-5)]  # others tie in 32 bits
    if top_k:
        assert len(better) < top_k
    assert sum(better) <= top_p * sum(sorted(shares, reverse=True)[: top_k or None]) * (1 + 1e-5)


def test_top_p_over_a_flat_vocabulary_looks_past_the_first_candidates() -> None:
    row = torch.zeros(1, 5000)
    row[0, :10] += 0.001 * torch.arange(10)
    seen = {draw(row, [SamplingParams(top_p=0.9)], [uniform(number)])[0] for number in range(3000)}
    assert 1500 < len(seen) <= 4501


def test_a_token_of_no_probability_is_never_drawn() -> None:
    row = torch.tensor([[float("-inf"), 1.0, float("-inf"), 1.0, float("-inf")]])
    for number in (0.0, 0.25, 0.5, 0.75, 1 - 2**-53):
        assert draw(row, [SamplingParams()], [number])[0] in (1, 3)


def test_a_seeded_request_draws_the_same_in_any_batch() -> None:
    rows = logits(8, 500)
    seeded = Asking(SamplingParams(seed=42, top_p=0.9), number=7, tokens=[1, 2, 3])
    alone = Sampler(seed=1).sample(rows[:1], [seeded]).token_ids[0]
    others = [Asking(SamplingParams(temperature=place / 4), number=place) for place in range(7)]
    in_company = Sampler(seed=2).sample(rows, [Asking(seeded.params, 99, 0, [4, 5, 6]), *others]).token_ids[0]
    assert in_company == alone


def test_seed_length_and_continuation_each_change_the_draws() -> None:
    row = torch.zeros(1, 2**16)

    def drawn(seed: int | None, index: int, length: int, number: int = 1) -> int:
        asking = Asking(SamplingParams(seed=seed), number, index, [0] * length)
        return Sampler(seed=5).sample(row, [asking]).token_ids[0]

    assert len({drawn(1, 0, 3), drawn(2, 0, 3), drawn(1, 1, 3), drawn(1, 0, 4)}) == 4
    assert drawn(1, 0, 3, number=1) == drawn(1, 0, 3, number=2)
    assert drawn(None, 0, 3, number=1) != drawn(None, 0, 3, number=2)


def test_logprobs_are_of_the_models_own_distribution() -> None:
    rows = logits(2, 50)
    params = SamplingParams(temperature=0.3, top_k=3, logprobs=4)
    sampled = Sampler().sample(rows, [Asking(params), Asking(GREEDY)])
    told = sampled.logprobs[0]
    assert told is not None
    assert sampled.logprobs[1] is None
    wanted = torch.log_softmax(rows[0], -1)
    assert told.token_id == sampled.token_ids[0]
    assert told.logprob == pytest.approx(float(wanted[told.token_id]), abs=1e-5)
    best = wanted.topk(4)
    assert [token for token, _ in told.top] == best.indices.tolist()
    assert [logprob for _, logprob in told.top] == pytest.approx(best.values.tolist(), abs=1e-5)


def test_no_alternatives_are_told_when_none_are_asked_for() -> None:
    (told,) = Sampler().sample(logits(1, 9), [Asking(SamplingParams(temperature=0, logprobs=0))]).logprobs
    assert told is not None
    assert told.top == ()


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
@pytest.mark.parametrize("params", [GREEDY, SamplingParams(), SamplingParams(top_k=2, logprobs=1)])
def test_logits_that_are_no_numbers_fail_their_request_alone(poison: float, params: SamplingParams) -> None:
    rows = logits(3, 20)
    rows[1, 4] = poison
    sampled = Sampler().sample(rows, [Asking(params)] * 3)
    assert list(sampled.failures) == [1]
    assert "not numbers" in sampled.failures[1]
    assert sampled.logprobs[1] is None
    clean = Sampler().sample(rows[[0, 2]], [Asking(GREEDY)] * 2).token_ids
    if params is GREEDY:
        assert [sampled.token_ids[0], sampled.token_ids[2]] == clean


def test_a_row_without_any_finite_logit_fails() -> None:
    rows = torch.full((1, 5), float("-inf"))
    assert list(Sampler().sample(rows, [Asking(SamplingParams())]).failures) == [0]


def test_uniform_numbers_are_spread_evenly() -> None:
    draws = 10000
    counts = Counter(int(uniform(seed, 0, length) * 20) for seed in range(100) for length in range(100))
    assert max(counts) < 20
    assert chi_square(counts, [0.05] * 20, draws) < 50  # 19 degrees of freedom


def test_the_cost_of_sampling_is_one_look_at_each_logit() -> None:
    assert sampling_cost(3, 1000) == (3000, 12000)
