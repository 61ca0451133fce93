"""How much memory this machine can still give, asked before anything large is allocated."""

from pathlib import Path


def available_memory(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes the kernel could give without swapping (MemAvailable), lowered to what a cgroup leaves; None: unknown."""
    try:
        lines = meminfo.read_text("ascii", "replace").splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(":")
        if name == "MemAvailable" and value.split()[:1] and value.split()[0].isdigit():
            machine = int(value.split()[0]) * 1024
            left = _left_in_cgroup(Path("/sys/fs/cgroup"))
            return machine if left is None else min(machine, left)
    return None


def gibibytes(size: int) -> str:
    """``0.25 GiB``: two digits behind the point, enough to compare what is needed with what is there."""
    return f"{size / 2**30:.2f} GiB"


def _left_in_cgroup(folder: Path) -> int | None:
    """Bytes up to memory.max of this container (cgroup v2), page cache counted as free; None: no limit, or unknown."""
    try:
        limit, used = (folder / "memory.max").read_text().strip(), (folder / "memory.current").read_text().strip()
        reclaimable = sum(
            int(line.split()[1])
            for line in (folder / "memory.stat").read_text().splitlines()
            if line.startswith(("inactive_file ", "active_file "))
        )
    except OSError:
        return None
    return max(0, int(limit) - int(used) + reclaimable) if limit.isdigit() and used.isdigit() else None
