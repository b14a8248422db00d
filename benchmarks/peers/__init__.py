"""One API, `POST /predict` with `{"x": [128 numbers]}`, written in the ways that benchmarks/service.py compares."""
