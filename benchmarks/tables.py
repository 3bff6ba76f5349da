"""Measure the time and memory that it takes to open large tables and read random rows.

pip install -e .[data] && python -m benchmarks.tables --rows 5000000

The rows resemble OSV-5M. Each file is written once, opened and read twice, each time in a new process, and removed.
Files are in the page cache while they are read, as after a download.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table as Shown

from vlmgym.sandbox.data.tables import open_table
from vlmgym.terminal import parse_options, reporting_errors

CHUNK = 250_000
"""Number of rows that are generated at a time."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Measure files of several formats."""

    rows: int = 5_000_000
    """Rows per table."""
    reads: int = 2000
    """Number of rows to read, in shuffled order."""
    folder: Path | None = None
    """Where to create the temporary folder. Default: the system's folder for temporary files."""
    measure: str | None = None
    """Measure only this file and print JSON; the script calls itself with this option."""


def main() -> None:
    config = parse_options(Config, None, prog="python -m benchmarks.tables")
    if config.measure is not None:
        print(json.dumps(measure(config.measure, config.reads)))
        return
    with TemporaryDirectory(prefix="vlmgym-tables-", dir=config.folder) as folder:
        Console(width=120).print(measure_files(Path(folder), config.rows, config.reads))


def measure_files(folder: Path, rows: int, reads: int) -> Shown:
    """Write and measure each file, and tabulate the results.

    The second measurement shows opening with a warm cache; memory and times per row are from this measurement.
    """
    os.environ["VLMGYM_CACHE"] = str(folder / "cache")
    table = Shown("file", "MB", "opened in s", "again in s", "added memory in MB", "of it mapped", "ms per row", "p99")
    table.title = f"{rows} rows, {reads} read in shuffled order"
    for name, write in FILES.items():
        path = folder / name
        write(path, rows)
        first, second = (in_new_process(path, reads) for _ in range(2))
        numbers = (path.stat().st_size / 1e6, first["opened"], second["opened"], second["resident"], second["mapped"])
        table.add_row(name, *(f"{number:.2f}" for number in (*numbers, second["mean"], second["p99"])))
        path.unlink()
    return table


def measure(path: str, reads: int) -> dict[str, float]:
    """Open a table and read rows.

    Returns:
        Seconds to open the table (`opened`); mean and 99th percentile of the milliseconds to read a row (`mean`,
        `p99`); and the increases in MB of resident memory (`resident`) and of resident pages of mapped files
        (`mapped`).
    """
    before, mapped_before = memory()
    started = time.perf_counter()
    table = open_table(path)
    opened = time.perf_counter() - started
    times = []
    for index in np.random.default_rng(0).permutation(len(table))[:reads].tolist():
        started = time.perf_counter()
        row = table[index]
        times.append(time.perf_counter() - started)
        assert len(row) == len(table.columns)
    after, mapped = memory()
    return {
        "opened": opened,
        "resident": after - before,
        "mapped": mapped - mapped_before,
        "mean": 1e3 * float(np.mean(times)),
        "p99": 1e3 * float(np.quantile(times, 0.99)),
    }


def memory() -> tuple[float, float]:
    """Return the resident memory of this process, and how much of that is pages of mapped files, both in MB."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return tuple(int(status[name].split()[0]) / 1e3 for name in ("VmRSS", "RssFile"))  # type: ignore[return-value]


def in_new_process(path: Path, reads: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", str(path), "--reads", str(reads)]
    numbers: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return numbers


# Files ----------------------------------------------------------------------------------------------------------------


def chunks_of(rows: int) -> Iterator[pa.Table]:
    """Yield `rows` generated rows that resemble OSV-5M, in chunks."""
    rng = np.random.default_rng(0)
    countries, cities = np.array(["FR", "DE", "US", "BR"]), np.array(["Saint-Étienne", "Ulm", 'The "Hague"', "Rio, RJ"])
    for start in range(0, rows, CHUNK):
        count = min(CHUNK, rows - start)
        ids = np.arange(start, start + count)
        yield pa.table(
            {
                "id": ids + 10**15,
                "latitude": rng.uniform(-90, 90, count),
                "longitude": rng.uniform(-180, 180, count),
                "country": countries[rng.integers(4, size=count)],
                "city": cities[rng.integers(4, size=count)],
                "cell": [f"({place}, 8)" for place in rng.integers(0, 100, count)],
                "image": [f"images/train/{place % 98:02}/{place}.jpg" for place in ids],
            }
        )


def write_csv(path: Path, rows: int) -> None:
    chunks = chunks_of(rows)
    first = next(chunks)
    with pyarrow.csv.CSVWriter(path, first.schema) as writer:
        for chunk in (first, *chunks):
            writer.write(chunk)


def write_jsonl(path: Path, rows: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        for chunk in chunks_of(rows):
            file.writelines(json.dumps(row) + "\n" for row in chunk.to_pylist())


def parquet_writer(group: int) -> Callable[[Path, int], None]:
    def write(path: Path, rows: int) -> None:
        chunks = chunks_of(rows)
        first = next(chunks)
        with pq.ParquetWriter(path, first.schema) as writer:
            pending = first
            for chunk in chunks:
                pending = pa.concat_tables([pending, chunk])
                if len(pending) >= group:
                    writer.write_table(pending, group)
                    pending = pending.slice(len(pending))
            writer.write_table(pending, group)

    return write


FILES: dict[str, Callable[[Path, int], None]] = {
    "rows.csv": write_csv,
    "rows.jsonl": write_jsonl,
    "groups_of_1k.parquet": parquet_writer(1000),
    "groups_of_1M.parquet": parquet_writer(1_000_000),
}

if __name__ == "__main__":
    with reporting_errors():
        main()
