"""Records in a gzip file with one member per record, so that each record can be read without the others."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from vlmgym.errors import UsageError

MAX_RECORD = 64 << 20
"""Maximum uncompressed size of a record in bytes."""
MAX_RECORDS = 4 << 30
"""Maximum total uncompressed size of the records in a file, in bytes."""
MAX_COUNT = 1_000_000
"""Maximum number of records in a file."""
_CHUNK = 1 << 14


def pack(records: Iterable[bytes]) -> Iterator[bytes]:
    """Compress records; the same records give the same bytes."""
    return (gzip.compress(record + b"\n", mtime=0) for record in records)


def packed_records(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield the offset of each member, its length in bytes, and its record."""
    total = count = 0
    with path.open("rb") as file:
        while True:
            start = file.tell()
            record = _unpack(file, path)
            if record is None:
                return
            total, count = total + len(record), count + 1
            if total > MAX_RECORDS or count > MAX_COUNT:
                limits = f"more than {MAX_COUNT:,} records, or more than {MAX_RECORDS:,} bytes of records"
                raise UsageError(f"{path} has {limits}")
            yield start, file.tell() - start, record


def read_packed(path: Path, offset: int) -> bytes:
    """Read the record of the member at an offset."""
    with path.open("rb") as file:
        file.seek(offset)
        return _unpack(file, path) or b""


def _unpack(file: BinaryIO, path: Path) -> bytes | None:
    """Read the record of the next member, and seek to the end of the member; return None at the end of the file."""
    start = file.tell()
    head = file.read(4)
    file.seek(start)
    if head[:3] == b"\x1f\x8b\x08" and head[3:] > b"\0":
        raise UsageError(f"{path} cannot be read: the header of a gzip member has a name, a comment or other fields")
    member, record = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS), bytearray()
    while not member.eof:
        chunk = member.unconsumed_tail or file.read(_CHUNK)
        if not chunk:
            if file.tell() == start:
                return None
            raise UsageError(f"{path} cannot be read: it is incomplete")
        try:
            record += member.decompress(chunk, MAX_RECORD + 1 - len(record))
        except zlib.error as error:
            raise UsageError(f"{path} cannot be read: {error}") from None
        if len(record) > MAX_RECORD:
            raise UsageError(f"{path} has a record of more than {MAX_RECORD:,} bytes")
    file.seek(-len(member.unused_data), 1)
    if record.find(b"\n") != len(record) - 1:
        raise UsageError(f"{path} must have one gzip member for each record, as vlmgym submit pack writes it")
    return bytes(record[:-1])
