"""Pictures from http and https addresses, with limits of time and size."""

from __future__ import annotations

import http.client
import ipaddress
import socket
import threading
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from vlmgym.sandbox.datasets.rows import BadRow, shown

SCHEMES = ("http", "https")
SECONDS = 20.0
"""How long the whole download may take."""
LARGEST = 1 << 25
"""Bytes that are taken."""


def download(url: str, seconds: float = SECONDS, largest: int = LARGEST) -> bytes:
    """What is at an address.

    The address itself is the user's choice and may be in the own network; a redirect to another host there is not
    followed.

    Args:
        url: An http or https address.
        seconds: How long it may take altogether.
        largest: Bytes it may have.

    Raises:
        BadRow: It is not there, too large or too slow, or leads elsewhere than allowed.
    """
    deadline = _Deadline()
    timer = threading.Timer(seconds, deadline.pass_)
    timer.daemon = True
    timer.start()
    opener = urllib.request.build_opener(_Http(deadline), _Https(deadline), _Redirects())
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "vlmgym"})
        with opener.open(request, timeout=seconds) as response:
            body: bytes = response.read(largest + 1)
    except urllib.error.HTTPError as error:
        error.close()
        raise BadRow(f"{shown(url)} answers {error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        if deadline.passed or isinstance(error, TimeoutError):
            raise BadRow(f"{shown(url)} took longer than {seconds:g} seconds") from None
        raise BadRow(f"{shown(url)} cannot be loaded: {getattr(error, 'reason', error)}") from None
    finally:
        timer.cancel()
    if deadline.passed:
        raise BadRow(f"{shown(url)} took longer than {seconds:g} seconds")
    if len(body) > largest:
        raise BadRow(f"{shown(url)} is larger than {largest >> 20} MB")
    return body


class _Deadline:
    """Ends connections when the time is over, also those to a server that sends a byte now and then."""

    def __init__(self) -> None:
        self.passed = False
        self._sockets: list[socket.socket] = []

    def watch(self, connection: socket.socket) -> None:
        self._sockets.append(connection)

    def pass_(self) -> None:
        self.passed = True
        for connection in self._sockets:
            try:
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
            except OSError:
                continue  # closed already


class _Http(urllib.request.HTTPHandler):
    def __init__(self, deadline: _Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(_watched(http.client.HTTPConnection, self._deadline), req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, deadline: _Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def https_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(_watched(http.client.HTTPSConnection, self._deadline), req)


def _watched(kind: type[http.client.HTTPConnection], deadline: _Deadline) -> Any:
    """Makes connections whose sockets the deadline ends."""

    def connection(*args: Any, **kwargs: Any) -> http.client.HTTPConnection:
        made = kind(*args, **kwargs)
        connect = made.connect

        def connect_and_watch() -> None:
            connect()
            deadline.watch(made.sock)

        made.connect = connect_and_watch  # type: ignore[method-assign]
        return made

    return connection


class _Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        parts = urlsplit(newurl)
        if parts.scheme not in SCHEMES:
            raise ValueError(f"it leads to {shown(newurl)}, which is neither http nor https")
        if parts.hostname != urlsplit(req.full_url).hostname and not _is_public(parts.hostname or ""):
            raise ValueError(f"it leads to {shown(newurl)}, which is not on the public network")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _is_public(host: str) -> bool:
    """Whether all addresses of a host are on the public network."""
    found = socket.getaddrinfo(host, None)
    return all(ipaddress.ip_address(str(entry[4][0]).partition("%")[0]).is_global for entry in found)
