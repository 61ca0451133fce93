"""Is what is read from vLLM's memory what vLLM's scheduler had in that step? And does a client notice the reading?

    python -m benchmarks.memory_truth [--readings 10000] [--minutes 30] [--tiny] [--gaps-only]     needs `make real`

The plug-in writes down the exact state after each schedule() and update_from_output() (probes/vllm_plugin/truth.py).
Every reading that is called consistent is compared with the line of its step, field by field. Wrong ones must not be;
of readings of a running server at most 5 % may be labelled as inconsistent. A part of them is made while the engine
core is stopped by SIGSTOP, wherever that catches it. What was read after so many minutes is compared.

The model has the shape of SmolLM2-135M. That of ``--tiny`` runs a step in a few ms, of which the exact record of the
plug-in takes a good part: no served model has as little time between two changes.
"""

import argparse
import contextlib
import http.client
import itertools
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from inferdbg.cli.target import give_way
from inferdbg.probes.maps.vllm_v1 import MAP
from inferdbg.probes.memory.engine import Engine
from inferdbg.probes.memory.look import Look
from inferdbg.probes.pymem.opening import open_process
from inferdbg.probes.vllm_plugin.carry import package_files
from tests.real.install import VLLM, installed, model_of_135m, tiny_model
from tests.real.servers import SMALL_POOL, RealServer, vllm

MOST_LABELLED = 0.05
STOPPED_EVERY = 25
GAP_WINDOWS, GAP_WINDOW_S, GAP_HZ = 6, 8.0, 10
_HEAD = 16
_VOCABULARY = 200  # token ids that any model has


