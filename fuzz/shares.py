"""Shares of a range of seeds, which several processes divide among them."""

from __future__ import annotations

import argparse


def add_share(parser: argparse.ArgumentParser) -> None:
    """Add the option `--share K/N`."""
    text = "every N-th seed, starting with the K-th"
    parser.add_argument("--share", type=_parse, default=(1, 1), metavar="K/N", help=text)


def seeds_of(parser: argparse.ArgumentParser, first: int, count: int, share: tuple[int, int], what: str) -> range:
    """Return the seeds of a share; stop with an error of the parser if there are none."""
    place, shares = share
    seeds = range(first + place - 1, first + count, shares)
    if not seeds:
        parser.error(f"got {count} {what}, too few for {shares} shares, expected at least {place}")
    return seeds


def _parse(text: str) -> tuple[int, int]:
    k, _, n = text.partition("/")
    if not (k.isdecimal() and n.isdecimal() and 1 <= int(k) <= int(n)):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected K/N with K from 1 to N")
    return int(k), int(n)
