"""A thread between the engine core and its front end has ended: the engine works on, and nobody gets an answer."""

from collections.abc import Iterator

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.diagnosis.roles import with_role
from inferdbg.facts.sections.wiring import DeadThread, Wiring
from inferdbg.facts.window import Window

_CAUSES = {
    "process_output_sockets": ("output_thread_dead", "output"),
    "process_input_sockets": ("input_thread_dead", "input"),
}
_FOLLOWS = {
    "output": "the engine computes, and no token reaches a client",
    "input": "requests are accepted, and none reaches the engine",
}


def check(window: Window) -> Iterator[Finding]:
    wiring, server = window.now.wiring, window.now.server
    if wiring is None or (server is not None and server.state != "alive"):
        return
    for thread in wiring.dead_threads:
        if thread.name not in _CAUSES:
            continue
        cause, queue = _CAUSES[thread.name]
        waiting = wiring.queue(queue) or 0
        if not waiting and not _was_there(window, thread):
            continue  # this version may do without it
        yield Finding(
            cause=cause,
            severity="stuck",
            confidence="sure" if (waiting and _was_there(window, thread)) or _grew(window, queue) else "likely",
            summary=f"the thread that {thread.does} is gone ({thread.name}): {_FOLLOWS[queue]}",
            evidence=tuple(_evidence(window, wiring, thread, queue)),
            next_step=_next(window),
            since_ns=thread.since_ns,
            explains=("front_and_engine_disagree", "requests_failing", "not_answering"),
        )


def _was_there(window: Window, thread: DeadThread) -> bool:
    return any(
        snapshot.wiring is not None and any(thread.name in name for name in snapshot.wiring.threads)
        for snapshot in window.snapshots
    )


def _grew(window: Window, queue: str) -> bool:
    """It is longer now than it ever was in the Window."""
    lengths = [snapshot.wiring.queue(queue) or 0 for snapshot in window.snapshots if snapshot.wiring is not None]
    return len(lengths) > 1 and lengths[-1] > max(lengths[:-1])


def _evidence(window: Window, wiring: Wiring, thread: DeadThread, queue: str) -> Iterator[Evidence]:
    yield Evidence("wiring.dead_threads", f"of {text.counted(len(wiring.threads), 'thread')} none is {thread.name}")
    waiting = wiring.queue(queue)
    if waiting:
        yield Evidence("wiring.queues", f"{text.count(waiting)} wait in the queue that it emptied")
    health = window.now.server.health if window.now.server is not None else None
    if health is not None:
        yield Evidence("server.health", f"/health answers {health.answer} all the same")


def _next(window: Window) -> str:
    cores = with_role(window.now, "engine core")
    stack = f"; py-spy dump --nonblocking --pid {cores[0].pid} shows who is left" if cores else ""
    return f'restart the server; its log says why: search it for "Exception in thread"{stack}'
