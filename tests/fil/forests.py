"""Small forests of every kind, each with the rows that it is asked and what its own library says of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import lightgbm
import numpy as np
import treelite
import xgboost
from sklearn import ensemble

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

FEATURES = 9
ROWS = 300


def rows(count: int = ROWS, *, missing: bool = False) -> Floats:
    generator = np.random.default_rng(7)
    drawn = generator.standard_normal((count, FEATURES), dtype=np.float32)
    if missing:
        drawn[generator.random(drawn.shape) < 0.2] = np.nan
    return drawn


def categories(count: int = ROWS) -> Floats:
    """Columns of whole numbers, some of them beyond what a model was trained with"""
    generator = np.random.default_rng(8)
    drawn = generator.integers(0, 45, (count, FEATURES)).astype(np.float32)
    drawn[generator.random(drawn.shape) < 0.1] = np.nan
    return drawn


def targets(data: Floats, classes: int) -> NDArray[np.int64]:
    signal = np.nan_to_num(data[:, 0]) + 2 * np.abs(np.nan_to_num(data[:, 3])) - np.nan_to_num(data[:, 5])
    borders = np.quantile(signal, np.linspace(0, 1, classes + 1)[1:-1])
    numbers: NDArray[np.int64] = np.digitize(signal, borders)
    return numbers


@dataclass(frozen=True)
class Trained:
    """A forest with the answers of its own library"""

    save: Callable[[Path], Any]
    file: str
    model_type: str
    rows: Floats
    values: Floats
    """As its library says them: of a classifier the probabilities, where there are two classes of the second"""
    is_classifier: bool
    parameters: dict[str, str] = field(default_factory=dict)

    @property
    def width(self) -> int:
        return 1 if self.values.ndim == 1 else self.values.shape[1]

    def put(self, directory: Path, **parameters: str) -> Path:
        """Into a version of a model; answers the configuration beside it"""
        version = directory / "1"
        version.mkdir(parents=True)
        self.save(version / self.file)
        stated = {
            "model_type": self.model_type,
            "is_classifier": str(self.is_classifier).lower(),
            **self.parameters,
            **parameters,
        }
        text = "".join(
            f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n' for key, value in stated.items()
        )
        config = directory / "config.pbtxt"
        config.write_text(f'backend: "fil"\nmax_batch_size: 4096\n{text}')
        return config


def _xgboost(
    objective: str,
    form: str,
    *,
    classes: int = 0,
    data: Floats | None = None,
    categorical: bool = False,
    **more: object,
) -> Trained:
    data = rows(missing=True) if data is None else data
    signal = targets(data, classes or 40)
    types = ["c" if categorical and index < 4 else "q" for index in range(FEATURES)]
    matrix = xgboost.DMatrix(data, signal, feature_types=types, enable_categorical=categorical)
    options = {"objective": objective, "max_depth": 5, "nthread": 1, **({"num_class": classes} if classes > 2 else {})}
    booster = xgboost.train({**options, **more}, matrix, 12)
    values = booster.predict(matrix)
    file = f"xgboost.{form}"
    is_classifier = objective.startswith(("binary", "multi"))
    parameters = {"model_type": f"xgboost_{form}"}
    return Trained(booster.save_model, file, parameters["model_type"], data, values, is_classifier)


def _lightgbm(
    objective: str,
    *,
    classes: int = 1,
    data: Floats | None = None,
    asked: Floats | None = None,
    categorical: list[int] | None = None,
    **more: object,
) -> Trained:
    data = rows(missing=True) if data is None else data
    signal = targets(data, classes if classes > 1 else 40)
    options = {"objective": objective, "verbosity": -1, "num_threads": 1, "min_data_in_leaf": 5, "seed": 1}
    if classes > 2:
        options["num_class"] = classes
    dataset = lightgbm.Dataset(data, signal, categorical_feature=categorical or "auto")
    booster = lightgbm.train({**options, **more}, dataset, 12)
    data = data if asked is None else asked
    values = booster.predict(data)
    is_classifier = objective.startswith(("binary", "multi"))
    return Trained(booster.save_model, "model.txt", "lightgbm", data, values, is_classifier)


def _sklearn(kind: Callable[..., Any], *, classes: int = 0, **options: object) -> Trained:
    data = rows()
    estimator = kind(random_state=3, **options)
    estimator.fit(data, targets(data, classes or 40))
    if classes:
        values = estimator.predict_proba(data)
        boosted = isinstance(estimator, ensemble.GradientBoostingClassifier)
        # what has its leaves made of probabilities has one for each class; boosted ones have one where there are two
        values = values[:, 1] if classes == 2 and boosted else values
    elif kind is ensemble.IsolationForest:
        values = -estimator.score_samples(data)
    else:
        values = estimator.predict(data)
    model = treelite.sklearn.import_model(estimator)
    return Trained(model.serialize, "checkpoint.tl", "treelite_checkpoint", data, values, bool(classes))


MAKERS: dict[str, Callable[[], Trained]] = {
    "xgboost regressor": lambda: _xgboost("reg:squarederror", "json"),
    "xgboost counts": lambda: _xgboost("count:poisson", "ubj"),
    "xgboost binary": lambda: _xgboost("binary:logistic", "json", classes=2),
    "xgboost of five": lambda: _xgboost("multi:softprob", "ubj", classes=5),
    "xgboost dart": lambda: _xgboost("binary:logistic", "json", classes=2, booster="dart", rate_drop=0.3),
    "xgboost forest": lambda: _xgboost("reg:squarederror", "json", num_parallel_tree=3, subsample=0.5),
    "xgboost categories": lambda: _xgboost(
        "reg:squarederror", "json", data=categories(), categorical=True, max_cat_to_onehot=1
    ),
    "xgboost single categories": lambda: _xgboost(
        "reg:squarederror", "json", data=categories(), categorical=True, max_cat_to_onehot=100
    ),
    "xgboost deep": lambda: _xgboost("reg:squarederror", "json", max_depth=20),
    "xgboost vector leaves": lambda: _xgboost("multi:softprob", "json", classes=3, multi_strategy="multi_output_tree"),
    "lightgbm regressor": lambda: _lightgbm("regression"),
    "lightgbm binary": lambda: _lightgbm("binary", classes=2),
    "lightgbm of four": lambda: _lightgbm("multiclass", classes=4),
    "lightgbm one against all": lambda: _lightgbm("multiclassova", classes=4),
    "lightgbm categories": lambda: _lightgbm(
        "regression", data=categories(), categorical=[0, 1, 2], min_data_per_group=2, cat_smooth=1
    ),
    "lightgbm trained on complete rows": lambda: _lightgbm("regression", data=rows(), asked=rows(missing=True)),
    "lightgbm random forest": lambda: _lightgbm(
        "binary", classes=2, boosting="rf", bagging_freq=1, bagging_fraction=0.5
    ),
    "sklearn random forest": lambda: _sklearn(ensemble.RandomForestRegressor, n_estimators=10),
    "sklearn classifier of two": lambda: _sklearn(ensemble.RandomForestClassifier, classes=2, n_estimators=10),
    "sklearn classifier of three": lambda: _sklearn(ensemble.ExtraTreesClassifier, classes=3, n_estimators=10),
    "sklearn boosted of two": lambda: _sklearn(ensemble.GradientBoostingClassifier, classes=2, n_estimators=10),
    "sklearn boosted of three": lambda: _sklearn(ensemble.GradientBoostingClassifier, classes=3, n_estimators=10),
    "sklearn isolation": lambda: _sklearn(ensemble.IsolationForest, n_estimators=10),
    "sklearn histograms": lambda: _sklearn(ensemble.HistGradientBoostingRegressor, max_iter=10),
}


@cache
def trained(name: str) -> Trained:
    return MAKERS[name]()
