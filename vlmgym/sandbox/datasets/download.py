"""Download images from URLs in tables.

These URLs are untrusted: the size is limited, and a host must be public or allowed by name. For http and https, the
time is also limited, the host is resolved once per connection, all its addresses are checked, and the connection uses
one of these addresses. Neither a redirect nor a second DNS answer can therefore lead into a private network. Proxies
are not used, because they resolve hosts themselves.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import urljoin, urlsplit

from vlmgym.errors import missing_extra, short_repr
from vlmgym.sandbox.datasets.extra import library, one_line
from vlmgym.sandbox.datasets.rows import BadRow

BUCKETS = {"s3": "s3fs", "gs": "gcsfs"}
"""Packages that fsspec needs to read objects, keyed by URL scheme."""
SCHEMES: dict[str, type[HTTPConnection]] = {"http": HTTPConnection, "https": HTTPSConnection}
SECONDS = 20.0
MAX_BYTES = 1 << 25
MAX_REDIRECTS = 10
_REDIRECTS = (301, 302, 303, 307, 308)
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")


def download(url: str, hosts: Collection[str] = (), seconds: float = SECONDS, max_bytes: int = MAX_BYTES) -> bytes:
    """Download an http or https URL within limits of time and size, following redirects.

    `hosts` are lower-case names of hosts whose addresses need not be public.

    Raises:
        BadRow: The download failed, exceeded a limit, or its host is not allowed.
    """
    deadline = time.monotonic() + seconds
    target = url
    try:
        for _ in range(MAX_REDIRECTS + 1):
            with _get(target, hosts, deadline) as response:
                location = response.headers["Location"] if response.status in _REDIRECTS else None
                if location is None:
                    if response.status >= 300:
                        raise BadRow(f"{short_repr(url)} returned {response.status} {response.reason}")
                    body = response.read(max_bytes + 1)
                    break
                target = urljoin(target, location.replace(" ", "%20"))
        else:
            raise BadRow(f"{short_repr(url)} redirects more than {MAX_REDIRECTS} times")
        if time.monotonic() >= deadline:
            raise TimeoutError
    except (OSError, HTTPException, ValueError) as error:
        if isinstance(error, TimeoutError) or time.monotonic() >= deadline:
            raise BadRow(f"{short_repr(url)} took longer than {seconds:g} seconds") from None
        raise BadRow(f"{short_repr(url)} cannot be loaded: {error}") from None
    if len(body) > max_bytes:
        raise BadRow(f"{short_repr(url)} is larger than {max_bytes >> 20} MB")
    return body


def download_object(url: str, buckets: Collection[str], max_bytes: int = MAX_BYTES) -> bytes:
    """Download an object from Amazon S3 or Google Cloud Storage with the user's credentials, as found by fsspec.

    Because credentials are used, the bucket must be among `buckets`, given in lower case.

    Raises:
        BadRow: The bucket is not allowed, or the object cannot be loaded or is too large.
        UsageError: A package is missing.
    """
    bucket, package = urlsplit(url).hostname, BUCKETS[url.partition(":")[0].lower()]
    if bucket not in buckets:
        raise BadRow(f"{short_repr(url)} would be loaded with your credentials: allow it with url_hosts={bucket}")
    fsspec = library("fsspec", f"loading {short_repr(url)}")
    try:
        system, path = fsspec.core.url_to_fs(url)
        body: bytes = system.cat_file(path, end=max_bytes + 1)
    except ImportError:
        raise missing_extra(f"loading {short_repr(url)}", package, "cloud") from None
    except Exception as error:  # each backend raises its own exceptions
        raise BadRow(f"{short_repr(url)} cannot be loaded: {one_line(error)}") from None
    if len(body) > max_bytes:
        raise BadRow(f"{short_repr(url)} is larger than {max_bytes >> 20} MB")
    return body


@contextmanager
def _get(url: str, hosts: Collection[str], deadline: float) -> Iterator[HTTPResponse]:
    """Request a URL. A timer closes the connection at the deadline, even if the server is still sending."""
    parts = urlsplit(url)
    host = parts.hostname
    if parts.scheme not in SCHEMES or not host:
        raise ValueError(f"{short_repr(url)} is not an http or https URL")
    kind = SCHEMES[parts.scheme]
    connection = kind(host, parts.port or kind.default_port)
    with closing(connection):
        connection.sock = _connect(host, connection.port, host in hosts, deadline)
        if kind is HTTPSConnection:
            connection.sock = _tls().wrap_socket(connection.sock, server_hostname=host)
        timer = threading.Timer(deadline - time.monotonic(), _shut_down, [connection.sock])
        timer.daemon = True
        timer.start()
        try:
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("GET", path, headers={"User-Agent": "vlmgym", "Connection": "close"})
            with connection.getresponse() as response:
                yield response
        finally:
            timer.cancel()


def _connect(host: str, port: int, allowed: bool, deadline: float) -> socket.socket:
    """Connect to the first address of a host that answers; unless `allowed`, all addresses must be public."""
    addresses = [str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    private = [address for address in addresses if not is_public(address)]
    if private and not allowed:
        raise BadRow(f"{host} has the address {private[0]}, which is not public: allow it with url_hosts={host}")
    for address in addresses:
        try:
            return socket.create_connection((address, port), max(deadline - time.monotonic(), 0.001))
        except OSError:
            if address == addresses[-1]:
                raise
    raise OSError(f"{host} has no address")


def is_public(address: str) -> bool:
    """Return True for an IP address on the public Internet.

    An IPv6 address that embeds an IPv4 address (mapped, 6to4 or NAT64) is judged by the IPv4 address alone.
    """
    ip = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv6Address):
        embedded = ip.ipv4_mapped or ip.sixtofour or (IPv4Address(int(ip) & 0xFFFFFFFF) if ip in _NAT64 else None)
        if embedded is None:
            return ip.is_global and ip in _GLOBAL_UNICAST
        ip = embedded
    return ip.is_global and not ip.is_multicast


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def _shut_down(sock: socket.socket) -> None:
    with suppress(OSError):  # already closed
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
