"""A foreign server is followed: its start by phases, what is left when its front end is gone, who takes its port."""

from pathlib import Path

import pytest

from inferdbg.collect.probe import SECOND
from inferdbg.facts.sections.processes import Processes
from inferdbg.facts.sections.server import Server
from inferdbg.facts.sections.startup import Startup
from inferdbg.probes.server_files import ServerFiles

from .trees import TICKS, Tree

NOW = 1_000 * SECOND
URL = "http://127.0.0.1:8000"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = Tree(tmp_path / "proc")
    made.process(1, "systemd", "/sbin/init", session=1, started_s=0)
    return made


def probe(tree: Tree, pid: int = 60, *, orphaned: bool = False) -> ServerFiles:
    return ServerFiles(pid, "vllm", URL, orphaned, str(tree.root))


def read(found: ServerFiles, after_s: int = 0) -> tuple[Server, Processes]:
    sections = found.read(NOW + after_s * SECOND).sections
    server, processes = sections["server"], sections["processes"]
    assert isinstance(server, Server)
    assert isinstance(processes, Processes)
    return server, processes


def startup(found: ServerFiles, after_s: int = 0) -> Startup:
    state = read(found, after_s)[1].startup
    assert state is not None
    return state


def test_a_server_that_listens_has_roles_and_no_start(tree: Tree) -> None:
    tree.vllm(ranks=2)
    server, processes = read(probe(tree))
    assert (server.engine, server.pid, server.state, server.url) == ("vllm", 60, "alive", URL)
    assert server.model is not None
    assert server.model.name == "org/tiny"
    assert server.started_mono_ns == 100 * SECOND
    assert [(one.pid, one.role, one.rank) for one in processes.items][2:] == [
        (62, "engine core", None),
        (63, "worker", "TP0"),
        (64, "worker", "TP1"),
    ]
    assert (processes.startup, processes.orphans) == (None, ())


def test_when_the_front_end_is_gone_the_rest_is_shown_and_called_orphans(tree: Tree) -> None:
    tree.vllm()
    found = probe(tree)
    read(found)
    tree.gone(60)
    tree.gone(61)
    found.read(NOW + SECOND)
    server, processes = read(found, 20)
    assert server.state == "dead"
    assert [one.pid for one in processes.items] == [62, 63]
    assert [(one.pid, one.role) for one in processes.orphans] == [(62, "engine core"), (63, "worker")]


def test_orphans_can_be_looked_at_by_themselves(tree: Tree) -> None:
    tree.vllm()
    tree.gone(60)
    server, processes = read(probe(tree, 62, orphaned=True))
    assert (server.state, server.pid) == ("orphaned", 62)
    assert [(one.pid, one.role) for one in processes.items] == [(62, "engine core"), (63, "worker")]


def test_another_server_on_the_same_port_is_looked_at_from_then_on(tree: Tree) -> None:
    tree.vllm()
    found = probe(tree)
    read(found)
    for pid in (60, 61, 62, 63):
        tree.gone(pid)
    assert found.read(NOW + SECOND).message == "process 60 has ended"
    tree.vllm(front=80)
    reading = found.read(NOW + 2 * SECOND)
    assert reading.message == "process 60 has ended; 80 has its port now"
    server, processes = read(found, 3)
    assert (server.pid, server.state, len(processes.items)) == (80, "alive", 4)


def test_a_successor_is_looked_at_while_it_starts(tree: Tree) -> None:
    tree.vllm()
    found = probe(tree)
    life = found.read(NOW).life
    for pid in (60, 61, 62, 63):
        tree.gone(pid)
    found.read(NOW + SECOND)
    serve = ("/v/bin/python", "/v/bin/vllm", "serve", "org/tiny", "--port", "8000")
    tree.process(70, "vllm", *serve[:-1], "8001", started_s=300)
    tree.process(80, "vllm", *serve, net=2, started_s=300)
    assert found.read(NOW + 2 * SECOND).message == "process 60 has ended", "the same port of another network is another"
    tree.process(90, "vllm", *serve, started_s=300)
    reading = found.read(NOW + 3 * SECOND)
    assert reading.message == "process 60 has ended; 90 has its port now"
    assert (life, reading.life) == (100 * TICKS, 300 * TICKS)
    server, processes = read(found, 4)
    assert (server.pid, server.state) == (90, "alive")
    assert processes.startup is not None
    assert processes.startup.phase == "starting"


def test_a_container_that_is_started_again_is_the_successor_though_its_network_is_new(tree: Tree) -> None:
    container = f"0::/docker/{'c0ffee42' * 8}\n"
    tree.vllm()
    (tree.root / "60/cgroup").write_text(container)
    found = probe(tree)
    read(found)
    for pid in (60, 61, 62, 63):
        tree.gone(pid)
    folder = tree.process(80, "vllm", "/v/bin/python", "/v/bin/vllm", "serve", "org/tiny", net=2)
    (folder / "cgroup").write_text(container)
    assert read(found, 1)[0].pid == 80


