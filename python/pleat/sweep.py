"""Plays the cells of a sweep of `pleat sim` on the workers of a Dask cluster.

A cell is one row of `pleat sim`: a trace, a system and a size of RAM, or a trace, a replacement policy and a number of
pages. Each is one `pleat sim` of its own, so rows are the same, and in the same order, wherever they are played.

Workers find `pleat`, the traces and the profiles, if those are files, under the paths that are given here: in a directory
that all machines mount. With a worker for each processor all of a cluster is at work.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import logging
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any, Iterable, Optional, Sequence, Union

Row = dict[str, Any]


class SimError(Exception):
    """`pleat sim` has refused a cell, or could not be run; the text is its one line."""


@dataclass(frozen=True)
class Sweep:
    """What `pleat sim` is to be asked: `system` and `ram` together, or `replacement` and `pages`.

    `options` are further words for each cell, such as `["--ratio", "0.3"]`.
    """

    traces: Sequence[str]
    system: Sequence[str] = ()
    ram: Sequence[str] = ()
    replacement: Sequence[str] = ()
    pages: Sequence[str] = ()
    options: Sequence[str] = ()
    pleat: str = "pleat"

    def __post_init__(self) -> None:
        given = [bool(words) for words in (self.system, self.ram, self.replacement, self.pages)]
        if given not in ([True, True, False, False], [False, False, True, True]):
            raise ValueError("give --system and --ram, or --replacement and --pages")

    def cells(self) -> list[list[str]]:
        """The command line of each cell, in the order of `pleat sim`'s rows."""
        names, sizes = ("--system", "--ram") if self.system else ("--replacement", "--pages")
        axes = (self.traces, self.system or self.replacement, self.ram or self.pages)
        return [
            [self.pleat, "sim", str(trace), names, name, sizes, str(size), *self.options, "--json", "-"]
            for trace, name, size in itertools.product(*axes)
        ]

    def here(self) -> Iterable[Row]:
        """Plays the cells in this process, one after the other."""
        return (row for cell in self.cells() for row in play(cell))

    def submit(self, client: Any) -> list[Any]:
        """Hands the cells to a `distributed.Client`; one future a cell, for `collect`.

        The cell of a worker that is lost is played again on another.
        """
        # Not pure: a trace may have changed under its name since somebody asked for the same.
        return client.map(played_or_refused, self.cells(), pure=False)

    def on(self, client: Any) -> list[Row]:
        """Plays the cells on the workers of a `distributed.Client`."""
        return collect(client, self.submit(client))


def play(cell: Sequence[str]) -> list[Row]:
    """Plays one cell, on one processor, and returns its rows (docs/simulator.md)."""
    environment = {**os.environ, "RAYON_NUM_THREADS": "1"}
    try:
        run = subprocess.run(cell, env=environment, capture_output=True, text=True)
    except OSError as error:
        raise SimError(f"{cell[0]}: {error.strerror}; --pleat says where it is on the workers") from None
    if run.returncode != 0:
        raise SimError(run.stderr.strip() or f"{' '.join(cell)}: status {run.returncode}")
    # A truncated trace is played, with a warning.
    sys.stderr.write(run.stderr)
    return json.loads(run.stdout)


def played_or_refused(cell: Sequence[str]) -> Union[list[Row], SimError]:
    """As `play`; a refusal is a result, which Dask does not log as a failure of the worker's."""
    try:
        return play(cell)
    except SimError as error:
        return error


def collect(client: Any, futures: list[Any]) -> list[Row]:
    """The rows of all cells, once they are played. The first refusal is raised."""
    results = client.gather(futures)
    for result in results:
        if isinstance(result, SimError):
            raise result
    return [row for rows in results for row in rows]


def several(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def parser() -> argparse.ArgumentParser:
    told = argparse.ArgumentParser(
        prog="pleat-sweep",
        description="Play a sweep of pleat sim on the workers of a Dask cluster.",
        epilog="""example: pleat-sweep --scheduler tcp://head:8786 /traces/*.trace --system pleat,zswap,off --ram 25%,50%,75%
            --json rows.json""",
    )
    told.add_argument("traces", nargs="+", metavar="TRACE", help="the traces, under a path that all workers have")
    for name, metavar in [("system", "NAME"), ("ram", "SIZE|PERCENT%"), ("replacement", "NAME"), ("pages", "COUNT")]:
        as_for_sim = "as for pleat sim; several with commas"
        told.add_argument(f"--{name}", type=several, default=[], metavar=metavar, help=as_for_sim)
    for name in ["machine", "backing", "ratio"]:
        told.add_argument(f"--{name}", metavar="PROFILE" if name != "ratio" else "PART", help="as for pleat sim")
    told.add_argument("--pleat", default="pleat", metavar="PATH", help="the program, as the workers find it")
    where = told.add_mutually_exclusive_group()
    where.add_argument("--scheduler", metavar="ADDRESS", help="the cluster: tcp://HOST:PORT")
    here = "a cluster of so many workers on this machine [default: one a processor]"
    where.add_argument("--workers", type=int, metavar="COUNT", help=here)
    told.add_argument("--json", metavar="FILE", help="where the rows go [default: standard output]")
    return told


def cluster(args: argparse.Namespace) -> Any:
    """A client of the cluster that is asked for."""
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise SimError("Dask is missing: apt install python3-distributed, or pip install distributed") from None
    if args.scheduler:
        return Client(args.scheduler)
    return Client(LocalCluster(n_workers=args.workers or os.cpu_count(), threads_per_worker=1, dashboard_address=None))


def wait_with_progress(futures: list[Any]) -> None:
    """Counts the cells that are done, where somebody looks on."""
    from distributed import as_completed

    for done, _ in enumerate(as_completed(futures), start=1):
        if sys.stderr.isatty():
            end = "\n" if done == len(futures) else ""
            print(f"\r{done} of {len(futures)} cells", end=end, file=sys.stderr, flush=True)


def main(words: Optional[Sequence[str]] = None) -> int:
    args = parser().parse_args(words)
    # Of what goes on inside Dask, such as a connection that ends late, nothing belongs beside our one line.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    given = [(name, getattr(args, name)) for name in ("machine", "backing", "ratio")]
    options = [word for name, value in given if value is not None for word in (f"--{name}", value)]
    try:
        # Before the work: nobody wants to hear of it only afterwards.
        out = open(args.json, "w", encoding="utf-8") if args.json else contextlib.nullcontext(sys.stdout)
        sweep = Sweep(args.traces, args.system, args.ram, args.replacement, args.pages, options, args.pleat)
        with cluster(args) as client:
            futures = sweep.submit(client)
            wait_with_progress(futures)
            rows = collect(client, futures)
        with out as file:
            print(json.dumps(rows), file=file)
    except (SimError, ValueError, OSError) as error:
        line = str(error)
        print(line if line.startswith("pleat: ") else f"pleat-sweep: {line}", file=sys.stderr)
        return 125
    return 0


if __name__ == "__main__":
    sys.exit(main())
