"""What happened, out of the kernel's lines: each message that tells of trouble as an event with its fields."""

import re
from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from inferdbg.facts.sections.kernel_log import KernelEvent, Kind

from .lines import Entry
from .xids import UNKNOWN, XIDS

_Made = Callable[["re.Match[str]", Entry], KernelEvent | None]


def events(found: Iterable[Entry]) -> Iterator[KernelEvent]:
    """In their order."""
    reports = Reports()
    for entry in found:
        event = reports.take(entry)
        if event is not None:
            yield event


class Reports:
    """Makes events of lines that come one by one. Those of one OOM report become one event: whose memory ended, who
    asked for more, who was killed."""

    def __init__(self) -> None:
        self._asked_by: str | None = None
        self._group: str | None = None

    def take(self, entry: Entry) -> KernelEvent | None:
        if asked := _ASKED.match(entry.text):
            self._asked_by, self._group = asked["name"], None
        elif chosen := _CHOSEN.match(entry.text):
            fields = dict(pair.partition("=")[::2] for pair in chosen[1].split(","))
            self._group = fields.get("oom_memcg") if "MEMCG" in fields.get("constraint", "") else None
        elif (event := _event(entry)) is not None:
            if event.kind != "oom kill":
                return event
            group = self._group or ("its memory group" if entry.text.startswith("Memory cgroup") else None)
            event = replace(event, asked_by=self._asked_by, group=group)
            self._asked_by = self._group = None
            return event
        return None


def _event(entry: Entry) -> KernelEvent | None:
    for mark, pattern, made in _KNOWN:
        if mark in entry.text and (found := pattern.search(entry.text)):
            return made(found, entry)
    return None


def _told(kind: Kind, what: str, entry: Entry) -> KernelEvent:
    return KernelEvent(kind, entry.text[:_LONGEST], entry.number, entry.mono_ns, entry.wall_ns, what=what)


def _simple(kind: Kind, what: str) -> _Made:
    """``what`` may name groups of the pattern; groups pid, process and device become fields."""

    def made(found: "re.Match[str]", entry: Entry) -> KernelEvent:
        named = {name: value for name, value in found.groupdict().items() if value is not None}
        pid = int(named["pid"]) if "pid" in named else None
        event = _told(kind, what.format_map(named), entry)
        return replace(event, pid=pid, process=named.get("process"), device=named.get("device"))

    return made


def _oom(found: "re.Match[str]", entry: Entry) -> KernelEvent:
    sizes = {name: int(size) * 1024 for name, size in _SIZE.findall(entry.text)}
    rss = [sizes[name] for name in ("anon-rss", "file-rss", "shmem-rss") if name in sizes]
    event = _told("oom kill", "killed for want of memory", entry)
    return replace(event, pid=int(found["pid"]), process=found["process"], rss_bytes=sum(rss) if rss else None)


def _xid(found: "re.Match[str]", entry: Entry) -> KernelEvent:
    known = XIDS.get(int(found["code"]), UNKNOWN)
    pid, name, cause = (pattern.search(entry.text) for pattern in (_PID, _NAME, _CAUSED))
    return replace(
        _told("xid", f"{known.what}{f' (because of Xid {cause[1]})' if cause else ''}", entry),
        device=found["device"],
        code=int(found["code"]),
        pid=int(pid[1]) if pid else None,
        process=name[1] if name else None,
        blame=known.blame,
        advice=known.advice.replace("DEVICE", found["device"]),
    )


def _segfault(found: "re.Match[str]", entry: Entry) -> KernelEvent:
    library, offset = _place(entry.text, found["ip"])
    return replace(
        _told("segfault", "crashed (SIGSEGV)", entry),
        pid=int(found["pid"]),
        process=found["process"],
        address=int(found["address"], 16),
        access=access_in_words(int(found["error"], 16)),
        library=library,
        offset=offset,
    )


def _trap(found: "re.Match[str]", entry: Entry) -> KernelEvent:
    library, offset = _place(entry.text, found["ip"])
    event = _told("trap", _TRAPS.get(found["trap"], f"crashed ({found['trap']})"), entry)
    return replace(event, pid=int(found["pid"]), process=found["process"], library=library, offset=offset)


def _place(line: str, ip: str) -> tuple[str | None, int | None]:
    """``in libc.so.6[167ad8,7f17a0244000+156000]``: the library, the offset in it (newer kernels), where it is mapped,
    and its size."""
    found = _LIBRARY.search(line)
    if found is None:
        return None, None
    offset = int(found["offset"], 16) if found["offset"] else int(ip, 16) - int(found["base"], 16)
    return found["library"], offset


def access_in_words(error: int) -> str:
    """Bits of the error code of a page fault on x86 (X86_PF_PROT, _WRITE, _USER, _INSTR); of other processors the
    number means other things, and their lines are not written like this."""
    did = "executed" if error & 16 else "wrote to" if error & 2 else "read"
    there = "memory that it may not" if error & 1 else "memory that is not there"
    return f"{did} {there}" + ("" if error & 4 else ", in the kernel")


