"""What is carried away runs without inferdbg, on every CPython that vLLM runs on, and is taken away without a trace."""

import json
import os
import subprocess
import sys
from importlib.metadata import Distribution
from pathlib import Path

import pytest

from inferdbg.blackbox.reader import Box
from inferdbg.cli.output import Output
from inferdbg.cli.verbs.plugin import command
from inferdbg.errors import InferdbgError
from inferdbg.probes import vllm_plugin
from inferdbg.probes.vllm_plugin.carry import package_files

HERE = Path(__file__).parent
PYTHONS = {"3.10", "3.11", "3.12", "3.13"}
CARRIED = """
import sys, os, json
sys.path[:0] = [sys.argv[1], sys.argv[2]]
import fakes
from inferdbg_vllm import entry, truth
from comparing import differences
entry.watch(fakes.Scheduler)
scheduler = fakes.Scheduler(blocks=14)
watcher = scheduler._inferdbg_watcher
wrong = []
for turn in range(200):
    if turn % 6 == 0:
        scheduler.add_request(fakes.Request(f"r-{turn}", 3 + turn % 20, 9, turn % 3))
    scheduler.update_from_output(scheduler.schedule())
    wrong += differences(truth.state_of(scheduler, "", 0), watcher._box.columns, watcher._requests._width)
foreign = [name for name in sys.modules if name.partition(".")[0] == "inferdbg"]
print(json.dumps([watcher.path, wrong, foreign]), flush=True)
sys.stdin.readline()
os._exit(1)
"""


def interpreters() -> list[str]:
    """Those that are here, one a version: this one, and what pyenv and PATH have."""
    found = {f"{sys.version_info[0]}.{sys.version_info[1]}": sys.executable}
    folders = [*Path.home().glob(".pyenv/versions/*/bin"), *map(Path, os.environ.get("PATH", "").split(os.pathsep))]
    for folder in folders:
        for version in PYTHONS - found.keys():
            if (folder / f"python{version}").is_file() and "shims" not in folder.parts:
                found[version] = str(folder / f"python{version}")
    return [found[version] for version in sorted(found)]


@pytest.fixture
def carried(tmp_path: Path) -> Path:
    for path, content in package_files().items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(content)
    return tmp_path


@pytest.mark.parametrize("python", interpreters(), ids=lambda path: "-".join(Path(path).parts[-3:]))
def test_it_keeps_a_box_without_inferdbg_that_outlives_its_process(carried: Path, python: str) -> None:
    child = subprocess.Popen(
        [python, "-I", "-B", "-W", "error", "-c", CARRIED, str(carried), str(HERE)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "INFERDBG_BLACKBOX_DIR": str(carried / "boxes")},
    )
    assert child.stdin is not None
    assert child.stdout is not None
    path, wrong, foreign = json.loads(child.stdout.readline())
    box = Box.open(path)
    assert box.alive()
    assert (wrong, foreign) == ([], [])
    child.communicate("\n")
    assert not box.alive()
    assert box.requests_left() is None
    assert memoryview(box.read(["pulse"]).columns["pulse"]).cast("Q")[1] == 200
    box.close()


def test_every_file_of_the_plug_in_travels_but_the_one_that_packs() -> None:
    here = {path.name for path in Path(vllm_plugin.__path__[0]).glob("*.py")} - {"carry.py"}
    assert here <= {Path(path).name for path in package_files()}


def test_vllm_finds_it_by_its_entry_point(carried: Path) -> None:
    (found,) = list(Distribution.discover(path=[str(carried)]))
    (point,) = found.entry_points
    assert (point.group, point.name, point.value) == (
        "vllm.general_plugins",
        "inferdbg",
        "inferdbg_vllm.entry:register",
    )
    assert {str(file) for file in found.files or ()} == set(package_files())


def run(*args: str) -> tuple[int, str]:
    """Exit code and what went to stdout."""
    import io

    data, people = io.StringIO(), io.StringIO()
    code = command.main(list(args), standalone_mode=False, obj=Output(data, people, colour=False))
    return int(code), data.getvalue()


def test_the_verb_writes_prints_how_to_start_and_takes_away_what_it_wrote(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    code, said = run("vllm", str(folder))
    assert code == 0
    assert said == f"INFERDBG=1 PYTHONPATH='{folder}'${{PYTHONPATH:+:$PYTHONPATH}} vllm serve MODEL\n"
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} == set(package_files())
    assert run("vllm", str(folder))[0] == 0  # again, over its own files
    (folder / "theirs.py").write_text("")
    (folder / "inferdbg_vllm" / "__pycache__").mkdir()
    (folder / "inferdbg_vllm" / "__pycache__" / "entry.pyc").write_bytes(b"")
    assert run("vllm", str(folder), "--remove")[0] == 0
    assert [path.name for path in folder.iterdir()] == ["theirs.py"]
    with pytest.raises(InferdbgError, match="no plug-in of ours"):
        run("vllm", str(folder), "--remove")


def test_other_peoples_files_are_neither_overwritten_nor_removed(tmp_path: Path) -> None:
    (tmp_path / "inferdbg_vllm").mkdir()
    theirs = tmp_path / "inferdbg_vllm" / "entry.py"
    theirs.write_text("mine")
    with pytest.raises(InferdbgError, match=r"entry\.py is not ours"):
        run("vllm", str(tmp_path))
    assert [path.name for path in (tmp_path / "inferdbg_vllm").iterdir()] == ["entry.py"]
    theirs.unlink()
    run("vllm", str(tmp_path))
    theirs.write_text("changed by somebody")
    record = next(tmp_path.glob("*.dist-info/RECORD"))
    record.write_text(record.read_text() + "../outside,,\ninferdbg_vllm/../../outside,,\n")
    run("vllm", str(tmp_path), "--remove")
    assert theirs.read_text() == "changed by somebody"


def test_the_verb_speaks_json(tmp_path: Path) -> None:
    _, said = run("vllm", str(tmp_path), "--json")
    found = json.loads(said)
    assert found["schema"] == "inferdbg.plugin.v1"
    assert found["written"] == sorted(package_files())
    assert found["start"].startswith("INFERDBG=1 PYTHONPATH=")
