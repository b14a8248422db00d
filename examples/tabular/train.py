"""Trains model_repository/wines/1/model.onnx: needs scikit-learn and skl2onnx"""

import json
from pathlib import Path

from skl2onnx import to_onnx
from sklearn.datasets import load_wine
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.model_selection import train_test_split

HERE = Path(__file__).parent
TREES = 40

wines = load_wine()
measured = wines.data.astype("float32")
known, unseen, growers, of_unseen = train_test_split(measured, wines.target, test_size=0.25, random_state=7)
model = GradientBoostingClassifier(n_estimators=TREES, max_depth=2, random_state=7).fit(known, growers)
print("right:", model.score(unseen, of_unseen))

# without `zipmap` the shares are a tensor, not a list of dictionaries
written = to_onnx(model, known[:1], options={"zipmap": False}, target_opset=17)
(HERE / "model_repository" / "wines" / "1" / "model.onnx").write_bytes(written.SerializeToString())
names = [name.replace("/", "_") for name in wines.feature_names]
example = dict(zip(names, (round(float(value), 2) for value in unseen[0]), strict=True))
(HERE / "wine.json").write_text(json.dumps({"wines": [example]}) + "\n")
