"""What the traffic looks like: arrivals, lengths, shared prefixes, clients that go away; and some mixes by name."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass

_COMMON_WORDS = (
    "the of and to in is that it for was on are as with his they at be this from have or by one had not but what all "
    "were when we there can an your which their said if do will each about how up out them then she many some so these "
    "would other into has more her two like him see time could no make than first been its who now people my made over "
    "did down only way find use may water long little very after words called just where most know get through back "
    "much before go good new write our used me man too any day same right look think also around another came come "
    "work three word must because does part even place well such here take why things help put years different away "
    "again off went old number great tell men say small every found still between name should home big give air line "
    "set own under read last never us left end along while might next sound below saw something thought both few those"
)
WORDS = tuple(_COMMON_WORDS.split())
"""Words that are one token each in most vocabularies (with the space before them)."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Log-normal: half lie below ``median``, two thirds within a factor e^``spread`` of it. Cut at ``least`` and
    ``most``."""

    median: int
    spread: float
    least: int
    most: int

    def draw(self, chance: random.Random) -> int:
        drawn = self.median * math.exp(chance.gauss(0.0, self.spread))
        return round(min(max(drawn, self.least), self.most))


@dataclass(frozen=True, slots=True)
class Mix:
    """``rate``: arrivals a second, Poisson; None: closed loop of ``concurrency`` clients. Under a rate, ``concurrency``
    is the most that are open at a time; arrivals beyond it are counted as errors, never delayed.

    ``shared``: share of requests that begin with one of ``prefixes`` common texts of ``prefix_tokens``. ``chat``:
    share that goes to the chat API. ``abort``: share whose client goes away in the middle of the answer.
    Every ``burst_every_s`` (None: never; the first after a quarter of it) ``burst_size`` more arrive at once, with
    ``burst_prompt`` lengths; a closed loop sends nothing else until they are gone.
    """

    name: str
    about: str
    rate: float | None = None
    concurrency: int = 8
    prompt: Lengths = Lengths(120, 0.6, 8, 1000)
    output: Lengths = Lengths(64, 0.5, 4, 256)
    shared: float = 0.5
    prefixes: int = 3
    prefix_tokens: int = 96
    chat: float = 0.5
    abort: float = 0.0
    burst_every_s: float | None = None
    burst_size: int = 0
    burst_prompt: Lengths = Lengths(600, 0.3, 64, 1500)
    temperature: float = 0.7


MIXES: Mapping[str, Mix] = {
    mix.name: mix
    for mix in (
        Mix(
            "demo",
            "a bit of everything, in bursts: queues, shared prefixes, preemption, clients that go away",
            concurrency=6,  # clients that wait for their answers: as busy on a slow machine as on a fast one
            prompt=Lengths(90, 0.7, 8, 700),
            output=Lengths(90, 0.5, 8, 260),
            shared=0.7,
            prefix_tokens=128,
            abort=0.08,
            burst_every_s=24.0,
            burst_size=8,
            burst_prompt=Lengths(380, 0.3, 128, 900),
        ),
        Mix("chat", "steady conversations with common system prompts", rate=1.0, concurrency=64, chat=1.0, shared=0.9),
        Mix("batch", "a closed loop of completions, as many as the server takes", concurrency=16, chat=0.0, shared=0.0),
        Mix(
            "long",
            "long prompts, short answers",
            concurrency=4,
            prompt=Lengths(900, 0.4, 200, 1800),
            output=Lengths(16, 0.3, 4, 48),
            shared=0.2,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Ask:
    """One request to be sent. ``abort_after``: pieces of text after which its client goes away; None: it stays."""

    chat: bool
    prefix: str
    text: str
    max_tokens: int
    temperature: float
    seed: int
    abort_after: int | None


class Asks:
    """Draws requests; the same seed draws the same ones, in the same order.

    ``words_per_token``: how many of WORDS make one token at this server. ``longest``: most tokens of prompt and answer
    together, None when the server does not say.
    """

    def __init__(self, mix: Mix, seed: int, *, words_per_token: float = 1.0, longest: int | None = None) -> None:
        self._mix = mix
        self._chance = random.Random(seed)
        self._words_per_token = words_per_token
        self._longest = longest
        self._prefixes = [self._text(self._fit(mix.prefix_tokens, 4)) for _ in range(mix.prefixes)]

    def draw(self, *, burst: bool = False) -> Ask:
        mix, chance = self._mix, self._chance
        prefix = chance.choice(self._prefixes) if self._prefixes and chance.random() < mix.shared else ""
        lengths = mix.burst_prompt if burst else mix.prompt
        text = self._text(self._fit(lengths.draw(chance), 2))
        max_tokens = self._fit(mix.output.draw(chance), 8)
        leaves = chance.random() < mix.abort
        return Ask(
            chat=chance.random() < mix.chat,
            prefix=prefix,
            text=text,
            max_tokens=max_tokens,
            temperature=mix.temperature,
            seed=chance.randrange(2**31),
            abort_after=chance.randint(1, max(1, max_tokens // 2)) if leaves else None,
        )

    def _fit(self, tokens: int, share: int) -> int:
        """At most the ``share``-th part of the longest sequence, so that prefix, prompt and answer fit together."""
        return tokens if self._longest is None else max(1, min(tokens, self._longest // share))

    def _text(self, tokens: int) -> str:
        return " ".join(self._chance.choices(WORDS, k=max(1, round(tokens * self._words_per_token))))
