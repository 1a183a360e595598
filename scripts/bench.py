"""Run every benchmark in a short form that needs no data outside the package.

python scripts/bench.py [--out out/bench] [--only NAME ...] [--list]

The output of each benchmark goes to NAME.txt in the folder. summary.md lists the benchmarks with their process time,
which includes the start of Python. The short forms only show that the benchmarks run. The commands for figures in
reports are in docs/performance.md and docs/proofs.md. The exit code is 1 if a benchmark fails.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

SHORT: dict[str, tuple[str, ...]] = {
    "alpha": ("--sharings", "one-pass", "--steps", "5"),
    "certificates": ("--images", "1", "--seconds", "0.5"),
    "cone": (),
    "convolutions": (),
    "differences": ("--images", "2", "--eps", "0.01"),
    "dossier": ("--count", "2"),
    "explain": ("--images", "10", "--separate", "1"),
    "family": ("--images", "2", "--repeats", "1", "--networks", "mnist-mlp", "conv"),
    "gpu": ("--rows", "mnist", "--images-mnist", "20", "--repeats", "1"),
    "ground_truth": ("--out", "{out}/ground-truth", "--trials", "xor", "pattern", "--methods", "saliency", "eva"),
    "hybrid": ("--networks", "efficientnet-lite0", "--samples", "1", "--groups", "3"),
    "kinds": ("--only", "dense network", "one logit", "regression"),
    "large": ("--bounds", "ibp", "--eps", "1e-5"),
    "proofs": ("inputs", "--out", "{out}/proofs", "--images", "1", "--eps", "0.05", "--seconds", "3"),
    "reasons": ("tables", "--images", "3", "--out", "{out}/reasons"),
    "rigorous": ("--images", "1", "--repeat", "1", "--networks", "mnist_mlp", "--methods", "ibp", "backward"),
    "runs": ("--count", "50", "--repeats", "1"),
}

OTHERS: dict[str, str] = {
    "enclosures": "pictures",
    "growth": "some minutes, even with --quick",
    "imagenet": "a picture",
    "marabou": "the extra `solvers`",
    "pooling": "CIFAR-10",
    "probable": "pictures, or MNIST",
    "provable": "MNIST and CIFAR-10",
    "reading": "a folder of ONNX files",
    "solvers": "the extra `solvers`",
    "wide": "networks that it trains first",
}


def command(name: str, out: Path) -> list[str]:
    """Return the command of a short form; it may write files into `out`."""
    words = [word.format(out=out) for word in SHORT[name]]
    return [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), *words]


def run(name: str, out: Path) -> tuple[int, float]:
    """Run a benchmark with its output in the folder; return its exit code and its process time in seconds."""
    environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "PYTHONPATH": str(ROOT / "src")}
    before = _processors()
    with (out / f"{name}.txt").open("w", encoding="utf-8") as file:
        done = subprocess.run(
            command(name, out), cwd=out, env=environment, stdout=file, stderr=subprocess.STDOUT, check=False
        )
    return done.returncode, _processors() - before


def _processors() -> float:
    used = os.times()
    return used.children_user + used.children_system


def summary(rows: dict[str, tuple[int, float]]) -> str:
    """Return a table of the benchmarks that ran, and a list of those that need more than the package."""
    lines = ["| benchmark | | seconds of processors |", "| --- | --- | ---: |"]
    lines += [
        f"| {name} | {'done' if code == 0 else f'failed ({code})'} | {spent:.1f} |"
        for name, (code, spent) in rows.items()
    ]
    return "\n".join([*lines, "", *(f"- not run: {name}, which needs {what}" for name, what in OTHERS.items()), ""])


def main() -> int:
    """Run the short forms and print the progress."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "bench", help="the folder for what is printed")
    parser.add_argument("--only", nargs="+", choices=SHORT, default=list(SHORT), metavar="NAME")
    parser.add_argument("--list", action="store_true", help="show the commands, run none")
    args = parser.parse_args()
    out = args.out.resolve()
    if args.list:
        print("\n".join(" ".join(["python", f"benchmarks/{name}.py", *SHORT[name]]) for name in args.only))
        return 0
    out.mkdir(parents=True, exist_ok=True)
    rows: dict[str, tuple[int, float]] = {}
    for place, name in enumerate(args.only, 1):
        print(f"{place}/{len(args.only)} {name}", end=" ", flush=True)
        started = time.perf_counter()
        rows[name] = run(name, out)
        said = "" if rows[name][0] == 0 else f"failed, see {out / name}.txt: "
        print(f"{said}{time.perf_counter() - started:.0f} s", flush=True)
    (out / "summary.md").write_text(summary(rows), encoding="utf-8")
    print(f"what they printed is in {out}")
    return int(any(code for code, _ in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
