"""Servers are found by what their processes give away, and what cannot be seen is said."""

import os
from pathlib import Path

import pytest

from inferdbg.probes.roles import part_of_arguments, part_of_title
from inferdbg.probes.servers import Ask, FoundServers, container_of, discover_servers, server_of

from .trees import Tree

NOW = 1_000_000_000_000


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = Tree(tmp_path / "proc")
    made.process(1, "systemd", "/sbin/init", session=1, started_s=0)
    made.process(40, "bash", "bash", session=50)
    return made


def nobody(url: str) -> bool:
    raise AssertionError(f"{url} was asked")


def find(tree: Tree, ask: Ask = nobody, skip: tuple[int, ...] = ()) -> FoundServers:
    return discover_servers(now_mono_ns=NOW, proc=str(tree.root), ask=ask, skip=skip)


def test_nothing_is_found_among_other_programs(tree: Tree) -> None:
    tree.process(70, "python3", "python3", "train.py")
    tree.listen(70, 8000)
    assert find(tree).servers == ()


def test_a_vllm_is_one_server_with_its_roles_ranks_port_and_model(tree: Tree) -> None:
    tree.vllm(ranks=2)
    (server,) = find(tree).servers
    assert (server.engine, server.url, server.model, server.pid) == ("vllm", "http://127.0.0.1:8000", "org/tiny", 60)
    assert [(one.pid, one.role, one.rank) for one in server.members] == [
        (60, "front end", None),
        (61, "resource tracker", None),
        (62, "engine core", None),
        (63, "worker", "TP0"),
        (64, "worker", "TP1"),
    ]
    assert server.core_pids == (62,)
    assert server.age_ns == 900_000_000_000
    assert (server.orphaned, server.starting, server.container) == (False, False, None)


def test_data_parallel_ranks_are_engines_of_their_own_behind_their_server(tree: Tree) -> None:
    tree.vllm()
    tree.process(62, "VLLM::EngineCore_DP0", "VLLM::EngineCore_DP0", parent=60, started_s=110)
    tree.process(63, "VLLM::Worker", "VLLM::Worker", parent=62, started_s=120)
    tree.process(72, "VLLM::EngineCore_DP1", "VLLM::EngineCore_DP1", parent=60, started_s=110)
    tree.process(73, "VLLM::Worker", "VLLM::Worker", parent=72, started_s=120)
    both, first, second = find(tree).servers
    assert (both.pid, both.ranks, both.rank, both.is_group, both.core_pids) == (60, 2, None, True, (62, 72))
    assert [(one.rank, one.ranks, one.is_group, one.front_pid, one.url) for one in (first, second)] == [
        ("DP0", 2, False, 60, "http://127.0.0.1:8000"),
        ("DP1", 2, False, 60, "http://127.0.0.1:8000"),
    ]
    assert [[member.pid for member in one.members] for one in (first, second)] == [[62, 63], [72, 73]]


def test_the_tensor_ranks_of_a_data_parallel_rank_belong_together(tree: Tree) -> None:
    tree.process(60, "python", "python", "-m", "sglang.launch_server", "--dp", "2", "--tp", "2")
    tree.listen(60, 30000)
    for number, rank in enumerate(("DP0_TP0", "DP0_TP1", "DP1_TP2", "DP1_TP3")):
        tree.process(62 + number, "sglang::schedul", f"sglang::scheduler_{rank}", parent=60)
    _, first, second = find(tree).servers
    assert [(one.rank, one.core_pids) for one in (first, second)] == [("DP0", (62, 63)), ("DP1", (64, 65))]


def test_two_servers_of_one_shell_are_two(tree: Tree) -> None:
    tree.vllm(front=60, port=8000)
    tree.vllm(front=80, port=8001)
    assert [server.pid for server in find(tree).servers] == [60, 80]


def test_a_vllm_that_does_not_listen_yet_is_starting(tree: Tree) -> None:
    tree.vllm(port=None)
    (server,) = find(tree).servers
    assert (server.url, server.starting, server.port) == (None, True, 8000)


