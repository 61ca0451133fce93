"""The real pynvml over recorded answers: builds libnvidia-ml.so.1 with the machine's compiler, a child loads it."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pynvml
import pytest
from msgspec.structs import replace

from inferdbg.collect.collector import Collector
from inferdbg.facts.sections.gpus import Gpus
from inferdbg.facts.snapshot import Snapshot, Target
from inferdbg.probes.nvml import LIBRARY, Nvml

SOURCE = Path(__file__).parent / "libnvidia_ml.c"
FIXTURES = Path(__file__).parents[2] / "fixtures" / "nvml"
PATIENCE_S = 30.0


def built(folder: Path) -> Path:
    """The folder with the library in it. ``cc`` must be there, as it is wherever the engine's kernels are built."""
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"]
    subprocess.run(["cc", *flags, "-o", str(folder / LIBRARY), str(SOURCE)], check=True)
    return folder


def fixture(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FIXTURES / f"{name}.json").read_text(encoding="utf-8"))
    return found


def written(answers: dict[str, Any]) -> str:
    """As the library reads them: a line a value."""
    return "".join(f"{key} {value}\n" for key, value in _flat(answers, ""))


def _flat(answers: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for key, value in answers.items():
        if isinstance(value, dict) and "error" not in value:
            yield from _flat(value, f"{path}{key}/")
        else:
            yield f"{path}{key}", " | ".join(map(_word, value if isinstance(value, list) else [value]))


def _word(value: Any) -> str:  # noqa: ANN401  # a value of JSON
    return f"!{getattr(pynvml, 'NVML_ERROR_' + value['error'])}" if isinstance(value, dict) else str(value)


def seen(name: str, library: Path, *times_ns: int) -> list[Gpus]:
    """A fixture as it was read at these moments, whatever the clock said."""
    with pytest.MonkeyPatch.context() as patched, collecting(fixture(name), library, patched) as collector:
        found = [collector.round(patience_ns=20_000_000_000).gpus for _ in times_ns]
    return [_at(gpus, mono_ns) for gpus, mono_ns in zip(found, times_ns, strict=True) if gpus is not None]


def _at(gpus: Gpus, mono_ns: int) -> Gpus:
    items = tuple(
        replace(gpu, xids=tuple(replace(xid, mono_ns=mono_ns - 3_000_000_000) for xid in gpu.xids))
        for gpu in gpus.items
    )
    return replace(gpus, origin=replace(gpus.origin, mono_ns=mono_ns), items=items)


@contextmanager
def collecting(
    answers: dict[str, Any], library: Path, monkeypatch: pytest.MonkeyPatch, probe: Nvml | None = None
) -> Iterator[Collector]:
    """Asks a child whose loader finds our library first."""
    values = library / "values"
    values.write_text(written(answers), encoding="utf-8")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    monkeypatch.setenv("NVML_RECORDED", str(values))
    quick = Nvml(cadence_ns=0, deadline_ns=20_000_000_000) if probe is None else probe
    with closing(Collector(Target("process", "pid 58", 58), [quick])) as collector:
        yield collector


def rounds_until(collector: Collector, wanted: Callable[[Snapshot], bool]) -> Snapshot:
    """Rounds, until one is as wanted; fails after a long while."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        snapshot = collector.round(patience_ns=20_000_000_000)
        if wanted(snapshot):
            return snapshot
    raise AssertionError(f"never came: {snapshot.probes}")