_LONGEST = 300
_ASKED = re.compile(r"(?P<name>.+?) invoked oom-killer: ")
_CHOSEN = re.compile(r"oom-kill:(.*)")
_SIZE = re.compile(r"([a-z-]+):(\d+)kB")
_PID = re.compile(r"\bpid='?(\d+)")
_NAME = re.compile(r"\bname=([^,]+)")
_CAUSED = re.compile(r"caused by previous Xid (\d+)")
_LIBRARY = re.compile(r" in (?P<library>\S+?)\[(?:(?P<offset>[0-9a-f]+),)?(?P<base>[0-9a-f]+)\+[0-9a-f]+\]")
_TRAPS = {
    "invalid opcode": "crashed (SIGILL): an instruction that this processor does not have",
    "general protection": "crashed (SIGSEGV): an address that none can be",
    "general protection fault": "crashed (SIGSEGV): an address that none can be",
    "divide error": "crashed (SIGFPE): divided by zero",
    "int3": "stopped at a breakpoint (SIGTRAP)",
}
_PCI = r"(?P<device>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-9a-f])?)"
_KNOWN: tuple[tuple[str, re.Pattern[str], _Made], ...] = (
    ("NVRM: Xid (", re.compile(rf"NVRM: Xid \((?:PCI:)?{_PCI}[^)]*\): (?P<code>\d+)"), _xid),
    (
        "SXid (",
        re.compile(rf"SXid \((?:PCI:)?{_PCI}\): (?P<code>\d+), (?P<rest>.*)"),
        _simple("sxid", "NVSwitch: {rest}"),
    ),
    (
        "fallen off the bus",
        re.compile(rf"NVRM: (?:The NVIDIA )?GPU(?: at)? (?:PCI:)?{_PCI}.*fallen off the bus"),
        _simple("gpu lost", "GPU {device} has fallen off the bus: it does not answer any more"),
    ),
    (
        "NVRM: API mismatch",
        re.compile(r"client has the version (?P<client>[\d.]+\d)\D.*?module has the version (?P<module>[\d.]+\d)"),
        _simple("driver mismatch", "the library of the NVIDIA driver is {client}, its kernel module {module}"),
    ),
    (
        "RmInitAdapter failed",
        re.compile(rf"(?:{_PCI})?.*RmInitAdapter failed! (?P<why>\S+)"),
        _simple("driver failed", "the NVIDIA driver could not start the GPU {why}"),
    ),
    ("Killed process ", re.compile(r"Killed process (?P<pid>\d+),? \((?P<process>.*?)\)(?:,|\s|$)"), _oom),
    (
        ": segfault at ",
        re.compile(
            r"(?P<process>.+)\[(?P<pid>\d+)\]: segfault at (?P<address>[0-9a-f]+) ip (?P<ip>[0-9a-f]+) sp [0-9a-f]+ "
            r"error (?P<error>[0-9a-f]+)"
        ),
        _segfault,
    ),
    (
        " ip:",
        re.compile(r"traps: (?P<process>.+)\[(?P<pid>\d+)\] (?:trap )?(?P<trap>[a-z0-9 ]+?) ip:(?P<ip>[0-9a-f]+) sp:"),
        _trap,
    ),
    (
        " blocked for more than ",
        re.compile(r"INFO: task (?P<process>.+):(?P<pid>\d+) (?:<.*> )?blocked for more than (?P<seconds>\d+) seconds"),
        _simple("hung task", "{process} could not be woken for more than {seconds} s"),
    ),
    (
        "soft lockup",
        re.compile(r"soft lockup - CPU#(?P<cpu>\d+) stuck for (?P<seconds>\d+)s! \[(?P<process>.+):(?P<pid>\d+)\]"),
        _simple("lockup", "processor {cpu} was stuck for {seconds} s in {process}"),
    ),
    ("detected stall", re.compile(r"rcu: INFO: \w+ (?:self-)?detected stall"), _simple("lockup", "a processor hangs")),
    ("detected expedited stall", re.compile(r"rcu: INFO: "), _simple("lockup", "a processor hangs")),
    ("[Hardware Error]", re.compile(r"\[Hardware Error\]: (?P<what>.*)"), _simple("memory error", "{what}")),
    ("EDAC ", re.compile(r"EDAC \S+ \d+ (?P<kind>CE|UE) (?P<what>.*)"), _simple("memory error", "{kind} {what}")),
    ("EDAC ", re.compile(r"EDAC \S+: \d+ (?P<kind>CE|UE) (?P<what>.*)"), _simple("memory error", "{kind} {what}")),
    (
        "PCIe Bus Error",
        re.compile(rf"{_PCI}: PCIe Bus Error: severity=(?P<severity>[^,]+), type=(?P<layer>[^,]+)"),
        _simple("pcie error", "{severity}, {layer}"),
    ),
    (
        "AER: ",
        re.compile(rf"AER: (?P<what>(?:Multiple )?(?:Unc|C)orrect\w* .*error.*) received: {_PCI}"),
        _simple("pcie error", "{what}"),
    ),
    (
        "I/O error",
        re.compile(r"I/O error, dev (?P<disk>[^, ]+)"),
        _simple("disk error", "{disk} could not be read or written"),
    ),
    (
        "-fs error (device ",
        re.compile(r"(?P<fs>\w+)-fs error \(device (?P<disk>[^)]+)\)"),
        _simple("disk error", "{fs} on {disk} is damaged"),
    ),
    (
        "timeout",
        re.compile(r"nvme (?P<disk>nvme\d+): I/O .*timeout"),
        _simple("disk error", "{disk} does not answer in time"),
    ),
    (
        " not responding",
        re.compile(r"nfs: server (?P<server>\S+) not responding"),
        _simple("file server", "NFS server {server} does not answer"),
    ),
)
"""What each message has in it, its form (Linux 4 to 6; NVIDIA's driver 450 to 580), and what is made of it."""
