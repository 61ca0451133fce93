"""Checks over made-up /proc and /sys trees, and those that try: on a real child."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from inferdbg.probes import doctor
from inferdbg.probes.containers import container
from inferdbg.probes.doctor import Check, Place, gpu, keeping, looking, machine
from inferdbg.probes.doctor.check import said_by

MIB = 1 << 20
NO_RIGHTS = "CapEff:\t0000000000000000\n"


def place(root: Path, **files: str) -> Place:
    """``proc__sys__x`` is proc/sys/x."""
    for name, content in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return Place(root=str(root))


def said(check: Check) -> tuple[str, str]:
    assert check.why
    assert check.cure or check.result not in ("fail", "warn"), check
    return check.result, check.found


# tried for real


def test_the_memory_of_a_child_is_really_read_and_its_stacks_are_dumped() -> None:
    assert looking.ptrace(Place()) == Check(
        "ptrace",
        "ok",
        "read a child's memory (process_vm_readv)",
        "objects and stacks of a hung server are read from its memory",
    )
    assert said(looking.py_spy(Place())) == ("ok", "dumped a child's stacks")


def test_of_a_target_its_own_memory_is_tried() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        assert said(looking.target_memory(Place(pids=(process.pid,)))) == ("ok", "of 1 process may be read")
        process.kill()
    gone = looking.target_memory(Place(pids=(process.pid,)))
    assert (gone.result, gone.found.split(":")[0]) == ("fail", f"process {process.pid} cannot be read")
    assert looking.target_memory(Place()).result == "unknown"


def test_every_check_answers_on_this_machine_under_its_own_id() -> None:
    found = doctor.examine(Place(uid=os.geteuid()))
    ids = [check.id for check in found]
    assert len(set(ids)) == len(ids) == len(doctor.CHECKS)
    assert [check.id.replace("-", "_") for check in found] == [check.__name__ for check in doctor.CHECKS]
    for check in found:
        said(check)
        assert len(check.why) < 110


def test_a_program_that_does_not_answer_is_left_behind() -> None:
    assert said_by(["sleep", "60"], seconds=0.2) is None
    assert said_by([sys.executable, "-c", "print('x')"]) == "x\n"
    assert said_by(["false"]) is None
    assert said_by(["/no/such/program"]) is None


# who may look


@pytest.mark.parametrize(
    ("scope", "capabilities", "result"),
    [
        (None, NO_RIGHTS, "ok"),
        ("0\n", NO_RIGHTS, "ok"),
        ("1\n", NO_RIGHTS, "fail"),
        ("1\n", "CapEff:\t0000000000080000\n", "ok"),
        ("2\n", NO_RIGHTS, "fail"),
        ("3\n", "CapEff:\t000001ffffffffff\n", "fail"),
    ],
)
def test_yama_forbids_what_we_have_no_right_to(
    tmp_path: Path, scope: str | None, capabilities: str, result: str
) -> None:
    files = {"proc__self__status": capabilities}
    if scope is not None:
        files["proc__sys__kernel__yama__ptrace_scope"] = scope
    assert said(looking.yama(place(tmp_path, **files)))[0] == result


@pytest.mark.parametrize(
    ("level", "capabilities", "result"),
    [
        ("2\n", NO_RIGHTS, "ok"),
        ("4\n", NO_RIGHTS, "warn"),
        ("4\n", "CapEff:\t0000004000000000\n", "ok"),
        (None, "", "unknown"),
    ],
)
def test_perf_is_for_those_with_rights_or_where_all_may(
    tmp_path: Path, level: str | None, capabilities: str, result: str
) -> None:
    files = {"proc__self__status": capabilities}
    if level is not None:
        files["proc__sys__kernel__perf_event_paranoid"] = level
    assert said(looking.perf(place(tmp_path, **files)))[0] == result


def test_a_kernel_log_that_is_not_there_fails_with_its_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no journalctl either
    assert said(looking.kernel_log(place(tmp_path)))[0] == "fail"
    assert said(looking.kernel_log(place(tmp_path, dev__kmsg=""))) == ("ok", f"{tmp_path}/dev/kmsg can be read")


# cores


def limits(soft: str) -> str:
    return f"Limit                     Soft Limit   Hard Limit\nMax core file size        {soft}   unlimited  bytes\n"


def test_no_core_of_a_target_is_a_failure_and_of_a_shell_a_warning(tmp_path: Path) -> None:
    shell = place(
        tmp_path, proc__self__limits=limits("0"), proc__58__limits=limits("unlimited"), proc__60__limits=limits("0")
    )
    assert said(looking.core_limit(shell)) == ("warn", "0 of what is started here: no core will be written")
    target = looking.core_limit(replace(shell, pids=(58, 60)))
    assert said(target) == ("fail", "0 of process 60: no core will be written")
    assert target.cure == "sudo prlimit --pid 60 --core=unlimited"
    assert said(looking.core_limit(replace(shell, pids=(58,)))) == ("ok", "unlimited of process 58")
    assert said(looking.core_limit(replace(shell, pids=(61,))))[0] == "unknown"


def test_who_takes_a_core_is_told(tmp_path: Path) -> None:
    systemd = "|/usr/lib/systemd/systemd-coredump %P %u %g %s %t %c %h\n"
    here = place(tmp_path, proc__sys__kernel__core_pattern=systemd)
    assert said(looking.core_pattern(here))[0] == "fail"  # its handler is not there
    place(tmp_path, **{"usr__lib__systemd__systemd-coredump": ""})
    assert said(looking.core_pattern(here)) == ("ok", "|/usr/lib/systemd/systemd-coredump takes it")
    inside = looking.core_pattern(place(tmp_path, **{".dockerenv": ""}))
    assert inside.result == "warn"
    assert inside.found.endswith("the host's handler takes it, not this container (docker)")


def test_a_folder_for_cores_must_be_there(tmp_path: Path) -> None:
    here = place(tmp_path, proc__sys__kernel__core_pattern="/var/crash/core.%p\n")
    assert said(looking.core_pattern(here))[0] == "fail"
    (tmp_path / "var" / "crash").mkdir(parents=True)
    assert said(looking.core_pattern(here)) == ("ok", "/var/crash/core.%p")
    assert said(looking.core_pattern(place(tmp_path, proc__sys__kernel__core_pattern="core\n")))[0] == "ok"


def test_a_core_without_private_memory_fails(tmp_path: Path) -> None:
    assert said(looking.coredump_filter(place(tmp_path, proc__self__coredump_filter="00000033\n")))[0] == "ok"
    poor = looking.coredump_filter(place(tmp_path, proc__self__coredump_filter="00000000\n"))
    assert (poor.result, poor.cure) == ("fail", "echo 0x11 | sudo tee /proc/self/coredump_filter")


# what keeps evidence

MOUNTS = (
    "22 1 0:20 / / rw - overlay overlay rw\n25 22 0:23 / /dev/shm rw,relatime shared:3 - tmpfs shm rw,size=65536k\n"
    "26 22 8:1 / /boxes rw - ext4 /dev/sda1 rw\n"
)


def test_the_longest_mount_that_holds_a_path_is_its_own() -> None:
    assert keeping.file_system(MOUNTS, "/dev/shm/inferdbg-0") == "tmpfs"
    assert keeping.file_system(MOUNTS, "/boxes") == "ext4"
    assert keeping.file_system(MOUNTS, "/devices") == "overlay"
    assert keeping.file_system("nonsense - \n1 2 3\n", "/x") is None


def test_a_box_in_a_containers_own_memory_ends_with_it(tmp_path: Path) -> None:
    host = place(tmp_path, proc__self__mountinfo=MOUNTS)
    assert said(keeping.box_outlives_container(host))[0] == "ok"
    inside = place(tmp_path, run__systemd__container="podman\n")
    assert said(keeping.box_outlives_container(inside)) == (
        "warn",
        "in podman: a restart takes /dev/shm (tmpfs) along",
    )
    outside = replace(inside, box_folder="/boxes")
    assert said(keeping.box_outlives_container(outside)) == ("ok", "in podman, but /boxes (ext4) comes from outside")


def test_a_login_takes_its_boxes_along_unless_it_lingers_or_nobody_removes(tmp_path: Path) -> None:
    here = replace(place(tmp_path), uid=4711)
    assert said(keeping.box_outlives_login(here)) == ("ok", "no systemd runs here")
    (tmp_path / "run" / "systemd" / "system").mkdir(parents=True)
    login = keeping.box_outlives_login(here)
    assert (login.result, login.cure) == ("warn", "sudo loginctl enable-linger 4711")
    assert said(keeping.box_outlives_login(replace(here, uid=0)))[0] == "ok"
    assert said(keeping.box_outlives_login(replace(here, box_folder="/boxes")))[0] == "ok"
    place(tmp_path, **{"etc__systemd__logind.conf": "[Login]\n#RemoveIPC=yes\n"})
    assert keeping.box_outlives_login(here).result == "warn"
    place(tmp_path, **{"usr__lib__systemd__logind.conf.d__50-x.conf": "[Login]\nRemoveIPC=no\n"})
    assert said(keeping.box_outlives_login(here)) == ("ok", "RemoveIPC=no")
    place(tmp_path, **{"etc__systemd__logind.conf.d__90-x.conf": "[Login]\nRemoveIPC=yes\n"})
    assert keeping.box_outlives_login(here).result == "warn"
    place(tmp_path, var__lib__systemd__linger__4711="")
    assert said(keeping.box_outlives_login(here)) == ("ok", "4711 lingers")


def test_room_for_boxes_and_cores_is_counted(tmp_path: Path) -> None:
    assert said(keeping.box_space(replace(place(tmp_path), box_folder="/none")))[0] == "fail"
    assert keeping.box_space(Place()).found.startswith("/dev/shm: ")
    large = place(tmp_path, proc__58__status="VmRSS:\t999999999999 kB\n")
    (tmp_path / "proc" / "58" / "cwd").symlink_to(tmp_path)
    assert said(keeping.disk(replace(large, pids=(58,))))[0] == "fail"
    place(tmp_path, proc__58__status="VmRSS:\t4 kB\n")
    assert said(keeping.disk(replace(large, pids=(58,))))[0] == "ok"


# GPUs

VERSION = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.158.01  Release Build  (dvs-builder@host)\n"
LIBRARY = "usr__lib__x86_64-linux-gnu__libnvidia-ml.so."


def test_the_drivers_module_and_its_libraries_must_be_of_one_version(tmp_path: Path) -> None:
    assert said(gpu.driver(place(tmp_path)))[0] == "unknown"
    here = place(tmp_path, proc__driver__nvidia__version=VERSION)
    assert said(gpu.driver(here)) == ("fail", "module 570.158.01, and no libnvidia-ml to speak to it")
    place(tmp_path, **{f"{LIBRARY}580.65.06": ""})
    assert said(gpu.driver(here)) == ("fail", "module 570.158.01, libraries 580.65.06")
    place(tmp_path, **{f"{LIBRARY}570.158.01": ""})
    assert said(gpu.driver(here)) == ("ok", "module and libraries 570.158.01")
    os.unlink(tmp_path / "proc" / "driver" / "nvidia" / "version")
    assert said(gpu.driver(here)) == ("fail", "the driver's module is not loaded")


@pytest.mark.parametrize(
    ("version", "runtimes", "cuda"),
    [
        ("2.11.0+cu128", (None, None), "12.8"),
        ("2.11.0+cu130", (None, None), "13.0"),
        ("2.11.0", ("12.8.90", None), "12.8"),
        ("2.11.0", (None, "13.0.48"), "13.0"),
        ("2.11.0+cpu", ("12.8.90", None), None),
        ("2.11.0", (None, None), None),
    ],
)
def test_the_cuda_of_a_torch_is_known_without_importing_it(
    version: str, runtimes: tuple[str | None, str | None], cuda: str | None
) -> None:
    assert gpu.cuda_of_torch(version, *runtimes) == cuda


@pytest.mark.parametrize(
    ("version", "result"), [("2.11.0+cu128", "ok"), ("2.11.0+cu130", "fail"), ("2.11.0+cpu", "fail")]
)
def test_a_driver_too_old_for_torchs_cuda_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, result: str
) -> None:
    monkeypatch.setattr(gpu, "_version", lambda package: version if package == "torch" else None)
    assert said(gpu.torch_cuda(place(tmp_path, proc__driver__nvidia__version=VERSION)))[0] == result
    assert gpu.torch_cuda(Place(root=str(tmp_path / "none"))).result == "unknown"


@pytest.mark.parametrize(("installed", "result"), [("3.5.0", "ok"), ("3.4.0", "warn"), (None, "warn")])
def test_another_triton_than_torchs_own_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, installed: str | None, result: str
) -> None:
    monkeypatch.setattr(gpu, "_version", {"torch": "2.11.0", "triton": installed}.get)
    needs = ["triton==3.5.0; platform_system == 'Linux'", "triton-viz"]
    monkeypatch.setattr("importlib.metadata.requires", lambda _: needs)
    assert said(gpu.triton(Place()))[0] == result


@pytest.mark.parametrize(
    ("script", "result", "found"),
    [
        ("echo '0, Enabled'; echo '1, Disabled'", "warn", "off on GPU 1"),
        ("echo '0, Enabled'", "ok", "on, of 1 GPU"),
        ("echo 'No devices were found'", "unknown", "nvidia-smi says: No devices were found"),
        ("exit 9", "fail", "nvidia-smi fails or does not answer within 5 s"),
    ],
)
def test_persistence_is_what_nvidia_smi_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, result: str, found: str
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert said(gpu.persistence(Place())) == (result, found)


# the machine


@pytest.mark.parametrize(
    ("answer", "result"), [((5, 0x40), "warn"), ((0, 0x40), "warn"), ((0, 0x2001), "ok"), ((None, 0), "unknown")]
)
def test_a_clock_that_nobody_keeps_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, answer: tuple[int | None, int], result: str
) -> None:
    monkeypatch.setattr(machine, "_adjtimex", lambda: answer)
    assert said(machine.clock(Place()))[0] == result


def test_numa_balancing_matters_with_several_nodes(tmp_path: Path) -> None:
    here = place(tmp_path, proc__sys__kernel__numa_balancing="1\n")
    (tmp_path / "sys/devices/system/node/node0").mkdir(parents=True)
    assert machine.numa_balancing(here).result == "ok"
    (tmp_path / "sys/devices/system/node/node1").mkdir(parents=True)
    assert said(machine.numa_balancing(here)) == ("warn", "on, of 2 nodes")
    place(tmp_path, proc__sys__kernel__numa_balancing="0\n")
    assert machine.numa_balancing(here).result == "ok"


def test_huge_pages_that_compact_at_every_fault_are_a_warning(tmp_path: Path) -> None:
    folder = "sys__kernel__mm__transparent_hugepage"
    always = "[always] defer defer+madvise madvise never\n"
    here = place(tmp_path, **{f"{folder}__enabled": "[always] madvise never\n", f"{folder}__defrag": always})
    assert said(machine.huge_pages(here)) == ("warn", "enabled always, defrag always")
    place(tmp_path, **{f"{folder}__defrag": "always defer [defer+madvise] madvise never\n"})
    assert said(machine.huge_pages(here)) == ("ok", "enabled always, defrag defer+madvise")
    assert machine.huge_pages(place(tmp_path / "none")).result == "unknown"


def test_open_files_near_their_limit_fail(tmp_path: Path) -> None:
    said_limit = "Max open files            {}                 524288               files\n"
    here = replace(place(tmp_path, proc__58__limits=said_limit.format(10)), pids=(58,))
    for number in range(10):
        place(tmp_path, **{f"proc__58__fd__{number}": ""})
    assert said(machine.open_files(here)) == ("fail", "process 58 has 10 of 10")
    place(tmp_path, proc__58__limits=said_limit.format(1024))
    assert said(machine.open_files(here)) == ("warn", "1,024 of process 58")
    place(tmp_path, proc__58__limits=said_limit.format(65536))
    assert machine.open_files(here).result == "ok"


def test_a_memory_limit_that_is_nearly_reached_is_a_warning(tmp_path: Path) -> None:
    files = {"proc__self__cgroup": "0::/pod\n", "sys__fs__cgroup__pod__memory.max": f"{900 * MIB}\n"}
    here = place(tmp_path, **files, **{"sys__fs__cgroup__pod__memory.current": f"{855 * MIB}\n"})
    assert said(machine.memory_limit(here)) == ("warn", "855 MiB of 900 MiB used (95 %)")
    place(tmp_path, **{"sys__fs__cgroup__pod__memory.current": f"{100 * MIB}\n"})
    assert machine.memory_limit(here).result == "ok"
    assert said(machine.memory_limit(place(tmp_path / "none"))) == ("ok", "no limit by a control group")


def test_a_target_that_is_swapped_out_is_a_warning(tmp_path: Path) -> None:
    here = place(
        tmp_path, proc__meminfo="SwapTotal: 1048576 kB\nSwapFree: 524288 kB\n", proc__58__status="VmSwap:\t2048 kB\n"
    )
    assert said(machine.swap(replace(here, pids=(58,)))) == ("warn", "2 MiB of the target are swapped out")
    assert said(machine.swap(here)) == ("ok", "512 MiB of 1 GiB used")


def test_memory_that_reads_as_something_else_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking.Process, "read", lambda self, address, size: bytes(size))
    assert said(looking.ptrace(Place()))[0] == "fail"


@pytest.mark.parametrize(
    ("mark", "kind"),
    [
        (".dockerenv", "docker"),
        ("run/.containerenv", "podman"),
        ("var/run/secrets/kubernetes.io", "kubernetes"),
        ("proc/1/cgroup", "kubepods"),
        ("etc/hostname", None),
    ],
)
def test_a_container_is_known_by_its_marks(tmp_path: Path, mark: str, kind: str | None) -> None:
    (tmp_path / mark).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / mark).write_text("12:memory:/kubepods/burstable/pod7\n")
    assert container(str(tmp_path)) == kind
