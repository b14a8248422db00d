"""Trains model_repository/tastes/1/model.onnx on guests that are made up: needs scikit-learn and skl2onnx"""

import numpy as np
from skl2onnx import to_onnx
from sklearn.ensemble import GradientBoostingClassifier
from stages import HERE, TASTES, features, table

GUESTS, TREES = 400, 60
random = np.random.default_rng(7)
dishes = list(table("dishes.csv").values())
rows, liked = [], []
for _ in range(GUESTS):
    guest = {taste: str(random.random()) for taste in TASTES} | {"budget": str(random.uniform(400, 2500))}
    seen = features(guest, dishes)
    distance = np.abs(seen[:, :3] - seen[:, 3:6]).mean(axis=1) + 0.2 * seen[:, 7]
    rows.append(seen)
    liked.append(random.random(len(dishes)) < 1 / (1 + np.exp(20 * (distance - 0.4))))
model = GradientBoostingClassifier(n_estimators=TREES, random_state=7).fit(np.concatenate(rows), np.concatenate(liked))
written = to_onnx(model, rows[0][:1], options={"zipmap": False}, target_opset=17)
(HERE / "model_repository" / "tastes" / "1" / "model.onnx").write_bytes(written.SerializeToString())
