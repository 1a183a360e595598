"""Many seeds in a process of their own: a crash of onnxruntime ends that process and is a finding."""

from __future__ import annotations

import multiprocessing
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from fuzz.checker import dossiers, draws, forgeries, judge, networks, properties
from fuzz.checker.trial import Finding, Trial

CAMPAIGNS: dict[str, Callable[[int], Trial]] = {
    "files": lambda seed: judge.judged(draws.drawn(seed)),
    "networks": networks.judged,
    "forgeries": forgeries.judged,
    "dossiers": dossiers.judged,
    "properties": properties.judged,
}
_ENDLESS = 60  # seconds that a seed may take


@dataclass
class Tally:
    """The sum of many trials."""

    counts: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)

    def add(self, trial: Trial) -> None:
        self.counts.update(trial.counts)
        if trial.finding is not None:
            self.findings.append(trial.finding)
        elif trial.note:
            self.notes[trial.note[:70]] += 1


def trials(name: str, seeds: Sequence[int]) -> Iterator[Trial]:
    """One after the other. What ends the process, or does not end, is a finding, and the next seed follows."""
    done, context = 0, multiprocessing.get_context("fork")
    while done < len(seeds):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(name, seeds[done:], theirs), daemon=True)
        process.start()
        theirs.close()
        try:
            while done < len(seeds) and ours.poll(_ENDLESS):
                yield ours.recv()
                done += 1
            why = f"it takes more than {_ENDLESS} seconds"
        except EOFError:
            process.join()
            why = f"the process ends with {process.exitcode}"
        finally:
            process.kill()
            process.join()
        if done < len(seeds):
            yield Trial({"crashed": 1}, why, Finding(seeds[done], "crashed", why, ()))
            done += 1


def _work(name: str, seeds: Sequence[int], out: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that listens ends this one
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for seed in seeds:
        out.send(CAMPAIGNS[name](seed))
