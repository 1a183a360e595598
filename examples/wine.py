"""Wine: 13 measurements, three growers and a small network; one column is a category.

    python examples/wine.py [--rows 20] [--out out/wine]

The intensity of the colour is one of three names: light, medium or deep. It is a one-hot block of three columns. In the
ball it may be any of the three, and nothing between them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import proofmap as pm

RADIUS_SHARE = 0.05  # the radius of each measurement, relative to its range
INTENSITY = "color_intensity"


def main(rows: int = 20, out: Path = Path("out/wine")) -> pm.Explanation:
    """Train, explain `rows` test rows, and write two pictures."""
    data = load_wine()
    numbers = [name for name in data.feature_names if name != INTENSITY]
    intensity = data.data[:, data.feature_names.index(INTENSITY)]
    names = [*numbers, "colour_light", "colour_medium", "colour_deep"]
    kept = data.data[:, [data.feature_names.index(name) for name in numbers]]
    table = np.concatenate([kept, np.eye(3)[np.digitize(intensity, [3.5, 6.0])]], axis=1)
    train, test, labels, truth = train_test_split(table, data.target, test_size=0.4, random_state=0)
    classifier = make_pipeline(
        StandardScaler(), MLPClassifier((12,), solver="lbfgs", alpha=1.0, max_iter=500, random_state=0)
    )
    classifier.fit(train, labels)
    print(f"accuracy on {len(test)} test rows: {classifier.score(test, truth):.3f}")

    domain = pm.Domain.from_data(train, names=names).including(test)
    print(f"{domain}: {', '.join(domain.group_names())}")
    ball = pm.Ball(domain.eps(RADIUS_SHARE), domain=domain)
    model = pm.from_sklearn(classifier)
    found = pm.EVA(model, ball, groups=domain.groups, bounds=pm.bounds.Exact(seconds=5)).explain(test[:rows])
    gap = float((found.overlap.full - found.overlap.full_lower).max())
    print(f"{int(found.proven.sum())} of {rows} decisions are proven; the bounds of AO are at most {gap:.1e} apart")
    held = found.overlap.frozen[:, domain.group_names().index("colour")]
    print(f"{int((held < 0).sum())} are proven if the colour may not change")
    bounded = pm.overlap(model, test[:rows], ball, bounds=pm.bounds.Backward())
    print(f"backward bounds alone prove {int((bounded.full < 0).sum())}")

    out.mkdir(parents=True, exist_ok=True)
    found[:2].plot(columns=domain.names, class_names=data.target_names).savefig(out / "rows.png")
    found.summary(columns=domain.names).savefig(out / "summary.png")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("out/wine"))
    main(**vars(parser.parse_args()))
