"""A server that cannot listen says why in a line, with a hint."""

from __future__ import annotations

import errno

import pytest

from inferdbg.engine.server.listen import ListenError, bind, url_of, why_not


def refused(host: str, port: int) -> ListenError:
    with pytest.raises(ListenError) as caught:
        bind(host, port)
    assert caught.value.hint
    assert "\n" not in caught.value.message
    return caught.value


def test_a_free_port_is_found_and_told() -> None:
    with bind("127.0.0.1", 0) as listener:
        assert url_of(listener) == f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_every_address_is_told_as_one_that_can_be_reached() -> None:
    with bind("0.0.0.0", 0) as listener:
        assert url_of(listener).startswith("http://127.0.0.1:")


def test_a_port_in_use_is_named() -> None:
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert f"port {port}" in refused("127.0.0.1", port).message


@pytest.mark.parametrize("port", [-1, 65536, 10**9])
def test_a_port_that_does_not_exist_is_refused(port: int) -> None:
    assert str(port) in refused("127.0.0.1", port).message


def test_an_address_of_another_machine_is_refused() -> None:
    assert "not an address of this machine" in refused("192.0.2.1", 0).message


@pytest.mark.parametrize("host", ["not a host", "a" * 300, "..", "256.256.256.256"])
def test_what_is_no_host_is_refused(host: str) -> None:
    assert "not an address of a host" in refused(host, 0).message


def test_a_privileged_port_is_refused_with_another_way() -> None:
    error = why_not(OSError(errno.EACCES, "Permission denied"), "127.0.0.1", 80)
    assert "needs root" in error.message
    assert "1024" in error.hint
