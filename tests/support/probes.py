"""Probes that misbehave in every way, for the collector and its children."""

import os
import signal
import sys
import time
from dataclasses import dataclass

from inferdbg.collect.probe import SECOND, Reading
from inferdbg.errors import InferdbgError
from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.processes import Process, Processes
from inferdbg.facts.sections.scheduler import Scheduler
from inferdbg.facts.sections.server import Server


@dataclass
class Misbehaving:
    """``how``: well, hang, crash, segfault, flood, raise, print or huge; after ``good_reads`` that go well."""

    how: str = "well"
    good_reads: int = 0
    deadline_ns: int = SECOND // 4
    cadence_ns: int = 0

    name = "misbehaving"
    sections = ("processes",)
    isolated = True

    def __post_init__(self) -> None:
        self._reads = 0

    def read(self, now_ns: int) -> Reading:
        self._reads += 1
        if self._reads > self.good_reads:
            self._misbehave()
        process = Process(os.getpid(), f"read {self._reads}")
        return Reading({"processes": Processes(Origin(self.name, now_ns), (process,))})

    def close(self) -> None:
        pass

    def _misbehave(self) -> None:
        if self.how == "hang":
            while True:
                time.sleep(60)
        if self.how == "crash":
            os._exit(3)
        if self.how == "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        if self.how == "flood":
            self._flood()
        if self.how == "raise":
            raise ValueError("the driver is confused")
        if self.how == "explain":
            raise InferdbgError("the driver is too old", "update it")
        if self.how == "print":
            sys.stdout.write("a library prints\n" * 999)
            sys.stdout.flush()

    @staticmethod
    def _flood() -> None:
        """Writes zeros wherever the answers go."""
        for descriptor in range(3, 64):
            while True:
                try:
                    os.write(descriptor, b"\xff" * 65536)
                except OSError:
                    break


@dataclass
class FailingHalf:
    """Fails after ``good_reads``, and has something to tell all the same."""

    good_reads: int = 0
    deadline_ns: int = 30 * SECOND
    cadence_ns: int = 0

    name = "failing half"
    sections = ("scheduler", "server")
    isolated = True

    def __post_init__(self) -> None:
        self._reads = 0

    def read(self, now_ns: int) -> Reading:
        self._reads += 1
        origin = Origin(self.name, now_ns)
        if self._reads <= self.good_reads:
            return Reading({"scheduler": Scheduler(origin, running=self._reads)})
        return Reading({"server": Server(origin, "half")}, status="failed", message="half of it is gone")

    def close(self) -> None:
        pass