def test_whose_open_files_are_hidden_is_found_by_its_port_and_owner(tree: Tree) -> None:
    tree.vllm(port=None)
    tree.listen(60, 8000, hidden=True, uid=os.geteuid())
    for name in ("60", "62", "63"):
        for link in (tree.root / name / "fd").iterdir():
            link.unlink()
        (tree.root / name / "fd").rmdir()
    (server,) = find(tree).servers
    assert (server.url, server.starting) == ("http://127.0.0.1:8000", False)


def test_of_several_ports_the_one_named_in_the_arguments_is_taken_and_nobody_is_asked(tree: Tree) -> None:
    tree.vllm(port=9000)
    tree.listen(60, 5555)
    (server,) = find(tree).servers
    assert server.url == "http://127.0.0.1:9000"


def test_of_several_ports_that_nothing_tells_apart_the_one_that_answers_is_taken(tree: Tree) -> None:
    tree.process(60, "vllm", "python", "vllm", "serve", "m", "--port", "0")
    tree.listen(60, 5555)
    tree.listen(60, 5556)
    (server,) = find(tree, ask=lambda url: url.endswith("5556")).servers
    assert server.url == "http://127.0.0.1:5556"


def test_engine_cores_whose_front_end_is_gone_are_orphans_with_what_they_hold(tree: Tree) -> None:
    tree.vllm()
    tree.gone(60)
    (tree.root / "62/smaps_rollup").write_text("0-1 ---p [rollup]\nRss: 900 kB\nPss:  700 kB\n")
    (server,) = find(tree).servers
    assert server.orphaned
    assert server.front_pid is None
    assert [(one.pid, one.role) for one in server.members] == [(62, "engine core"), (63, "worker")]
    assert server.memory_bytes == (700 + 2048) * 1024


def test_whoever_takes_over_orphans_is_known_by_its_session_whatever_its_name(tree: Tree) -> None:
    tree.process(1, "my-init-of-own", "my-init-of-own", session=1, started_s=0)
    tree.vllm()
    tree.gone(60)
    (server,) = find(tree).servers
    assert server.orphaned


def test_the_program_that_started_an_engine_core_is_its_front_end_and_serves_nobody(tree: Tree) -> None:
    tree.process(60, "python3", "python3", "offline.py", parent=40)
    tree.process(62, "VLLM::EngineCore", "VLLM::EngineCore", parent=60)
    (server,) = find(tree).servers
    assert (server.pid, server.orphaned, server.url, server.starting) == (60, False, None, False)
    assert [one.role for one in server.members] == ["front end", "engine core"]


def test_a_front_end_that_is_the_first_process_of_its_container_is_no_orphan(tree: Tree) -> None:
    tree.process(59, "containerd-shim", "containerd-shim", parent=1, session=59)
    tree.vllm(front=60)
    for stat in (tree.root / "60/stat",):
        stat.write_text(stat.read_text().replace(") S 1 ", ") S 59 "))
    (tree.root / "60/cgroup").write_text(f"0::/system.slice/docker-{'ab' * 32}.scope\n")
    (server,) = find(tree).servers
    assert (server.orphaned, server.container) == (False, "abababababab")


def test_a_server_in_a_network_of_its_own_is_named_by_an_address_that_leads_there(tree: Tree) -> None:
    tree.process(60, "vllm", "python", "vllm", "serve", "m", net=7)
    tree.listen(60, 8000, host="00000000")
    assert any("a network of its own" in line for line in find(tree).unseen)
    (tree.root / "60/net/fib_trie").write_text("  |-- 172.17.0.2\n     /32 host LOCAL\n")
    (server,) = find(tree).servers
    assert server.url == "http://172.17.0.2:8000"


def test_a_llamacpp_inside_a_python_program_is_known_by_its_library(tree: Tree) -> None:
    folder = tree.process(60, "python", "python", "my_host.py", "--model", "/m/tiny.gguf", "--port", "8080")
    (folder / "maps").write_text("7f00-7f01 r-xp 0 fe:00 9 /v/site-packages/xllamacpp/xllamacpp.abi3.so\n")
    tree.listen(60, 8080)
    (server,) = find(tree).servers
    assert (server.engine, server.url, server.model) == ("llama.cpp", "http://127.0.0.1:8080", "/m/tiny.gguf")


