"""A server's start, before it listens: its phase and how far it is, from open files, counters and its own log.

Weights that are read leave a position in /proc/PID/fdinfo; of mapped ones only the file is seen, and what the disk
gave (/proc/PID/io). Compilers are processes of their own. What only the server knows (graph capture, profiling) is
taken from the end of its log, where that is a file and costs one read.
"""

import os
import re
import stat
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from inferdbg.facts.sections.startup import Startup, StartupPhase

from .process_table import Stat
from .roles import CORE, FRONT_END, STARTING, WORKER
from .slow_files import read_slow

_WEIGHTS = re.compile(r"\.(?:safetensors|gguf|bin|pt|pth|ckpt)$")
_DOWNLOADS = re.compile(r"\.incomplete$|/\.cache/huggingface/.*\.lock$")
_NO_WEIGHTS = re.compile(r"tokenizer|training_args|optimizer|/site-packages/|/dist-packages/")
_COMPILERS = re.compile(r"^(?:cc1plus|cc1|nvcc|ptxas|cicc|ninja|g\+\+|c\+\+|gcc|clang|clang\+\+|ld|as|triton)$")
_HELPERS = ("resource tracker", "fork server")
_MOVES_NS = 50_000_000
"""Processor time between two looks below which a process only waits."""
_LOG_BYTES = 32 << 10
_PROGRESS = re.compile(rb"checkpoint shards:\s+(\d+)% Completed \| (\d+)/(\d+)")
_MARKS: tuple[tuple[bytes, StartupPhase | None], ...] = (
    (b"non-default args", "starting"),
    (b"Starting to load model", "loading weights"),
    (b"Load weight begin", "loading weights"),
    (b"Loading weights took", "warming up"),
    (b"Model loading took", "warming up"),
    (b"Load weight end", "warming up"),
    (b"Start compiling function", "compiling"),
    (b"Dynamo bytecode transform", "compiling"),
    (b"Compiling a graph", "compiling"),
    (b"torch.compile takes", "warming up"),
    (b"KV cache size", "warming up"),
    (b"Capturing CUDA graph", "warming up"),
    (b"Capture cuda graph begin", "warming up"),
    (b"init engine (", "warming up"),
    (b"Application startup complete", None),
    (b"The server is fired up", None),
)
"""What vLLM and SGLang log, and the phase that begins then; None: it is over, what follows is another run."""


class OpenFile(NamedTuple):
    """``position``: None for a mapped one."""

    pid: int
    path: str
    position: int | None
    size: int | None = None


class Progress(NamedTuple):
    loaded_bytes: int | None
    weight_bytes: int | None
    file: str
    files_done: int
    files: int


