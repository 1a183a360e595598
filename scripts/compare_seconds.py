"""Compare the speed of two checkouts: seconds of the same tasks, as ratios.

python scripts/compare_seconds.py OLD NEW [--repeats 3] [--only NAME ...] Each task calls public names only, on packaged
data, with one thread. The checkouts take turns, and each measurement is a new process. The least process time counts:
other work on the machine does not influence it. Tasks that a checkout cannot do are listed. A ratio above 1 means that
the new checkout is faster; nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Times = dict[str, "float | str"]  # seconds, or the name of the error


def works() -> dict[str, Callable[[], Any]]:
    """Return the tasks by name, for the imported package."""
    import torch

    import proofmap as pm

    torch.set_num_threads(1)
    x, mlp, ball = pm.data.digits()[0], pm.zoo.mnist_mlp(), pm.Ball(0.015, domain=(0.0, 1.0))
    small, cells = pm.Ball(0.005, domain=(0.0, 1.0)), pm.groups.grid(12)
    noise = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))

    def eva(count: int, **settings: Any) -> Any:
        return pm.EVA(mlp, ball, **{"groups": cells, "progress": False, "rigorous": False, **settings}).explain(
            x[:count]
        )

    return {
        "shared": lambda: eva(16),
        "one-pass, pixels": lambda: eva(16, sharing="one-pass", groups=pm.groups.pixels()),
        "separate": lambda: eva(1, sharing="separate"),
        "alpha": lambda: eva(1, sharing="one-pass", bounds=pm.bounds.Alpha(10)),
        "exact": lambda: pm.overlap(
            mlp, x[:1], small, groups=cells, bounds=pm.bounds.Exact(seconds=20), rigorous=False
        ),
        "convolutions": lambda: pm.overlap(
            pm.zoo.cifar_cnn(), noise, pm.Ball(2e-4, domain=(0.0, 1.0)), groups=pm.groups.grid(4), rigorous=False
        ),
        "rigorous": lambda: pm.overlap(mlp, x[:16], ball, groups=cells, rigorous=True),
        "radius": lambda: pm.certified_radius(mlp, x[:8], domain=(0.0, 1.0), rigorous=False),
        "certificate": lambda: eva(1).certificate(),
        "compare": lambda: pm.compare(mlp, x[:8], ["saliency", "occlusion"], ["deletion"], progress=False),
    }


def measured(only: list[str]) -> Times:
    """Return the process time of each task; the first call does not count."""
    found: Times = {}
    for name, work in works().items():
        if name not in only:
            continue
        try:
            work()
            started = time.process_time()
            work()
            found[name] = time.process_time() - started
        except Exception as error:  # an older checkout may lack a name, a setting or a rule
            found[name] = type(error).__name__
    return found


def of(checkout: Path, only: list[str]) -> Times:
    """Run `measured` in a new process with the package of that checkout."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, str(Path(__file__).resolve()), "--record", "-", "-", "--only", *only]
    done = subprocess.run(words, env=environment, cwd=checkout, check=True, capture_output=True, text=True)
    answer = json.loads(done.stdout.splitlines()[-1])
    package = Path(answer["package"])
    if not package.is_relative_to(checkout):
        raise SystemExit(f"got the package {package}, expected one in {checkout}: name a checkout with a src folder")
    times: Times = answer["times"]
    return times


def least(every: list[Times], name: str) -> float | str:
    """Return the least seconds, or the error."""
    said = [times[name] for times in every]
    return min((one for one in said if isinstance(one, float)), default=next(iter(map(str, said)), ""))


def row(name: str, old: float | str, new: float | str) -> str:
    """Return a line with both times and old / new."""
    ratio = f"{old / max(new, 1e-9):.2f}" if isinstance(old, float) and isinstance(new, float) else ""
    cells = [one if isinstance(one, str) else f"{one:.3f}" for one in (old, new)]
    return f"{name:<18} {cells[0]:>16} {cells[1]:>16} {ratio:>7}"


def main() -> None:
    """Measure both in turns, and print a line for each task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="pieces of work; by default all")
    parser.add_argument("--record", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.record:
        import proofmap

        print(json.dumps({"package": proofmap.__file__, "times": measured(args.only)}))
        return
    names = list(works())
    unknown = sorted(set(args.only or ()) - set(names))
    if unknown:
        parser.error(f"no work is named {', '.join(unknown)}: expected some of {', '.join(names)}")
    if args.repeats < 1:
        parser.error(f"--repeats is {args.repeats}, expected at least 1")
    only = args.only or names
    old: list[Times] = []
    new: list[Times] = []
    for k in range(args.repeats):
        for checkout, times in ((args.old.resolve(), old), (args.new.resolve(), new)):
            print(f"round {k + 1} of {args.repeats}: {checkout}", file=sys.stderr, flush=True)
            times.append(of(checkout, only))
    print(f"{'':<18} {'old, s':>16} {'new, s':>16} {'faster':>7}")
    for name in only:
        print(row(name, least(old, name), least(new, name)))


if __name__ == "__main__":
    main()
