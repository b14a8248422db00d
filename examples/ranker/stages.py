"""What stands around the model: which dishes it is asked about, what it is told, and in which order they go out"""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
TASTES = "spicy", "sweet", "salty"
MOST_OF_A_KIND = 2
Row = dict[str, str]


def table(name: str) -> dict[str, Row]:
    with (HERE / name).open(encoding="utf-8") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


def candidates(guest: Row, dishes: dict[str, Row]) -> list[Row]:
    """Those that the guest can pay"""
    return [dish for dish in dishes.values() if float(dish["price"]) <= float(guest["budget"])]


def features(guest: Row, dishes: list[Row]) -> np.ndarray:
    """float32 [dishes, 8]: the tastes of both, the price, and the share of the budget that it takes"""
    wanted = [float(guest[taste]) for taste in TASTES]
    rows = [
        [
            *wanted,
            *(float(dish[taste]) for taste in TASTES),
            (price := float(dish["price"])) / 1000,
            price / float(guest["budget"]),
        ]
        for dish in dishes
    ]
    return np.array(rows, np.float32).reshape(len(dishes), len(TASTES) * 2 + 2)


def ranked(dishes: list[Row], scores: np.ndarray, most: int) -> list[tuple[str, float]]:
    """The best first, and not only skewers"""
    chosen, kinds = list[tuple[str, float]](), Counter[str]()
    for place in np.argsort(-scores, kind="stable").tolist():
        kind = dishes[place]["kind"]
        if kinds[kind] < MOST_OF_A_KIND and len(chosen) < most:
            kinds[kind] += 1
            chosen.append((dishes[place]["name"], round(float(scores[place]), 3)))
    return chosen
