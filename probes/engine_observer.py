"""Keeps the bundled engine's state in a black box: pass it to ``Engine(observer=...)``."""

from dataclasses import asdict

from inferdbg.blackbox.writer import BlackBox, BoxError
from inferdbg.engine.hooks import EngineFacts, EventKind, Observer, Operation, StepPlan, StepTimes
from inferdbg.engine.state import Column, ColumnSpec, Pulse
from inferdbg.errors import InferdbgError

_STEP = int(Pulse.STEP)
ENGINE_NAME = "inferdbg"


class BlackBoxObserver(Observer):
    """``folder``: see BlackBox.create. The box exists from ``allocate`` on, when ``path`` and ``notes`` are known; that
    raises InferdbgError where no box can be made: the engine runs as well with a plain Observer.

    On a clean stop with nothing in flight the file goes, else it stays and says what the engine was doing.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder
        self._box: BlackBox | None = None
        self._static: dict[str, object] = {"engine": ENGINE_NAME}

    @property
    def path(self) -> str | None:
        return self._box.path if self._box is not None else None

    @property
    def notes(self) -> tuple[str, ...]:
        """Where the box came out smaller or elsewhere than wished, a line each."""
        return tuple(self._box.notes) if self._box is not None else ()

    def allocate(self, specs: list[ColumnSpec]) -> dict[str, Column]:
        try:
            box = BlackBox.create(self._folder, specs)
        except BoxError as error:
            raise InferdbgError(error.message, error.hint) from None
        self._box = box
        try:
            return self._take(box)
        except BoxError as error:
            box.stop(0)
            raise InferdbgError(error.message, error.hint) from None

    def _take(self, box: BlackBox) -> dict[str, Column]:
        self._intent = box.intent
        self._generation = 0
        self._plan_step, self._finish_step, self._add_event = box.steps.plan, box.steps.finish, box.events.add
        self._pulse = box.columns["pulse"]
        self._static["notes"] = box.notes
        box.update_static(self._static)
        return box.columns

    def started(self, facts: EngineFacts) -> None:
        self._keep("facts", asdict(facts))

    def serving(self, url: str) -> None:
        self._keep("url", url)

    def mutating(self, operation: Operation, block: int = -1, request: int = 0) -> None:
        intent = self._intent
        intent[1] = operation
        intent[2] = block
        intent[3] = request
        self._generation = generation = self._generation + 1
        intent[0] = generation  # odd: from here on the words above count

    def settled(self) -> None:
        self._generation = generation = self._generation + 1
        self._intent[0] = generation

    def step_planned(self, plan: StepPlan) -> None:
        self._plan_step(
            plan.step,
            (plan.budget, plan.prefill_tokens, plan.decode_tokens, plan.running, plan.waiting),
            plan.numbers,
            plan.kinds,
            plan.tokens,
            plan.contexts,
        )

    def step_finished(self, plan: StepPlan, times: StepTimes) -> None:
        self._finish_step(
            times.start_ns,
            times.schedule_ns,
            times.prepare_ns,
            times.forward_ns,
            times.sample_ns,
            times.commit_ns,
            times.idle_ns,
        )

    def event(
        self, kind: EventKind, request: int = 0, other: int = 0, block: int = -1, tokens: int = 0, text: str = ""
    ) -> None:
        self._add_event(kind, self._pulse[_STEP], request, other, block, tokens, text)

    def stopped(self, *, requests_in_flight: int) -> None:
        if self._box is not None:
            self._box.stop(requests_in_flight)

    def abandon(self) -> None:
        """Gives up the box as death does: it stays, and its lock is released."""
        if self._box is not None:
            self._box.close()

    def _keep(self, name: str, value: object) -> None:
        self._static[name] = value
        if self._box is not None:
            self._box.update_static(self._static)