def test_engines_that_are_known_otherwise_are_left_out(tree: Tree) -> None:
    tree.vllm()
    assert find(tree, skip=(62,)).servers == ()


def test_who_does_not_let_its_arguments_be_read_is_said_and_the_others_are_found(tree: Tree) -> None:
    tree.vllm()
    folder = tree.process(30, "python3")
    (folder / "cmdline").unlink()
    os.mkfifo(folder / "cmdline")
    found = find(tree)
    assert [server.pid for server in found.servers] == [60]
    assert any(line.startswith("process 30 (python3) does not let its arguments be read") for line in found.unseen)


def test_from_inside_a_container_what_is_outside_is_said_to_be_unseen(tree: Tree) -> None:
    (tree.root / "self/ns/pid").unlink()
    (tree.root / "self/ns/pid").symlink_to("pid:[4026532198]")
    assert any("this is a container" in line and "--pid=host" in line for line in find(tree).unseen)


def test_any_process_that_is_named_and_answers_is_a_server(tree: Tree) -> None:
    tree.process(60, "my-gateway", "my-gateway")
    tree.listen(60, 7000)
    server = server_of(60, now_mono_ns=NOW, proc=str(tree.root), ask=lambda url: url == "http://127.0.0.1:7000")
    assert server is not None
    assert (server.engine, server.url) == ("server", "http://127.0.0.1:7000")
    assert server_of(60, now_mono_ns=NOW, proc=str(tree.root)) is None
    assert server_of(61, now_mono_ns=NOW, proc=str(tree.root)) is None


@pytest.mark.parametrize(
    ("title", "role", "rank"),
    [
        ("VLLM::EngineCor", "engine core", None),
        ("VLLM::EngineCore_DP3", "engine core", "DP3"),
        ("VLLM::Worker_DP0_PP1_TP2_EP2", "worker", "DP0 PP1 TP2 EP2"),
        ("VLLM::APIServer", "front end", None),
        ("VLLM::DPCoordin", "coordinator", None),
        ("sglang::schedul", "engine core", None),
        ("sglang::scheduler_TP1", "engine core", "TP1"),
        ("sglang::detoken", "detokenizer", None),
    ],
)
def test_titles_tell_role_and_rank(title: str, role: str, rank: str | None) -> None:
    part = part_of_title(title)
    assert part is not None
    assert (part.role, part.rank) == (role, rank)


@pytest.mark.parametrize(
    ("line", "engine"),
    [
        ("/v/bin/python /v/bin/vllm serve m", "vllm"),
        ("python3 -m vllm.entrypoints.openai.api_server --model m", "vllm"),
        ("python -m sglang.launch_server --model-path m", "sglang"),
        ("/opt/llama-server -m m.gguf", "llama.cpp"),
        ("ollama serve", "ollama"),
        ("text-generation-launcher --model-id m", "tgi"),
        ("/v/bin/python /v/bin/vllm bench serve", None),
        ("python3 serve.py vllm", None),
        ("python3 -c import vllm", None),
    ],
)
def test_arguments_tell_the_engine(line: str, engine: str | None) -> None:
    part = part_of_arguments(line.split())
    assert (part.engine if part is not None else None) == engine


@pytest.mark.parametrize(
    ("line", "container"),
    [
        (f"0::/system.slice/docker-{'0a' * 32}.scope", "0a0a0a0a0a0a"),
        (f"1:name=systemd:/kubepods/besteffort/podx/{'1b' * 32}", "1b1b1b1b1b1b"),
        (f"0::/kubepods.slice/cri-containerd-{'2c' * 32}.scope", "2c2c2c2c2c2c"),
        (f"0::/machine.slice/libpod-{'3d' * 32}.scope/container", "3d3d3d3d3d3d"),
        ("0::/lxc.payload.web/init.scope", "web"),
        ("0::/user.slice/user-1000.slice", None),
        ("4:memory:/process_api/0decede6b50125dac4f11a6d9f046b14", None),
    ],
)
def test_a_container_is_known_by_its_control_group(line: str, container: str | None) -> None:
    assert container_of(line.encode()) == container
