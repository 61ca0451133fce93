"""Killed at any moment, an engine leaves a readable box, and every disagreement in it is covered by its intent record.

Real engines with the tiny model, a pool too small for their load (so that blocks are evicted, shared, copied and
requests preempted and aborted all the time), die by SIGKILL, SIGSEGV and SIGABRT: most from outside at a random moment,
the rest at a chosen store in the middle of a change of pool and tables. The reader then opens what is left.

    python -m benchmarks.crash [--kills 300] [--forced 100] [--seed 0]
"""

import argparse
import os
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

os.environ.update(OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")

from inferdbg.blackbox.reader import Box, Change
from inferdbg.engine.config import EngineConfig
from inferdbg.engine.consistency import Disagreement, described, disagreements
from inferdbg.engine.engine import Engine
from inferdbg.engine.errors import Overloaded
from inferdbg.engine.faults import Faults
from inferdbg.engine.hooks import Operation
from inferdbg.engine.loading import load
from inferdbg.engine.sampling_params import SamplingParams
from inferdbg.engine.state import Column
from inferdbg.errors import InferdbgError
from inferdbg.facts.sections.server import Server
from inferdbg.probes.engine_box import SECTIONS, EngineBox
from inferdbg.probes.engine_observer import BlackBoxObserver

SIGNALS = {"kill": signal.SIGKILL, "segfault": signal.SIGSEGV, "abort": signal.SIGABRT}
CONFIG = EngineConfig(block_size=8, num_blocks=96, token_budget=128, max_running=12, max_waiting=64, max_model_len=512)
LONGEST_DELAY_S = 0.3
LONGEST_WAIT_S = 120.0
MOST_CHANGES = 3000  # a forced death comes within so many changes
MOST_STORES = 10  # most changes have fewer: those are cut short at their end


class Death(NamedTuple):
    """``fault``: the spec of a death in the middle of a change; None: from outside, after ``delay_s`` under load."""

    name: str
    fault: str | None
    delay_s: float
    seed: int


class Verdict(NamedTuple):
    """What the box of one death says. ``raw``: disagreements when nothing is excused. ``wrong``: what should not be."""

    death: Death
    change: Change | None
    raw: int
    wrong: list[str]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--forced", type=int, default=None, help="of them in the middle of a change (a third)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    forced = options.kills // 3 if options.forced is None else options.forced
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    begun = time.monotonic()
    folder = tempfile.mkdtemp(prefix="crash-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    verdicts: list[Verdict] = []
    try:
        for count, death in enumerate(deaths(options.kills, forced, options.seed), start=1):
            verdicts.append(die(death, os.path.join(folder, str(count))))
            for line in verdicts[-1].wrong:
                print(f"death {count} ({death.fault or death.name}): {line}", flush=True)
    finally:
        shutil.rmtree(folder)
    print_table(verdicts)
    bad = sum(bool(verdict.wrong) for verdict in verdicts)
    print(f"{len(verdicts) - bad} of {len(verdicts)} deaths left a sound box, in {time.monotonic() - begun:.0f} s")
    return 1 if bad or len(verdicts) != options.kills else 0


def deaths(kills: int, forced: int, seed: int) -> list[Death]:
    """The same deaths for the same seed, the three signals in turn."""
    chance = random.Random(seed)
    names = list(SIGNALS)
    found: list[Death] = []
    for index in range(kills):
        name = names[index % len(names)]
        at = f"at=mutation,count={chance.randint(1, MOST_CHANGES)},store={chance.randint(1, MOST_STORES)}"
        fault = f"{name}:{at}" if index < forced else None
        found.append(Death(name, fault, chance.uniform(0, LONGEST_DELAY_S), chance.getrandbits(32)))
    return found


def die(death: Death, folder: str) -> Verdict:
    """Lets an engine live and die in a child, and looks at what is left."""
    ready, says_ready = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(ready)
            live(death, folder, says_ready)
        except BaseException:  # noqa: BLE001  the parent's stack must not unwind in the child
            traceback.print_exc()
        os._exit(99)
    os.close(says_ready)
    waiting = os.pidfd_open(child)
    try:
        began = bool(select.select([ready], [], [], LONGEST_WAIT_S)[0]) and os.read(ready, 1) != b""
        if death.fault is None and began:
            time.sleep(death.delay_s)
            os.kill(child, SIGNALS[death.name])
        if not select.select([waiting], [], [], LONGEST_WAIT_S)[0]:
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
    finally:
        os.close(ready)
        os.close(waiting)
    code = os.waitstatus_to_exitcode(status)
    return judge(death, folder, code)


def live(death: Death, folder: str, says_ready: int) -> None:
    """An engine under load, until death comes."""
    chance = random.Random(death.seed)
    model = load("tiny", "fp32")
    faults = Faults.parse([death.fault] if death.fault is not None else [])
    engine = Engine(model, CONFIG, BlackBoxObserver(folder), faults)
    prefixes = [[chance.randrange(3, 250) for _ in range(48)] for _ in range(3)]
    names = 0
    os.write(says_ready, b"r")
    while True:
        while len(engine.scheduler.requests()) < 24:
            names += 1
            prompt = [chance.randrange(3, 250) for _ in range(chance.randint(1, 120))]
            if chance.random() < 0.5:
                prompt = chance.choice(prefixes)[: chance.randint(1, 48)] + prompt
            params = SamplingParams(
                max_tokens=chance.randint(1, 60), n=chance.choice((1, 1, 1, 2, 3)), temperature=1.0, ignore_eos=True
            )
            try:
                engine.add_request(f"crash-{names}", prompt, params)
            except Overloaded:
                break
        if chance.random() < 0.1:
            engine.abort(f"crash-{chance.randint(max(1, names - 20), names)}")
        engine.step()


def judge(death: Death, folder: str, code: int) -> Verdict:
    wrong: list[str] = []
    if code != -SIGNALS[death.name]:
        wrong.append(f"it ended with {code}")
    change: Change | None = None
    raw = 0
    try:
        boxes = os.listdir(folder)
        if len(boxes) != 1:
            wrong.append(f"it left {len(boxes)} boxes")
        path = os.path.join(folder, boxes[0])
        wrong += sections_wrong(path)
        box = Box.open(path)
        moment = box.read(box.layout.columns)
        columns: dict[str, Column] = {
            name: memoryview(content).cast(box.layout.columns[name].typecode)
            for name, content in moment.columns.items()
        }
        box.close()
        change = moment.change
        raw = len(contradictions(columns, None))
        wrong += list(described(contradictions(columns, change)))
        if moment.torn:
            wrong.append("a dead engine's box reads as torn")
        if death.fault is not None and change is None:
            wrong.append("it died in the middle of a change that the intent record does not name")
    except (OSError, IndexError, InferdbgError) as error:
        wrong.append(f"the box is not readable: {error}")
    return Verdict(death, change, raw, wrong)


def sections_wrong(path: str) -> list[str]:
    """What the probe cannot tell about the dead engine."""
    probe = EngineBox(path)
    reading = probe.read(time.monotonic_ns())
    probe.close()
    missing = [f"no section {name}" for name in SECTIONS if name not in reading.sections]
    server = reading.sections.get("server")
    if not isinstance(server, Server) or server.state != "dead":
        missing.append("it is not said to be dead")
    if reading.status != "ok":
        missing.append(f"status {reading.status}: {reading.message}")
    return missing


def contradictions(columns: dict[str, Column], change: Change | None) -> list[Disagreement]:
    blocks_per_row = -(-(CONFIG.max_model_len or 0) // CONFIG.block_size)
    block, request = (change.block, change.request) if change is not None else (-1, 0)
    return disagreements(
        columns, block_size=CONFIG.block_size, blocks_per_row=blocks_per_row, block=block, request=request
    )


def print_table(verdicts: list[Verdict]) -> None:
    print(f"{'death':26} {'boxes':>6} {'sound':>6} {'in a change':>12} {'with disagreements':>19} {'not covered':>12}")
    for where, forced in (("at any moment", False), ("inside a change", True)):
        for name, number in SIGNALS.items():
            group = [v for v in verdicts if v.death.name == name and (v.death.fault is not None) == forced]
            if not group:
                continue
            print(
                f"{number.name:8} {where:17} {len(group):6} {sum(not v.wrong for v in group):6}"
                f" {sum(v.change is not None for v in group):12} {sum(v.raw > 0 for v in group):19}"
                f" {sum(bool(v.wrong) for v in group):12}"
            )
    operations = Counter(Operation(v.change.operation).name.lower() for v in verdicts if v.change is not None)
    print("changes cut short: " + ", ".join(f"{count} {name}" for name, count in operations.most_common()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
