"""Breast cancer: 30 measurements of a biopsy and a small network, whose scores are bounded from both sides.

python examples/breast_cancer.py [--rows 60] [--out out/breast_cancer]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import proofmap as pm

RADIUS_SHARE = 0.02  # the radius of each measurement, relative to its range


def main(rows: int = 60, out: Path = Path("out/breast_cancer")) -> pm.Explanation:
    """Train, explain `rows` test rows, and write two pictures."""
    data = load_breast_cancer()
    train, test, labels, truth = train_test_split(data.data, data.target, test_size=0.3, random_state=0)
    classifier = make_pipeline(
        StandardScaler(), MLPClassifier((16,), solver="lbfgs", alpha=1.0, max_iter=500, random_state=0)
    )
    classifier.fit(train, labels)
    print(f"accuracy on {len(test)} test rows: {classifier.score(test, truth):.3f}")

    domain = pm.Domain.from_data(train, names=data.feature_names).including(test)
    ball = pm.Ball(domain.eps(RADIUS_SHARE), domain=domain)
    eva = pm.EVA(pm.from_sklearn(classifier), ball, bounds=pm.bounds.Exact(seconds=5))
    found = eva.explain(test[:rows])
    gap = float((found.overlap.full - found.overlap.full_lower).max())
    print(f"{int(found.proven.sum())} of {rows} decisions are proven; the bounds of AO are at most {gap:.1e} apart")

    out.mkdir(parents=True, exist_ok=True)
    closest = int(
        found.overlap.full.where(found.proven, -torch.inf).argmax()
    )  # the proven decision with the smallest margin
    found[closest].plot(columns=domain.names, class_names=data.target_names).savefig(out / "row.png")
    found.summary(columns=domain.names).savefig(out / "summary.png")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=60)
    parser.add_argument("--out", type=Path, default=Path("out/breast_cancer"))
    main(**vars(parser.parse_args()))