class StartupWatch:
    """Looks at the same server again and again and remembers since when a phase lasts."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._phase: StartupPhase | None = None
        self._since_ns = self._moved_ns = 0
        self._spent: dict[int, int] = {}
        self._read_bytes: int | None = None
        self._loaded = False

    def look(self, family: Sequence[Stat], parts: Mapping[int, str | None], started_ns: int, now_ns: int) -> Startup:
        """``family``: the front end first. ``parts``: roles. Call it while the server does not listen."""
        opened = [one for process in family for one in open_files(f"{self._proc}/{process.pid}", process.pid)]
        mapped = self._mapped(family, parts)
        paths = {one.path for one in mapped}  # whoever maps a file may keep it open, at its beginning
        weights = [*mapped, *(one for one in opened if is_weight(one.path) and one.path not in paths)]
        log, progress = log_phase(_tail(f"{self._proc}/{family[0].pid}/fd/1"))
        busiest = self._busiest([one for one in family if parts.get(one.pid) not in _HELPERS])
        phase = phase_of(
            compiles=any(_COMPILERS.match(process.comm) for process in family),
            downloads=any(_DOWNLOADS.search(one.path) for one in opened),
            loads=bool(weights),
            loaded=self._loaded,
            log=log,
        )
        self._loaded = self._loaded or bool(weights)
        read_bytes = self._disk(family)
        spent = sum(process.cpu_ns for process in family)
        moved = spent - sum(self._spent.values()) >= _MOVES_NS or read_bytes != self._read_bytes
        if moved or not self._moved_ns:
            self._moved_ns = now_ns
        self._spent, self._read_bytes = {process.pid: process.cpu_ns for process in family}, read_bytes
        if phase != self._phase:
            self._since_ns = started_ns if self._phase is None else now_ns
            self._phase = phase
        done = weights_done(weights, _sizes(weights), progress) if phase == "loading weights" and weights else None
        worker = next((one.pid for one in weights), busiest.pid) if phase == "loading weights" else busiest.pid
        return Startup(
            phase=phase,
            started_ns=started_ns,
            since_ns=self._since_ns,
            moved_ns=self._moved_ns,
            pid=worker,
            role=parts.get(worker),
            loaded_bytes=done.loaded_bytes if done is not None else None,
            weight_bytes=done.weight_bytes if done is not None else None,
            file=done.file if done is not None else None,
            files_done=done.files_done if done is not None else None,
            files=done.files if done is not None else None,
            read_bytes=read_bytes,
            cpu_ns=spent,
        )

    def _busiest(self, family: Sequence[Stat]) -> Stat:
        """Who computed most since the last look; at the first one who runs, or the youngest."""
        if not self._spent:
            return max(family, key=lambda process: (process.state == "R", process.start_ticks))
        return max(family, key=lambda process: process.cpu_ns - self._spent.get(process.pid, 0))

    def _mapped(self, family: Sequence[Stat], parts: Mapping[int, str | None]) -> list[OpenFile]:
        """Weights that are mapped by whoever holds them: workers, else engine cores, else the front end."""
        for role in (WORKER, CORE, FRONT_END):
            pids = [process.pid for process in family if parts.get(process.pid) == role]
            pids += [process.pid for process in family if role == CORE and parts.get(process.pid) == STARTING]
            if pids:
                read = read_slow([f"{self._proc}/{pid}/maps" for pid in pids], limit=4 << 20)
                return [
                    OpenFile(int(path.split("/")[-2]), name, None)
                    for path, content in read.contents.items()
                    for name in mapped_weights(content)
                ]
        return []

    def _disk(self, family: Sequence[Stat]) -> int | None:
        found = [io_bytes(_read(f"{self._proc}/{process.pid}/io")) for process in family]
        known = [one for one in found if one is not None]
        return sum(known) if known else None


def phase_of(*, compiles: bool, downloads: bool, loads: bool, loaded: bool, log: StartupPhase | None) -> StartupPhase:
    """What is seen counts before what was logged; only that loading is over and what comes then tells the log alone."""
    if downloads:
        return "downloading"
    if compiles:
        return "compiling"
    if log in ("warming up", "compiling"):
        return log
    if loads:
        return "loading weights"
    if loaded:
        return "warming up"
    return log or "starting"


def weights_done(opened: Sequence[OpenFile], sizes: Mapping[str, int], progress: tuple[int, int] | None) -> Progress:
    """How far a checkpoint of several files is. Files are taken in the order of their names, as loaders do: those
    before the open one are done. ``sizes``: of all of them; ``progress``: files done and files, as the log has it."""
    names = sorted(sizes) or sorted({one.path for one in opened})
    current = min(one.path for one in opened)
    before = [name for name in names if name < current]
    if progress is not None and progress[1] == len(names):
        before = names[: progress[0]]
    position = max((one.position for one in opened if one.path == current and one.position is not None), default=None)
    loaded = None if position is None else sum(sizes.get(name, 0) for name in before) + position
    total = sum(sizes.values()) if sizes else None
    return Progress(loaded, total, os.path.basename(current), len(before), len(names))


def open_files(folder: str, pid: int) -> list[OpenFile]:
    """Weights and downloads that a process has open, with the position in each. ``folder``: /proc/PID."""
    found: list[OpenFile] = []
    try:
        names = os.listdir(f"{folder}/fd")
    except OSError:
        return found
    for name in names:
        try:
            path = os.readlink(f"{folder}/fd/{name}")
        except OSError:
            continue
        if is_weight(path) or _DOWNLOADS.search(path):
            found.append(OpenFile(pid, path, position_of(_read(f"{folder}/fdinfo/{name}"))))
    return found


def is_weight(path: str) -> bool:
    return bool(_WEIGHTS.search(path)) and not _NO_WEIGHTS.search(path)


def mapped_weights(maps: bytes) -> list[str]:
    """Paths in /proc/PID/maps that are checkpoints."""
    paths = (line.split(None, 5)[-1] for line in maps.decode("utf-8", "replace").splitlines() if " /" in line)
    return list(dict.fromkeys(path for path in paths if is_weight(path)))


def position_of(fdinfo: bytes) -> int | None:
    found = re.match(rb"pos:\s+(\d+)", fdinfo)
    return int(found[1]) if found is not None else None


def io_bytes(io: bytes) -> int | None:
    """What the disk gave, also for pages of mapped files: ``read_bytes`` of /proc/PID/io."""
    found = re.search(rb"^read_bytes: (\d+)", io, re.MULTILINE)
    return int(found[1]) if found is not None else None


def log_phase(tail: bytes) -> tuple[StartupPhase | None, tuple[int, int] | None]:
    """The last phase that a log speaks of, and files of the checkpoint (done, all) where it counts them."""
    last: tuple[int, StartupPhase | None] = (-1, None)
    for mark, phase in _MARKS:
        last = max(last, (tail.rfind(mark), phase), key=lambda pair: pair[0])
    counted = _PROGRESS.findall(tail, max(0, tail.rfind(b"Starting to load model")))
    return last[1], (int(counted[-1][1]), int(counted[-1][2])) if counted else None


def _sizes(opened: Sequence[OpenFile]) -> dict[str, int]:
    """Of all files of the checkpoint that the first belongs to: the same folder, the same ending."""
    first = min(one.path for one in opened) if opened else ""
    folder, ending = os.path.dirname(first), os.path.splitext(first)[1]
    if ending == ".gguf":  # a folder of those is a shelf of models
        files = [one.path for one in opened]
    else:
        try:
            files = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(ending)]
        except OSError:
            files = [one.path for one in opened]
    sizes: dict[str, int] = {}
    for path in files:
        try:
            sizes[path] = os.stat(path).st_size
        except OSError:
            continue
    return sizes


def _tail(path: str) -> bytes:
    """The end of what a process writes to, where that is a file."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return b""
        with open(path, "rb", buffering=0) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_BYTES))
            return file.read(_LOG_BYTES)
    except OSError:
        return b""


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(1 << 16)
    except OSError:
        return b""
