"""Sufficient sets: sizes, seconds and undecided groups, image by image, and checks of their claims by other means.

python benchmarks/reasons.py published --networks FOLDER --data FOLDER [--groups pixels cells7] [--images 100]
python benchmarks/reasons.py mlp       [--data FOLDER] [--eps 0.02 0.05] [--images 30]
python benchmarks/reasons.py resnet    --onnx FILE --data FOLDER [--groups cells8 pixels] [--images 10]
python benchmarks/reasons.py cifar     --data FOLDER [--network cifar_cnn ...] [--groups cells8] [--device cuda]
python benchmarks/reasons.py tables    [--network breast_cancer wine] [--eps 0.02 0.05] [--images 40]
python benchmarks/reasons.py check     --networks FOLDER --data FOLDER [--images 10]
python benchmarks/reasons.py orders    --networks FOLDER --data FOLDER [--start 30000] [--images 20]
python benchmarks/reasons.py schools   --networks FOLDER --data FOLDER [--start 30000] [--images 30]
python benchmarks/reasons.py shift     --networks FOLDER --data FOLDER [--images 100]
python benchmarks/reasons.py included  --networks FOLDER --data FOLDER
python benchmarks/reasons.py plot      [--networks FOLDER --data FOLDER]
    each with [--out docs/results/reasons] [--limit 60] [--processor-time] [--processes 1] [--summary]

Each image is a row of NAME.csv in the folder --out. Rows that the file contains are skipped: the same command continues
a stopped run. Each process has one thread. `seconds` are wall time and `cpu_s` processor time of one image alone, after
one image that is not measured. With --processor-time the limit counts processor seconds too, for a machine that is used
by others. --summary prints the means so far.

included: which of the first 100 training images `Backward` leaves open, by radius, beside the published lists.
published: the two networks and the images of FAME's published table (VeriX+ and FAME), as NETWORK.onnx and NETWORK.csv
    with the columns index, label, verix_size, verix_s, fame_size, fame_s, attack_lower_bound in --networks. `index`
    counts in MNIST's training images, ε = 0.05, domain [0, 1].
mlp: the packaged MLP on MNIST's test images, or on the packaged digits without --data.
resnet: VNN-COMP's resnet_2b on CIFAR-10's test images, ε = 1/255 in pixels.
cifar: packaged CIFAR-10 networks at the radii that they were trained for; cifar_cnn, which was not, at 0.004.
tables: scikit-learn's data with 16 hidden units; the radius is a share of each column's range.
check: attacks and HiGHS's mixed-integer solver repeat the claims about published images.
orders: sizes by the order in which groups are freed, on training images that are in no published table.
schools: sizes by the order of maps, and how many of a map's first groups are necessary.
shift: whether the size tells other data from MNIST's test images, beside the maximum softmax probability.
plot: our sizes against the published ones, from the file of `published`; with data also sets of three images.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.reason_sets import cases, figures, measure, orders, rows, second_check, shift, summaries
    from benchmarks.reason_sets.rows import Row
else:
    from reason_sets import (
        cases,
        figures,
        measure,
        orders,
        rows,
        second_check,
        shift,
        summaries,
    )  # a script imports from its own folder
    from reason_sets.rows import Row

RADII = {"cifar_cnn": 0.004, "cifar_provable": 2 / 255, "cifar_vit": 2 / 255}
DRAWN = (30_009, 30_017, 30_022)  # training images of the figure
UNPUBLISHED = 30_000  # the first training image for orders and maps; the published tables have images below 100
SCHOOL_CASES = (("published", "mnist-10x2", 0.05), ("published", "mnist-cnn", 0.05), ("mlp", "mnist_mlp", 0.02))
OUT = Path(__file__).resolve().parents[1] / "docs" / "results" / "reasons"
_FILES = ("networks", "data", "onnx")  # columns of a task that are paths: not stored


def published(args: argparse.Namespace) -> list[Row]:
    """Return a task for each image of the published tables."""
    return [
        {**_task(args, "published", network, groups, eps), "smallest_s": args.smallest, "index": int(line["index"])}
        for groups in args.groups or ["pixels"]
        for eps in args.eps or [0.05]
        for network in args.network or cases.PUBLISHED
        for line in cases.published_rows(args.networks, network)[: args.images]
        if args.index is None or int(line["index"]) in args.index
    ]


def included(args: argparse.Namespace) -> list[Row]:
    """Return a task for each radius."""
    radii = args.eps or [
        0.038,
        0.039,
        0.04,
        0.0405,
        0.041,
        0.0415,
        0.042,
        0.043,
        0.044,
        0.045,
        0.046,
        0.048,
        0.05,
        0.052,
    ]
    return [
        {"case": "published", "network": network, "eps": eps}
        for network in args.network or cases.PUBLISHED
        for eps in radii
    ]


def mlp(args: argparse.Namespace) -> list[Row]:
    """Return tasks for the packaged MLP."""
    return _grid(args, "mlp", ["mnist_mlp"], args.groups or ["pixels"], args.eps or [0.02, 0.05])


def resnet(args: argparse.Namespace) -> list[Row]:
    """Return tasks for resnet_2b."""
    return _grid(args, "resnet", ["resnet_2b"], args.groups or ["cells8", "pixels"], args.eps or [1 / 255])


def cifar(args: argparse.Namespace) -> list[Row]:
    """Return tasks for packaged networks, each at its own radius."""
    return [
        task
        for network in args.network or RADII
        for task in _grid(args, "cifar", [network], args.groups or ["cells8"], args.eps or [RADII[network]])
    ]


def tables(args: argparse.Namespace) -> list[Row]:
    """Return tasks for rows of tables."""
    return _grid(args, "tables", args.network or ["breast_cancer", "wine"], ["columns"], args.eps or [0.02, 0.05])


def check(args: argparse.Namespace) -> list[Row]:
    """Return a task for each of the first images of the published tables."""
    return [
        {**_task(args, "published", network, "pixels", 0.05), "index": int(line["index"])}
        for network in args.network or cases.PUBLISHED
        for line in cases.published_rows(args.networks, network)[: args.images]
    ]


def orders_of(args: argparse.Namespace) -> list[Row]:
    """Return a task for each order and training image."""
    return [
        {**_task(args, "published", network, "pixels", 0.05), "order": name, "index": index}
        for network in args.network or cases.PUBLISHED
        for index in range(args.start or UNPUBLISHED, (args.start or UNPUBLISHED) + args.images)
        for name in orders.ORDERS
    ]


def schools(args: argparse.Namespace) -> list[Row]:
    """Return a task for each map and training image; exact scores are for cells only."""
    return [
        {**_task(args, case, network, groups, eps), "top": top, "split": "train", "map": name, "index": index}
        for groups, top in (("pixels", 10), ("cells7", 5))
        if groups in (args.groups or ["pixels", "cells7"])
        for case, network, eps in SCHOOL_CASES
        if network in (args.network or [network])
        for index in range(args.start or UNPUBLISHED, (args.start or UNPUBLISHED) + args.images)
        for name in orders.MAPS
        if groups != "pixels" or name != "EVA, exact"
    ]


def shifts(args: argparse.Namespace) -> list[Row]:
    """Return a task for each picture of each source."""
    return [
        {**_task(args, "published", network, "pixels", 0.05), "source": source, "index": index}
        for network in args.network or cases.PUBLISHED
        for source in shift.SOURCES
        for index in range(args.start, args.start + args.images)
    ]


def _grid(
    args: argparse.Namespace, case: str, networks: Sequence[str], groups: Sequence[str], eps: Sequence[float]
) -> list[Row]:
    return [
        {**_task(args, case, network, group, radius), "smallest_s": args.smallest, "index": index}
        for network in networks
        for group in groups
        for radius in eps
        for index in range(args.start, args.start + args.images)
    ]


def _task(args: argparse.Namespace, case: str, network: str, groups: str, eps: float) -> Row:
    task = {"case": case, "network": network, "groups": groups, "eps": eps, "limit_s": args.limit}
    clock: Row = {"clock": "processor"} if args.processor_time else {}
    return {**task, "device": args.device, **clock}


@dataclass(frozen=True)
class Command:
    """One kind of work: its tasks, the function that does one, its summary, and the usual number of images."""

    tasks: Callable[[argparse.Namespace], list[Row]]
    images: int
    work: Callable[[Row], Row | list[Row]] = measure.measure
    show: Callable[[Sequence[dict[str, str]]], str] = summaries.sizes


COMMANDS = {
    "published": Command(published, 100, show=summaries.published),
    "included": Command(included, 0, measure.included, summaries.markdown),
    "mlp": Command(mlp, 30),
    "resnet": Command(resnet, 10),
    "cifar": Command(cifar, 10),
    "tables": Command(tables, 40),
    "orders": Command(orders_of, 20, orders.order, summaries.orders),
    "schools": Command(schools, 30, orders.school, summaries.schools),
    "shift": Command(shifts, 100, shift.shift, shift.show),
    "check": Command(check, 10, second_check.second_check, summaries.checks),
}


class _Work:
    """Does a task whose files are given apart, since they are no columns of its row."""

    def __init__(self, command: str, files: Row) -> None:
        self.command, self.files = command, files

    def __call__(self, task: Row) -> Row | list[Row]:
        row = COMMANDS[self.command].work({**task, **self.files})
        if self.command != "published" or isinstance(row, list):
            return row
        lines = cases.published_rows(Path(str(self.files["networks"])), str(task["network"]))
        line = next(line for line in lines if line["index"] == str(task["index"]))
        return {**row, **{name: line[name] for name in cases.PUBLISHED_COLUMNS}}


def main() -> None:
    """Do the missing work of one kind, or print the means so far."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    subparsers = parser.add_subparsers(dest="command", required=True)
    for name, command in COMMANDS.items():
        _options(subparsers.add_parser(name), command.images)
    _options(subparsers.add_parser("plot"), 0)
    args = parser.parse_args()
    if args.command == "plot":
        figures.scatter(rows.read(args.out / "published.csv"), args.out / "published.png")
        if args.networks and args.data:
            task = {
                **_task(args, "published", "mnist-cnn", "pixels", 0.05),
                "networks": args.networks,
                "data": args.data,
            }
            figures.pictures([{**task, "index": index} for index in DRAWN], args.out / "sets.png")
        return
    path, command = args.out / f"{args.command}.csv", COMMANDS[args.command]
    if not args.summary:
        files: Row = {**{name: str(getattr(args, name) or "") for name in _FILES}, "part": args.part}
        rows.compute(path, command.tasks(args), _Work(args.command, files), args.processes)
    text = command.show(rows.read(path))
    print(text)
    if args.page:
        summaries.put(args.page, args.command, text)


def _options(parser: argparse.ArgumentParser, images: int) -> None:
    parser.add_argument("--networks", type=Path, help="folder with the published networks and tables")
    parser.add_argument("--data", type=Path, help="folder with MNIST's or CIFAR-10's files")
    parser.add_argument("--part", action="store_true", help="CIFAR-10's files hold a part of the data set")
    parser.add_argument("--onnx", type=Path, help="resnet_2b's file")
    parser.add_argument("--network", nargs="+", help="only these networks")
    parser.add_argument("--groups", nargs="+", help="pixels, or cells7 for a grid of 7 x 7")
    parser.add_argument("--eps", type=float, nargs="+")
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--images", type=int, default=images)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for each image")
    parser.add_argument("--processor-time", action="store_true", help="limits count processor seconds")
    parser.add_argument("--smallest", type=float, default=0.0, help="further seconds for the least size")
    parser.add_argument("--index", type=int, nargs="+", help="only these published images")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--page", type=Path, help="put the table into this page, after <!-- reasons COMMAND -->")
    parser.add_argument("--summary", action="store_true")


if __name__ == "__main__":
    main()
