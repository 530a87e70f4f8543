"""Fit the calibration of `app.match` (FIT_*) on real interests, and show it fold by fold.

    python -m benchmarks.fit_relevance ../shared

The labels are reading lists: positives only. Each fold is fitted on the other folds' interests and
weeks, so the printed losses are those of unseen interests; the last line is fitted on everything.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

sys.path.insert(0, str(Path(sys.argv[1]) / "eval"))
import relevance as evaluation  # type: ignore[import-not-found]

from app import corpus, match
from benchmarks.relevance import view


def samples(shared: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Features (n, 3), labels, weights (each interest counts the same), interest numbers."""
    papers = evaluation.load_papers(shared / "data")
    interests = json.loads((shared / "data/topics/interests.json").read_text())
    statistics = corpus.Statistics.of((p["title"], p["abstract"]) for p in papers)
    index = match.Index([view(n, p) for n, p in enumerate(papers)], statistics)
    rows, labels, weights, groups = [], [], [], []
    for number, interest in enumerate(interests):
        wanted = set(interest["relevant"])
        keywords = [match.parse(text) for text in interest["keywords"]]
        pool = [n for n, p in enumerate(papers) if p["listed_on"] <= interest["complete_until"]]
        best = {}
        for query in keywords:
            for n in set(pool) & set(index._possible(query)):
                features = index.features(index._entries[n], query)
                if n not in best or features[0] > best[n][0]:
                    best[n] = features
        for n, features in best.items():
            rows.append(features)
            labels.append(papers[n]["id"] in wanted)
            weights.append(1 / len(best))
            groups.append(number)
    return np.array(rows), np.array(labels, float), np.array(weights), np.array(groups)


def fit(features: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Logistic regression with a little ridge: [coefficients…, offset]."""
    design = np.column_stack([features, np.ones(len(features))])

    def loss(beta: np.ndarray) -> tuple[float, np.ndarray]:
        z = design @ beta
        p = 1 / (1 + np.exp(-z))
        value = (weights * (np.logaddexp(0, z) - labels * z)).sum() + 1e-3 * (beta[:-1] ** 2).sum()
        return value, design.T @ (weights * (p - labels)) + 2e-3 * np.append(beta[:-1], 0)

    return minimize(loss, np.zeros(design.shape[1]), jac=True, method="L-BFGS-B").x


def main() -> None:
    features, labels, weights, groups = samples(Path(sys.argv[1]))
    print(f"{len(labels)} pairs, {labels.mean():.3%} labelled relevant")
    for fold in range(4):
        inside = groups % 4 != fold
        beta = fit(features[inside], labels[inside], weights[inside])
        z = np.column_stack([features[~inside], np.ones((~inside).sum())]) @ beta
        loss = np.average(np.logaddexp(0, z) - labels[~inside] * z, weights=weights[~inside])
        rate = np.average(labels[~inside], weights=weights[~inside])
        base = -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate))
        print(f"fold {fold}: {np.round(beta, 3)}  loss {loss:.4f} against {base:.4f} of the base rate")
    print("all:   ", np.round(fit(features, labels, weights), 3))


if __name__ == "__main__":
    main()