def test_another_process_that_gets_the_same_number_is_not_the_server(tree: Tree) -> None:
    tree.vllm()
    found = probe(tree)
    read(found)
    for pid in (60, 61, 62, 63):
        tree.gone(pid)
    tree.process(60, "bash", "bash", started_s=500)
    server = found.read(NOW + 20 * SECOND).sections["server"]
    assert isinstance(server, Server)
    assert server.state == "dead"


def test_a_start_begins_with_programs_and_ends_when_it_listens(tree: Tree) -> None:
    tree.vllm(port=None)
    found = probe(tree)
    first = startup(found)
    assert (first.phase, first.started_ns, first.since_ns) == ("starting", 100 * SECOND, 100 * SECOND)
    tree.listen(60, 8000)
    assert read(found, 1)[1].startup is None
    (tree.root / "60/fd/8000").unlink()
    assert read(found, 2)[1].startup is None  # it served once


def test_weights_that_are_read_tell_how_far_they_are(tree: Tree, tmp_path: Path) -> None:
    tree.vllm(port=None)
    model = tmp_path / "model"
    model.mkdir()
    for number, size in ((1, 100), (2, 200), (3, 300)):
        (model / f"model-0000{number}-of-00003.safetensors").write_bytes(bytes(size))
    (tree.root / "63/fd/9").symlink_to(model / "model-00002-of-00003.safetensors")
    (tree.root / "63/fdinfo/9").write_text("pos:\t50\nflags:\t0100000\n")
    found = startup(probe(tree))
    assert (found.phase, found.pid, found.role) == ("loading weights", 63, "worker")
    assert (found.loaded_bytes, found.weight_bytes) == (150, 600)
    assert (found.file, found.files_done, found.files) == ("model-00002-of-00003.safetensors", 1, 3)


def test_of_weights_that_are_mapped_the_file_is_known_and_of_one_alone_no_position(tree: Tree, tmp_path: Path) -> None:
    tree.vllm(port=None)
    (tmp_path / "model.safetensors").write_bytes(bytes(500))
    (tree.root / "63/maps").write_text(f"7f-80 r--p 0 fe:00 9     {tmp_path}/model.safetensors\n")
    (tree.root / "63/io").write_text("rchar: 5\nread_bytes: 400\n")
    (tree.root / "63/fd/9").symlink_to(tmp_path / "model.safetensors")  # kept open where it was mapped
    (tree.root / "63/fdinfo/9").write_text("pos:\t0\n")
    found = startup(probe(tree))
    assert (found.phase, found.file, found.weight_bytes) == ("loading weights", "model.safetensors", 500)
    assert (found.loaded_bytes, found.read_bytes) == (None, 400)


def test_after_the_weights_comes_warming_up(tree: Tree, tmp_path: Path) -> None:
    tree.vllm(port=None)
    (tmp_path / "model.safetensors").write_bytes(bytes(500))
    (tree.root / "63/maps").write_text(f"7f-80 r--p 0 fe:00 9     {tmp_path}/model.safetensors\n")
    found = probe(tree)
    startup(found)
    (tree.root / "63/maps").write_text("")
    after = startup(found, 1)
    assert (after.phase, after.since_ns, after.file) == ("warming up", NOW + SECOND, None)


def test_a_compiler_among_its_processes_is_compiling(tree: Tree) -> None:
    tree.vllm(port=None)
    tree.process(90, "cc1plus", "cc1plus", parent=63)
    assert startup(probe(tree)).phase == "compiling"


def test_a_download_is_told_by_its_unfinished_file(tree: Tree) -> None:
    tree.vllm(port=None)
    (tree.root / "62/fd/9").symlink_to("/hub/blobs/0a1b.incomplete")
    assert startup(probe(tree)).phase == "downloading"


def test_a_start_that_neither_computes_nor_reads_has_not_moved(tree: Tree) -> None:
    tree.vllm(port=None)
    found = probe(tree)
    startup(found)
    assert startup(found, 5).moved_ns == NOW
    tree.process(62, "VLLM::EngineCore", "VLLM::EngineCore", parent=60, started_s=110, cpu_s=1.5)
    moved = startup(found, 10)
    assert (moved.moved_ns, moved.pid, moved.role) == (NOW + 10 * SECOND, 62, "engine core")


def test_the_log_tells_what_files_cannot(tree: Tree, tmp_path: Path) -> None:
    tree.vllm(port=None)
    log = tmp_path / "server.log"
    log.write_text("Loading weights took 3.1 seconds\nDynamo bytecode transform time: 2 s\n")
    (tree.root / "60/fd/1").symlink_to(log)
    found = probe(tree)
    assert startup(found).phase == "compiling"
    log.write_text("Application startup complete.\nnon-default args: {}\n")  # of an earlier run, then this one
    assert startup(found, 1).phase == "starting"