class Taken(NamedTuple):
    """A reading and what it said of itself. ``stopped``: the process was, by us."""

    label: str
    consistent: bool
    in_step: bool
    step: int | None
    stopped: bool
    look: Look | None


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory_truth")
    parser.add_argument("--readings", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--gaps-only", action="store_true")
    parser.add_argument("--read-as-told", type=int, metavar="PID", help=argparse.SUPPRESS)
    wanted = parser.parse_args(arguments)
    if wanted.read_as_told is not None:
        return read_as_told(wanted.read_as_told)
    if not installed("vllm", VLLM):
        print("there is no vLLM to look at: make real")
        return 1
    model = tiny_model() if wanted.tiny else model_of_135m()
    with tempfile.TemporaryDirectory() as name:
        told = wanted.gaps_only or _right(Path(name), wanted.readings, 60 * wanted.minutes, model)
        with vllm(Path(name), *SMALL_POOL, model=model) as server:
            noticed = gaps(server)
    return 0 if told and noticed else 1


def _right(folder: Path, readings: int, seconds: float, model: Path) -> bool:
    truth = folder / "truth.jsonl"
    env = {"INFERDBG": "1", "INFERDBG_TRUTH": str(truth), "INFERDBG_BLACKBOX_DIR": str(folder)}
    env["PYTHONPATH"] = str(_carried(folder / "plugin"))
    with vllm(folder, *SMALL_POOL, env=env, model=model) as server, load(server, 9):
        time.sleep(2)
        end = time.monotonic() + seconds
        taken = list(itertools.takewhile(lambda _: time.monotonic() < end, read_many(server, readings)))
    return _tell(taken, compared(taken, truth))


def read_many(server: RealServer, readings: int) -> Iterator[Taken]:
    core = server.children()["VLLM::EngineCor"]
    engine = Engine(open_process(core), MAP)
    chance = random.Random(7)
    for number in range(readings):
        stopped = number % STOPPED_EVERY == 0
        if stopped:
            time.sleep(chance.random() / 50)
            os.kill(core, signal.SIGSTOP)
            time.sleep(0.002)
        try:
            engine.refresh(time.monotonic_ns(), 10**9)
            seen = engine.look(pool=True)
        finally:
            if stopped:
                os.kill(core, signal.SIGCONT)
        yield Taken(seen.label, seen.consistent, seen.standing.step is not None, seen.step, stopped, seen.look)
        if number % 1000 == 999:
            print(f"{number + 1:,} readings", file=sys.stderr, flush=True)
        time.sleep(chance.random() / 200)


def compared(taken: list[Taken], truth: Path) -> list[str]:
    """What consistent readings have otherwise than the scheduler had."""
    wanted = {one.step for one in taken if one.consistent}
    lines: dict[tuple[int, str], dict[str, Any]] = {}
    with truth.open(encoding="utf-8") as file:
        for text in file:
            line = json.loads(text)
            if line["step"] in wanted:
                lines[line["step"], line["at"]] = line
    wrong: list[str] = []
    for number, one in enumerate(taken):
        if not one.consistent or one.look is None or one.step is None:
            continue
        line = lines.get((one.step, "scheduled" if one.in_step else "updated"))
        if line is None:
            wrong.append(f"reading {number}: no step {one.step} is known")
            continue
        wrong += [f"reading {number}, step {one.step}: {what}" for what in differences(one.look, line)]
    return wrong


def differences(look: Look, line: Mapping[str, Any]) -> Iterator[str]:
    requests = {
        row.id: [
            row.status, row.computed_tokens, row.in_flight, row.prompt_tokens, row.outputs, row.preemptions,
            np.frombuffer(row.blocks, np.int32).tolist(),
        ]
        for row in look.rows
    }  # fmt: skip
    for name in requests.keys() | line["requests"].keys():
        if requests.get(name) != line["requests"].get(name):
            yield f"request {name}: {requests.get(name)} instead of {line['requests'].get(name)}"
    running = [row.id for row in look.rows if row.running]
    if sorted(running) != sorted(line["running"]) or look.running != len(running):
        yield f"running {running} instead of {line['running']}"
    if list(look.waiting) != line["waiting"] or look.waiting_total != len(line["waiting"]):
        yield f"waiting {look.waiting} instead of {line['waiting']}"
    if "scheduled" in line and (look.scheduled or {}) != line["scheduled"]:
        yield f"scheduled {look.scheduled} instead of {line['scheduled']}"
    if look.free_blocks != line["free"]:
        yield f"{look.free_blocks} free blocks instead of {line['free']}"
    if look.pool is None:
        yield "no pool"
        return
    head: list[int] = []
    block = look.pool.first_free
    while block >= 0 and len(head) < _HEAD:
        head.append(block)
        block = int(look.pool.next[block])
    if head != line["free_head"]:
        yield f"free list {head} instead of {line['free_head']}"
    if zlib.crc32(look.pool.references.astype(np.uint16).tobytes()) != line["refcounts"]:
        yield "reference counts"
    if int((look.pool.hash != 0).sum()) != line["hashed"]:
        yield "hashes"


def _tell(taken: list[Taken], wrong: list[str]) -> bool:
    running = [one for one in taken if not one.stopped]
    stopped = [one for one in taken if one.stopped]
    labelled = [one for one in running if not one.consistent]
    share = len(labelled) / max(1, len(running))
    compared_count = sum(one.consistent for one in taken)
    steps = len({one.step for one in taken if one.consistent})
    fields = sum(7 * len(one.look.rows) + 7 for one in taken if one.consistent and one.look is not None)
    print(f"{len(taken):,} readings, {compared_count:,} compared in {steps:,} steps, {fields:,} fields")
    print(f"wrong and not labelled: {len(wrong)}   (none may be)")
    print(f"labelled, running:      {len(labelled)} of {len(running):,}, {share:.2%}   (at most {MOST_LABELLED:.0%})")
    print(f"labelled, stopped:      {sum(not one.consistent for one in stopped)} of {len(stopped):,}")
    for label, count in Counter(one.label for one in taken if not one.consistent).most_common(12):
        print(f"    {count:6} {label}")
    for what in wrong[:10]:
        print("    WRONG", what)
    return not wrong and share <= MOST_LABELLED


# -- what a client notices


def gaps(server: RealServer) -> bool:
    """Gaps between the pieces of a stream, with a reader of its own process at 10 Hz and without, in turns. Noise is
    what windows without it differ by among each other. In a third kind of window that process works as long as a
    reading takes and reads nothing: what a server that fills the machine feels of anybody's work.

    The client runs before all others (SCHED_FIFO): engine core and worker wait for each other in loops of sched_yield,
    beside which a process that is ready may stand for seconds on two cores, read or not, and a gap would be the
    client's own."""
    core = server.children()["VLLM::EngineCor"]
    windows: dict[str, list[list[float]]] = {"alone": [], "read": [], "work": []}
    with _first_of_all() as first, load(server, 3), _reader(core) as tell:
        for turn in range(GAP_WINDOWS):
            for kind, found in windows.items():
                tell(kind)
                if pieces := _stream(server, GAP_WINDOW_S, turn):  # none where a busy machine let no two pieces through
                    found.append(pieces)
    if not all(windows.values()):
        print("gaps between pieces: not judged, no piece came in all windows of a kind")
        return False
    print("gaps between pieces       mean   median      p99      max   pieces   longest of the windows, ms")
    names = {"alone": "alone", "read": "read at 10 Hz", "work": "as much work"}
    for kind, found in windows.items():
        every = [gap for gaps in found for gap in gaps]
        longest = " ".join(f"{max(gaps) * 1e3:.0f}" for gaps in found)
        print(
            f"    {names[kind]:17}  {statistics.mean(every) * 1e3:7.2f}  {statistics.median(every) * 1e3:7.2f} "
            f" {_p99(every) * 1e3:7.2f}  {max(every) * 1e3:7.2f}  {len(every):7,}   {longest}"
        )
    measures: list[tuple[str, Callable[[list[float]], float]]] = [("median", statistics.median)]
    if first:
        measures += [("p99", _p99), ("longest", max)]
    else:
        print("p99 and longest are not judged: the client may not run before all others (CAP_SYS_NICE)")
    judged = [_unnoticed(name, measure, windows) for name, measure in measures]
    return all(judged)


def _unnoticed(name: str, measure: Callable[[list[float]], float], windows: Mapping[str, list[list[float]]]) -> bool:
    """Whether windows with a reader are apart from those without by no more than these are from each other."""
    alone, read = ([measure(gaps) * 1e3 for gaps in windows[kind]] for kind in ("alone", "read"))
    noise = max(alone) - min(alone)
    apart = statistics.median(read) - statistics.median(alone)
    print(f"{name} of the windows: read {apart:+.2f} ms; those without a reader differ by {noise:.2f}")
    return apart <= noise


def _p99(gaps: list[float]) -> float:
    return sorted(gaps)[int(0.99 * len(gaps))]


@contextlib.contextmanager
def _first_of_all() -> Iterator[bool]:
    """Whether this process runs whenever it is ready, before all others, with the threads that it starts."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        yield False
        return
    try:
        yield True
    finally:
        os.sched_setscheduler(0, *before)


@contextlib.contextmanager
def _reader(core: int) -> Iterator[Callable[[str], None]]:
    """A process that reads the engine core at 10 Hz, or works as long, while it is told to."""
    program = [sys.executable, "-m", "benchmarks.memory_truth", "--read-as-told", str(core)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        said, answered = process.stdin, process.stdout

        def tell(kind: str) -> None:
            said.write(f"{kind}\n")
            said.flush()
            answered.readline()

        tell("alone")
        yield tell
        said.close()


def read_as_told(core: int) -> int:
    """A line ``read``, ``work`` or ``alone`` says what is done from then on; each is answered. As ``inferdbg attach``
    reads."""
    give_way()
    engine = Engine(open_process(core), MAP)
    engine.refresh(time.monotonic_ns())
    kind = "alone"

    def act() -> None:
        taken_s = 0.005
        while True:
            begun = time.thread_time()
            if kind == "read":
                engine.look(pool=True)
                taken_s = time.thread_time() - begun
            while kind == "work" and time.thread_time() - begun < taken_s:
                sum(range(1000))
            time.sleep(1 / GAP_HZ)

    threading.Thread(target=act, daemon=True).start()
    for line in sys.stdin:
        kind = line.strip()
        print("told", flush=True)
    return 0


def _stream(server: RealServer, for_s: float, number: int) -> list[float]:
    """Seconds between the pieces that one client gets."""
    found: list[float] = []
    end = time.monotonic() + for_s
    while time.monotonic() < end:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request(
            "POST", "/v1/completions", _body([40 + number] * 20, 300, stream=True),
            {"Content-Type": "application/json"},
        )  # fmt: skip
        response = connection.getresponse()
        before: float | None = None
        while (line := response.readline()) and time.monotonic() < end:
            if line.startswith(b"data: {"):
                now = time.monotonic()
                if before is not None:
                    found.append(now - before)
                before = now
        connection.close()
    return found


@contextlib.contextmanager
def load(server: RealServer, streams: int) -> Iterator[None]:
    """Requests of all lengths, some of which begin alike, some of which are given up, until it is over."""
    over = threading.Event()

    def one(number: int) -> None:
        chance = random.Random(number)
        while not over.is_set():
            shared = [1 + chance.randrange(3)] * (32 * chance.randrange(4))
            prompt = shared + [chance.randrange(_VOCABULARY) for _ in range(chance.randrange(1, 200))]
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            with contextlib.suppress(OSError, http.client.HTTPException):
                body = _body(prompt, chance.randrange(1, 900), stream=True)
                connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
                response = connection.getresponse()
                patience = chance.randrange(1, 400) if chance.random() < 0.2 else 10**6
                while patience and not over.is_set() and response.readline():
                    patience -= 1
            connection.close()

    threads = [threading.Thread(target=one, args=(number,), daemon=True) for number in range(streams)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(20)


def _body(prompt: list[int], tokens: int, *, stream: bool) -> bytes:
    return json.dumps(
        {"model": "tiny", "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "stream": stream}
    ).encode()


def _carried(folder: Path) -> Path:
    for path, content in package_files().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
