"""Makes folders that look like /proc: processes with their files, sockets and mapped libraries."""

import os
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Tree:
    """``root``: to be given as ``proc``. The machine is 1,000 s up; sessions are those of the first process."""

    root: Path

    def __post_init__(self) -> None:
        (self.root / "self/ns").mkdir(parents=True)
        (self.root / "self/ns/net").symlink_to("net:[1]")
        (self.root / "self/ns/pid").symlink_to("pid:[4026531836]")
        (self.root / "uptime").write_text("1000.00 1900.00\n")
        (self.root / "meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 900 kB\n")

    def process(
        self,
        pid: int,
        comm: str,
        *argv: str,
        parent: int = 1,
        session: int = 50,
        state: str = "S",
        started_s: float = 100.0,
        cpu_s: float = 1.0,
        net: int = 1,
        uid: int | None = None,
    ) -> Path:
        """Its folder. What a kernel would write again (a state) is written again by calling this again."""
        folder = self.root / str(pid)
        (folder / "ns").mkdir(parents=True, exist_ok=True)
        (folder / "fd").mkdir(exist_ok=True)
        (folder / "fdinfo").mkdir(exist_ok=True)
        (folder / "net").mkdir(exist_ok=True)
        if not (folder / "ns/net").is_symlink():
            (folder / "ns/net").symlink_to(f"net:[{net}]")
        ticks = (round(cpu_s * TICKS), round(started_s * TICKS))
        fields = f"{parent} {session} {session} 0 -1 0 0 0 0 0 {ticks[0]} 0 0 0 20 0 4 0 {ticks[1]} 0 0"
        (folder / "stat").write_text(f"{pid} ({comm[:15]}) {state} {fields}\n")
        owner = os.geteuid() if uid is None else uid
        (folder / "status").write_text(
            f"Name:\t{comm[:15]}\nUid:\t{owner}\t{owner}\t{owner}\t{owner}\nVmRSS:\t2048 kB\n"
        )
        (folder / "cmdline").write_bytes(b"\0".join(word.encode() for word in argv) + b"\0" if argv else b"")
        (folder / "cgroup").write_text("0::/\n")
        return folder

    def listen(self, pid: int, port: int, *, hidden: bool = False, host: str = "0100007F", uid: int = 0) -> None:
        """A listening socket among its open files; ``hidden``: those may not be seen."""
        folder = self.root / str(pid)
        table = folder / "net/tcp"
        before = table.read_text() if table.exists() else "  sl  local_address rem_address   st\n"
        zeros = "00000000:00000000 00:00000000 00000000"
        table.write_text(f"{before}   0: {host}:{port:04X} 00000000:0000 0A {zeros} {uid:5} 0 {port} 1\n")
        if not hidden:
            (folder / f"fd/{port}").symlink_to(f"socket:[{port}]")

    def vllm(self, *, front: int = 60, port: int | None = 8000, ranks: int = 1) -> None:
        """``vllm serve``: the front end, its resource tracker, the engine core and a worker for each rank."""
        self.process(front, "vllm", "/v/bin/python", "/v/bin/vllm", "serve", "org/tiny", "--port", str(port or 8000))
        tracker = "from multiprocessing.resource_tracker import main;main(32)"
        self.process(front + 1, "python", "/v/bin/python", "-B", "-c", tracker, parent=front)
        self.process(front + 2, "VLLM::EngineCore", "VLLM::EngineCore" + " " * 40, parent=front, started_s=110)
        for rank in range(ranks):
            title = f"VLLM::Worker_TP{rank}" if ranks > 1 else "VLLM::Worker"
            self.process(front + 3 + rank, title, title, parent=front + 2, started_s=120)
            for other in range(14):
                self.listen(front + 3 + rank, 40000 + other)
        if port is not None:
            self.listen(front, port)

    def gone(self, pid: int) -> None:
        """It ends; pid 1, in a session of its own, takes over its children."""
        for path in sorted((self.root / str(pid)).rglob("*"), reverse=True):
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            else:
                path.unlink()
        (self.root / str(pid)).rmdir()
        for stat in self.root.glob("[0-9]*/stat"):
            head, _, rest = stat.read_text().rpartition(") ")
            words = rest.split()
            if words[1] == str(pid):
                words[1] = "1"
                stat.write_text(f"{head}) {' '.join(words)}\n")
