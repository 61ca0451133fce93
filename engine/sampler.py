"""Logits to tokens: greedy, temperature, top-k, top-p, seeds and log-probabilities, for a whole batch at once."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from .sampling_params import SamplingParams

_MASK = 2**64 - 1
_FIRST_CANDIDATES = 256


class Sampling(Protocol):
    """What the sampler asks of a request. ``index``: which of the n continuations. ``tokens``: prompt and output."""

    @property
    def number(self) -> int: ...

    @property
    def index(self) -> int: ...

    @property
    def params(self) -> SamplingParams: ...

    @property
    def tokens(self) -> Sequence[int]: ...


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Natural logarithms, of the model's own distribution before temperature, top-k and top-p. ``top``: the most likely
    tokens, best first."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(slots=True)
class Sampled:
    """One entry a request. ``failures``: by index, why a request got no token (its ``token_ids`` entry means nothing);
    ``logprobs``: None where none were asked for."""

    token_ids: list[int]
    logprobs: list[TokenLogprobs | None]
    failures: dict[int, str] = field(default_factory=dict)


class Sampler:
    """Draws are numbers of a counter, not of a generator: a function of the request's seed, its continuation and its
    length alone. So a seeded request says the same in any batch, and after being preempted and computed again."""

    def __init__(self, seed: int | None = None) -> None:
        """``seed``: of the requests that bring none; None takes one from the system."""
        self._seed = secrets.randbits(64) if seed is None else seed

    @torch.inference_mode()
    def sample(self, logits: torch.Tensor, requests: Sequence[Sampling]) -> Sampled:
        """A token for each request from its row of ``logits``, fp32 [requests, vocabulary]. A row with NaN, or with
        nothing finite in it, becomes an entry of ``failures``; the others go on."""
        best, choices = logits.max(dim=-1)
        tokens: list[int] = choices.tolist()
        failures: dict[int, str] = {}
        if not bool(best.isfinite().all()):
            failures = {
                row: "the model's logits are not numbers (NaN or infinite)"
                for row, finite in enumerate(best.isfinite().tolist())
                if not finite
            }
        drawn = [row for row, request in enumerate(requests) if request.params.temperature > 0 and row not in failures]
        if drawn:
            rows = logits if len(drawn) == len(requests) else logits[drawn]
            chosen = draw(
                rows, [requests[row].params for row in drawn], [self._uniform(requests[row]) for row in drawn]
            )
            for row, token in zip(drawn, chosen, strict=True):
                tokens[row] = token
        logprobs: list[TokenLogprobs | None] = [None] * len(requests)
        asked = {
            row: request.params.logprobs
            for row, request in enumerate(requests)
            if request.params.logprobs is not None and row not in failures
        }
        if asked:
            rows = logits if len(asked) == len(requests) else logits[list(asked)]
            told = _logprobs(rows, [tokens[row] for row in asked], list(asked.values()))
            for row, found in zip(asked, told, strict=True):
                logprobs[row] = found
        return Sampled(tokens, logprobs, failures)

    def _uniform(self, request: Sampling) -> float:
        params = request.params
        source = (self._seed, request.number) if params.seed is None else (params.seed, request.index)
        return uniform(*source, len(request.tokens))


def sampling_cost(rows: int, vocabulary: int) -> tuple[int, int]:
    """FLOPs and bytes that sampling takes at least: one comparison and one fp32 read a logit."""
    return rows * vocabulary, 4 * rows * vocabulary


def uniform(*counter: int) -> float:
    """A number in [0, 1) with 53 random bits that is a function of ``counter``: splitmix64 over its parts.

    Source: https://prng.di.unimi.it/splitmix64.c
    """
    state = 0
    for part in counter:
        state = (state ^ (part & _MASK)) + 0x9E3779B97F4A7C15 & _MASK
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB & _MASK
        state ^= state >> 31
    return (state >> 11) / 2.0**53


def draw(logits: torch.Tensor, params: Sequence[SamplingParams], uniforms: Sequence[float]) -> list[int]:
    """One token a row of ``logits`` [rows, vocabulary], as ``uniforms`` falls into the cumulated probabilities.

    First temperature, then the top_k likeliest tokens, then of those, made to sum to 1 again, the fewest likeliest that
    reach top_p.
    """
    scaled = logits / torch.tensor([max(row.temperature, 1e-5) for row in params]).unsqueeze(1)
    tokens = [0] * len(params)
    plain = [row for row, wish in enumerate(params) if not wish.top_k and wish.top_p == 1.0]
    cut = [row for row, wish in enumerate(params) if wish.top_k or wish.top_p < 1.0]
    if plain:
        places = _fall(torch.softmax(scaled[plain] if cut else scaled, -1), [uniforms[row] for row in plain])
        for row, token in zip(plain, places, strict=True):
            tokens[row] = token
    for row in cut:
        kept, weights = _nucleus(scaled[row], params[row].top_k, params[row].top_p)
        (place,) = _fall(weights.unsqueeze(0), [uniforms[row]])
        tokens[row] = int(kept[place])
    return tokens


def _nucleus(logits: torch.Tensor, top_k: int, top_p: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens that may be drawn, likeliest first, and their weights.

    top_p alone looks at the 256 likeliest first, which nearly always reach it: sorting a whole vocabulary takes 20
    times longer.
    """
    if top_k:
        best, tokens = logits.topk(min(top_k, len(logits)))
        weights = torch.softmax(best, -1)
    else:
        probabilities = torch.softmax(logits, -1)
        weights, tokens = probabilities.topk(min(_FIRST_CANDIDATES, len(logits)))
        if float(weights.sum(dtype=torch.float64)) < top_p:
            weights, tokens = probabilities.sort(descending=True)
    if top_p < 1.0:
        before = weights.cumsum(-1, dtype=torch.float64) - weights
        kept = max(1, int((before < top_p).sum()))
        tokens, weights = tokens[:kept], weights[:kept]
    return tokens, weights


def _fall(weights: torch.Tensor, uniforms: Sequence[float]) -> list[int]:
    """The column of each row of ``weights`` [rows, columns] into which its number from [0, 1) falls; never one of
    weight 0."""
    edges = weights.cumsum(-1, dtype=torch.float64)
    total = edges[:, -1:]
    targets = torch.tensor(uniforms, dtype=torch.float64).unsqueeze(1) * total
    targets = torch.minimum(targets, total.nextafter(torch.zeros_like(total)))  # rounding may carry one to the very end
    found: list[int] = torch.searchsorted(edges, targets, right=True).squeeze(1).tolist()
    return found


def _logprobs(logits: torch.Tensor, tokens: list[int], tops: list[int]) -> list[TokenLogprobs]:
    """For each row of ``logits`` its token and that many alternatives."""
    whole = logits.logsumexp(-1, keepdim=True)
    chosen = (logits.gather(1, torch.tensor(tokens).unsqueeze(1)) - whole).squeeze(1).tolist()
    best, places = logits.topk(min(max(tops), logits.shape[1]))
    others, values = places.tolist(), (best - whole).tolist()
    return [
        TokenLogprobs(token, chosen[row], tuple(zip(others[row][:top], values[row][:top], strict=True)))
        for row, (token, top) in enumerate(zip(tokens, tops, strict=True))
    ]
