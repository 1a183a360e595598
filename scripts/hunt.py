"""Hunt for what the tests have missed: random networks and ONNX files, attacked.

    python scripts/hunt.py --networks 200 --seed 0 --seconds 600
    python scripts/hunt.py --only exact --networks 100000 --share 1/16    # one of 16 processes

The network of a seed has the operation whose turn it is in the reader's table, among others, with odd settings. Its
bounds by every method, and every interval and line on the way, are compared with values at points: drawn, at corners,
and where gradients lead. Each seed has a tiny network too, of which `Exact` proves both sides of the overlap: they are
compared with points, and with the truth where that can be enumerated; and a few ONNX files: what is loaded is compared
with onnxruntime; and a network that rounding fools, whose rigorous bounds are compared with float32 and with fractions.
`--only` takes one of the four. A finding comes with a seed: `--seed S --networks 1` shows it again.
Exit code 1 where there are any. Ctrl-C ends the hunt with what was found so far.

The last line is JSON: the first and last seed that were tried, every how many, and the counts. `--add FILE...` adds up
those lines of several shares. Where share K/N stopped after seed S, `--seed S+N --share 1/N` goes on.
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
except ModuleNotFoundError:  # networks can be hunted without files, on a machine that has only torch and scipy
    sys.modules["onnx"] = MagicMock(__spec__=ModuleSpec("onnx", None))

from fuzz.hunting import networks, tiny
from fuzz.hunting.finding import KINDS, Finding, Tally
from fuzz.hunting.hunt import hunt

_EVERY = 30.0  # seconds between two lines of progress
_ENDLESS = 300  # seconds that a seed may take


class _EndlessError(BaseException):
    """A seed takes too long; no `except Exception` on the way may take it for another error."""


def main() -> None:
    """Hunt, and say what was found."""
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
        asked.append(number)  # a search ends by itself, with what it has proven
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell has it ignored in the background
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
                if now - shown > _EVERY:
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
    parser.add_argument("--networks", type=int, default=200, help="how many seeds, each a network and a few files")
    parser.add_argument("--seed", type=int, default=0, help="the first of them")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no new seed after so long")
    parser.add_argument("--only", choices=["bounds", "exact", "hostile", "onnx"], help="one kind alone")
    parser.add_argument("--share", type=_share, default=(1, 1), metavar="K/N", help="every N-th seed, from the K-th on")
    parser.add_argument("--add", type=Path, nargs="+", metavar="FILE", help="add up what shares printed, and no more")
    args = parser.parse_args()
    share, shares = args.share
    args.seeds = range(args.seed + share - 1, args.seed + args.networks, shares)
    if not args.seeds:
        parser.error(f"got {args.networks} networks, too few for {shares} shares, expected at least {share}")
    return args


def _share(text: str) -> tuple[int, int]:
    k, _, n = text.partition("/")
    if not (k.isdecimal() and n.isdecimal() and 1 <= int(k) <= int(n)):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected K/N with K from 1 to N")
    return int(k), int(n)


def _one(seed: int, tally: Tally, folder: Path, only: str | None) -> list[Finding]:
    """The findings of one seed, printed as they come."""
    findings = []
    signal.alarm(_ENDLESS)
    try:
        for finding in hunt(seed, tally, folder, only):
            findings.append(finding)
            print(f"\n{finding}\n", flush=True)
    except _EndlessError:
        findings.append(Finding(seed, "raw error", f"takes more than {_ENDLESS} seconds", ()))
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
        f"{tally.misled} by a search, {tally.undecided} undecided"
    )


def _record(tally: Tally, findings: list[Finding], seconds: float, seeds: range) -> dict[str, Any]:
    """What was tried and found, in numbers that can be added up."""
    counts = {one.name: getattr(tally, one.name) for one in fields(tally) if one.type == "int"}
    tried = {"first": seeds.start, "last": seeds[-1], "every": seeds.step, "seconds": round(seconds)}
    operations = dict(sorted(tally.operations.items()))
    return {**tried, **counts, "findings": len(findings), "rounding": tally.rounding, "operations": operations}


def _added(files: list[Path]) -> dict[str, Any]:
    """The last lines of files, as one."""
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
    print(f"operations: {len(tally.operations)}; of the tables never drawn: {_said(table - set(tally.operations))}")
    print(f"of the tables, without a generator: {_said(missing)}")
    for words, count in tally.refused.most_common(12):
        print(f"  refused {count:5d}  {words}")
    kinds = Counter(finding.kind for finding in findings)
    counts = ", ".join(f"{kinds[k]} {k}" for k in KINDS if kinds[k]) or "nothing is wrong"
    print(f"{len(findings)} finding{'' if len(findings) == 1 else 's'}: {counts}")
    sorts: dict[str, list[Finding]] = {}
    for finding in sorted(findings, key=lambda one: KINDS.index(one.kind)):
        sorts.setdefault(finding.sort, []).append(finding)
    for same in sorts.values():
        places = ", ".join(str(one.seed) for one in same[:6])
        print(f"  {len(same):4d}  {same[0].kind}: {same[0].what[:200]}  (seeds {places}{', ...' if same[6:] else ''})")


def _tables(only: str | None) -> tuple[set[str], set[str]]:
    """The operations that may be drawn, and those of the tables that may not."""
    if only in ("exact", "hostile"):
        return tiny.taken() if only == "exact" else set(), set()
    table, missing = set(networks.turns()), networks.uncovered()
    if only != "bounds":
        from fuzz.hunting import files  # only these need onnx

        table, missing = table | set(files.turns()), missing | files.uncovered()
    return table, missing


def _said(names: set[str]) -> str:
    return ", ".join(sorted(names)) if 0 < len(names) <= 20 else f"{len(names)} of them" if names else "none"


if __name__ == "__main__":
    main()
