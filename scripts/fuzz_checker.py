"""Fuzz the certificate checker: everything that it accepts must be true.

    python scripts/fuzz_checker.py files --count 100000 --findings out/fuzz  # random and damaged ONNX files
    python scripts/fuzz_checker.py networks --count 10000 --share 1/2        # hostile networks; one of two processes
    python scripts/fuzz_checker.py forgeries --count 8000                    # changed certificates, models and inputs
    python scripts/fuzz_checker.py dossiers --count 2000                     # changed dossiers
    python scripts/fuzz_checker.py properties --count 4000                   # changed certificates of properties

`files`: onnxruntime must run every file that the checker reads, with and without its graph optimisation, and every
value must lie in the checker's float32 interval. `networks`: onnxruntime, float32 in bad orders of summation, and exact
arithmetic must not exceed any claim that the checker derives. `forgeries` and `dossiers`: claims that are still
accepted are compared with the exact overlap. `properties`: accepted answers are compared with linear programs.

A finding states its seed, and `--findings` stores its files in a folder. `--seed S --count 1` reproduces it. The exit
code is 1 if there are findings. Ctrl-C ends the campaign; the counts so far are printed. The last line is JSON. If
share K/N stopped after seed S, `--seed S+N --share 1/N` continues it.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # `fuzz` and `tests` are folders of the repository

from fuzz.checker.campaign import CAMPAIGNS, Tally, trials
from fuzz.shares import add_share, seeds_of

_PROGRESS_SECONDS = 30.0  # time between two lines of progress


def main() -> None:
    """Run a campaign and print the findings."""
    args = _arguments()
    tally, done, start = Tally(), 0, time.monotonic()
    shown = start
    for signal_number in (signal.SIGINT, signal.SIGTERM):  # also if a shell ignores them in the background
        signal.signal(signal_number, _stop)
    try:
        for trial in trials(args.campaign, args.seeds):
            tally.add(trial)
            done += 1
            if trial.finding is not None:
                print(f"\n{trial.finding}\n", flush=True)
                if args.findings:
                    trial.finding.save(args.findings)
            now = time.monotonic()
            if now - shown > _PROGRESS_SECONDS:
                shown = now
                print(f"[{now - start:.0f} s] seed {args.seeds[done - 1]}: {_counts(tally)}", flush=True)
    except KeyboardInterrupt:
        print(f"stopped before seed {args.seeds[min(done, len(args.seeds) - 1)]}")
    for note, count in tally.notes.most_common(12):
        print(f"  {count:6d}  {note}")
    seconds = round(time.monotonic() - start)
    tried = {"first": args.seeds[0], "last": args.seeds[max(0, done - 1)], "every": args.seeds.step, "seconds": seconds}
    print(json.dumps({"campaign": args.campaign, **tried, **tally.counts, "findings": len(tally.findings)}))
    sys.exit(1 if tally.findings else 0)


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("campaign", choices=list(CAMPAIGNS))
    parser.add_argument("--count", type=int, default=1000, help="number of seeds")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    add_share(parser)
    parser.add_argument("--findings", type=Path, metavar="FOLDER", help="store the files of findings in this folder")
    args = parser.parse_args()
    args.seeds = seeds_of(parser, args.seed, args.count, args.share, "seeds")
    return args


def _counts(tally: Tally) -> str:
    return ", ".join(f"{count} {name}" for name, count in tally.counts.items()) + f", {len(tally.findings)} findings"


if __name__ == "__main__":
    main()
