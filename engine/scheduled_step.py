"""What a step runs, as backend and sampler need it: the plan with its requests, the copies and who gets a token."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from .hooks import StepPlan, WorkKind
from .request import Request


@dataclass(slots=True)
class ScheduledStep:
    """``requests``, ``chunks`` (tokens to compute) and ``contexts`` (tokens of it in the cache) are parallel to the
    plan's arrays: decodes first, then prefill. ``copies``: blocks (source, target) to copy, in this order, before the
    forward pass. ``sampled``: indices of the requests that get logits. ``samples``: who gets a token, each from row
    ``logit_rows[i]`` of the logits: those requests, each followed by the siblings that fork from it in this step."""

    plan: StepPlan
    requests: list[Request] = field(default_factory=list)
    chunks: list[int] = field(default_factory=list)
    contexts: list[int] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)
    sampled: list[int] = field(default_factory=list)
    samples: list[Request] = field(default_factory=list)
    logit_rows: list[int] = field(default_factory=list)

    @property
    def forks(self) -> bool:
        """Some row of the logits serves more than one request."""
        return len(self.logit_rows) > len(self.sampled)

    def add_prefill(self, prefill: list[tuple[Request, int, int]]) -> None:
        """Puts chunks (request, context, tokens) behind the decodes in ``requests`` and fills in all that follows."""
        decodes = len(self.requests)
        self.chunks = [1] * decodes
        self.samples = self.requests[:]
        self.sampled = list(range(decodes))
        self.logit_rows = list(range(decodes))
        for request, context, chunk in prefill:
            if context + chunk == len(request.tokens):
                family = [request, *request.parked]
                self.samples += family
                self.logit_rows += [len(self.sampled)] * len(family)
                self.sampled.append(len(self.requests))
            self.requests.append(request)
            self.contexts.append(context)
            self.chunks.append(chunk)
        plan = self.plan
        plan.numbers = array("I", [request.number for request in self.requests])
        plan.kinds = array("B", [WorkKind.DECODE]) * decodes + array("B", [WorkKind.PREFILL]) * len(prefill)
        plan.tokens = array("I", self.chunks)
        plan.contexts = array("I", self.contexts)
        plan.decode_tokens = decodes
        plan.prefill_tokens = sum(self.chunks) - decodes

    def prefills(self) -> Iterator[tuple[Request, int, int]]:
        """The chunks (request, context, tokens) behind the decodes."""
        first = self.plan.decode_tokens
        return zip(self.requests[first:], self.contexts[first:], self.chunks[first:], strict=True)
