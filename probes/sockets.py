"""Which TCP ports a process listens on: /proc/PID/net/tcp of its network namespace, joined with its open files."""

import ipaddress
import os
import re
from collections.abc import Iterable

from msgspec import Struct

_LISTENS = "0A"
_INODE = re.compile(r"socket:\[(\d+)\]")
_LOCAL = re.compile(r"\|-- ([0-9.]+)\s+/32 host LOCAL")


class Listener(Struct, frozen=True):
    """``uid``: of whoever opened it. ``inode``: what a link in /proc/PID/fd names."""

    host: str
    port: int
    uid: int
    inode: int


def parse_tcp(content: bytes) -> list[Listener]:
    """Listening sockets of /proc/PID/net/tcp or tcp6: addresses are hexadecimal words of the machine's byte order
    (proc_pid_net(5)). Lines that make no sense are left out."""
    found: list[Listener] = []
    for line in content.decode("ascii", "replace").splitlines()[1:]:
        words = line.split()
        if len(words) < 10 or words[3] != _LISTENS:
            continue
        address, _, port = words[1].partition(":")
        try:
            raw = bytes.fromhex(address)
            parts = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
            found.append(Listener(str(ipaddress.ip_address(parts)), int(port, 16), int(words[7]), int(words[9])))
        except ValueError:
            continue
    return found


def socket_inodes(folder: str) -> set[int] | None:
    """Of the open files of a process; None where they may not be seen. ``folder``: /proc/PID."""
    try:
        names = os.listdir(f"{folder}/fd")
    except OSError:
        return None
    found: set[int] = set()
    denied = False
    for name in names:
        try:
            link = os.readlink(f"{folder}/fd/{name}")
        except OSError as error:
            denied |= isinstance(error, PermissionError)
            continue
        if (socket := _INODE.fullmatch(link)) is not None:
            found.add(int(socket[1]))
    return None if denied and not found else found


def listeners(folder: str) -> list[Listener]:
    """All of the network namespace of a process, whoever they belong to."""
    return [*parse_tcp(_read(f"{folder}/net/tcp")), *parse_tcp(_read(f"{folder}/net/tcp6"))]


def own_address(folder: str) -> str | None:
    """An address by which a network namespace can be reached from outside of it: the first that is not loopback."""
    found = _LOCAL.findall(_read(f"{folder}/net/fib_trie").decode("ascii", "replace"))
    return next((address for address in found if not address.startswith("127.")), None)


def url_of(host: str, port: int) -> str:
    """``0.0.0.0`` and ``::`` as the loopback address that leads there."""
    reached = {"0.0.0.0": "127.0.0.1", "::": "127.0.0.1"}.get(host, host)
    reached = reached.removeprefix("::ffff:")
    return f"http://[{reached}]:{port}" if ":" in reached else f"http://{reached}:{port}"


def unique(found: Iterable[Listener]) -> list[Listener]:
    """One for each port, in order."""
    return list({listener.port: listener for listener in found}.values())


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(1 << 20)
    except OSError:
        return b""
