"""Hunt for wrong bounds and wrong readings: test random networks and ONNX files.

    python scripts/hunt.py --networks 200 --seed 0 --seconds 600
    python scripts/hunt.py --only exact --networks 100000 --share 1/16    # one of 16 processes

Each seed has five parts; `--only` chooses one of them.

- bounds: a random torch network with odd settings that contains the next operation of the reader's table. The bounds
  of every method, and all intervals and lines on the way, must hold at uniform points, corners and attacked points.
- exact: a tiny network. The lower and upper bounds of `Exact` are compared with points, and with the enumerated truth
  where enumeration is possible.
- hostile: a network whose outputs depend on rounding errors. Its rigorous bounds are compared with float32 values and
  with exact fractions.
- sets: a tiny network. Its sufficient sets are compared with points and, where possible, with the exact maximum: a free
  set with an adversarial example and a necessary group that can be freed are findings.
- onnx: a few random ONNX files. The loaded graphs are compared with onnxruntime.

A finding states its seed: `--seed S --networks 1` reproduces it. The exit code is 1 if there are findings. Ctrl-C ends
the hunt; the findings so far are reported.

The last line is JSON: the first and the last seed, their distance, and the counts. `--add FILE...` sums these lines of
several shares. If share K/N stopped after seed S, `--seed S+N --share 1/N` continues it.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from dataclasses import fields
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # `fuzz` and `tests` are folders of the repository

try:
    import onnx  # noqa: F401
except ModuleNotFoundError:  # without onnx, only torch networks can be tested
    sys.modules["onnx"] = MagicMock(__spec__=ModuleSpec("onnx", None))

from fuzz.hunting import networks, tiny
from fuzz.hunting.finding import FINDING_KINDS, Finding, Tally
from fuzz.hunting.hunt import hunt
from fuzz.shares import add_share, seeds_of

_PROGRESS_SECONDS = 30.0  # time between two lines of progress
_MAX_SEED_SECONDS = 300  # a seed that takes longer is a finding


class _EndlessError(BaseException):
    """A seed takes too long. Not an Exception, which a check might catch."""


def main() -> None:
    """Run the hunt and print the findings."""
    args = _arguments()
    if args.add:
        total = _added(args.add)
        print(json.dumps(total))
        sys.exit(1 if total["findings"] else 0)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _too_long)
    asked: list[int] = []

    def stop(number: int, _: object) -> None:
        asked.append(number)  # a search catches the interrupt and returns its bounds so far
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):  # also if a shell ignores them in the background
        signal.signal(number, stop)
    tally = Tally()
    findings: list[Finding] = []
    start = shown = time.monotonic()
    done = 0
    with tempfile.TemporaryDirectory() as folder:
        try:
            for seed in args.seeds:
                now = time.monotonic()
                if now - start > args.seconds or asked:
                    break
                if now - shown > _PROGRESS_SECONDS:
                    shown = now
                    print(f"[{now - start:.0f} s] seed {seed}: {_counts(tally)}, {len(findings)} findings", flush=True)
                findings += _one(seed, tally, Path(folder), args.only)
                done += 1
        except KeyboardInterrupt:
            print(f"stopped at seed {args.seeds[done]}")
    tried = args.seeds[: max(1, done)]
    seconds = time.monotonic() - start
    _sum_up(tally, findings, seconds, tried, args.only)
    print(json.dumps(_record(tally, findings, seconds, tried)))
    sys.exit(1 if findings else 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=200, help="number of seeds")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no new seed after this time")
    parser.add_argument("--only", choices=["bounds", "exact", "hostile", "sets", "onnx"], help="run only one part")
    add_share(parser)
    parser.add_argument("--add", type=Path, nargs="+", metavar="FILE", help="only sum the last lines of these files")
    args = parser.parse_args()
    args.seeds = seeds_of(parser, args.seed, args.networks, args.share, "networks")
    return args


def _one(seed: int, tally: Tally, folder: Path, only: str | None) -> list[Finding]:
    """Print and return the findings of one seed."""
    findings = []
    signal.alarm(_MAX_SEED_SECONDS)
    try:
        for finding in hunt(seed, tally, folder, only):
            findings.append(finding)
            print(f"\n{finding}\n", flush=True)
    except _EndlessError:
        findings.append(Finding(seed, "raw error", f"takes more than {_MAX_SEED_SECONDS} seconds", ()))
        print(f"\n{findings[-1]}\n", flush=True)
    finally:
        signal.alarm(0)
    return findings


def _too_long(*_: object) -> None:
    raise _EndlessError


def _counts(tally: Tally) -> str:
    return (
        f"{tally.networks} networks, {tally.balls} balls, {tally.points} points, {tally.hidden} hidden intervals, "
        f"{tally.lines} forms, {tally.bounds} bounds, {tally.searches} searches, {tally.split} networks split, "
        f"{tally.splits} splits, {tally.parts} parts, {tally.closed} closed, {tally.enumerated} enumerated, "
        f"{tally.equal} equal, {tally.files} files, {tally.fooled} fooled without rigour, "
        f"{tally.misled} by a search, {tally.sets} sufficient sets with {tally.free_groups} free, "
        f"{tally.necessary_groups} necessary and {tally.undecided_groups} open groups, {tally.contrasts} contrastive "
        f"answers, {tally.undecided} undecided"
    )


def _record(tally: Tally, findings: list[Finding], seconds: float, seeds: range) -> dict[str, Any]:
    """Return the seeds and the counts as numbers that can be summed over shares."""
    counts = {one.name: getattr(tally, one.name) for one in fields(tally) if one.type == "int"}
    tried = {"first": seeds.start, "last": seeds[-1], "every": seeds.step, "seconds": round(seconds)}
    operations = dict(sorted(tally.operations.items()))
    return {**tried, **counts, "findings": len(findings), "rounding": tally.rounding, "operations": operations}


def _added(files: list[Path]) -> dict[str, Any]:
    """Sum the last lines of files."""
    rows = [json.loads(file.read_text().splitlines()[-1]) for file in files]
    total: dict[str, Any] = {"shares": len(rows)}
    for name in (one for one in rows[0] if one not in ("first", "last", "every", "rounding", "operations")):
        total[name] = sum(row[name] for row in rows)
    operations = sum((Counter(row["operations"]) for row in rows), Counter())
    return {**total, "rounding": max(row["rounding"] for row in rows), "operations": dict(sorted(operations.items()))}


def _sum_up(tally: Tally, findings: list[Finding], seconds: float, seeds: range, only: str | None) -> None:
    print(f"seeds {seeds.start} to {seeds[-1]}, every {seeds.step}: {_counts(tally)} in {seconds:.0f} s")
    print(f"rounding took at most {tally.rounding:.2g} of its tolerance")
    table, missing = _tables(only)
    print(f"operations: {len(tally.operations)}; never drawn: {_listed(table - set(tally.operations))}")
    print(f"operations of the tables without a generator: {_listed(missing)}")
    for words, count in tally.refused.most_common(12):
        print(f"  refused {count:5d}  {words}")
    kinds = Counter(finding.kind for finding in findings)
    counts = ", ".join(f"{kinds[k]} {k}" for k in FINDING_KINDS if kinds[k]) or "nothing is wrong"
    print(f"{len(findings)} finding{'' if len(findings) == 1 else 's'}: {counts}")
    sorts: dict[str, list[Finding]] = {}
    for finding in sorted(findings, key=lambda one: FINDING_KINDS.index(one.kind)):
        sorts.setdefault(finding.sort, []).append(finding)
    for same in sorts.values():
        places = ", ".join(str(one.seed) for one in same[:6])
        print(f"  {len(same):4d}  {same[0].kind}: {same[0].what[:200]}  (seeds {places}{', ...' if same[6:] else ''})")


def _tables(only: str | None) -> tuple[set[str], set[str]]:
    """Return the operations that can be drawn, and the operations of the tables that cannot."""
    if only in ("exact", "hostile", "sets"):
        return tiny.searchable_operations() if only != "hostile" else set(), set()
    table, missing = set(networks.turns()), networks.uncovered()
    if only != "bounds":
        from fuzz.hunting import files  # the other parts need no onnx

        table, missing = table | set(files.turns()), missing | files.uncovered()
    return table, missing


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) if 0 < len(names) <= 20 else f"{len(names)} of them" if names else "none"


if __name__ == "__main__":
    main()
