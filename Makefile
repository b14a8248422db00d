# The commands that developers and CI run. `make help` lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
NATIVE := native/crates/bindings
NATIVE_SOURCES := $(shell find native -name target -prune -o -type f \( -name '*.rs' -o -name '*.toml' -o -name 'Cargo.lock' -o -name '*.pyi' \) -print)
BOOTSTRAPPED := $(VENV)/.bootstrapped
SYNCED := $(VENV)/.synced
BUILT := $(VENV)/.native
REPOSITORY ?= model_repository
ARGS ?=
PYTEST_ARGS ?=
TIMED := .ci/timed
CARGO := cd native && PYO3_PYTHON=$(CURDIR)/$(BIN)/python cargo
# the bindings are tested from Python: a test binary of theirs would have to link libpython
RUST_TESTS := --locked --workspace --exclude kushi-bindings
ONNXRUNTIME = $(firstword $(wildcard $(CURDIR)/$(VENV)/lib/python3*/site-packages/onnxruntime/capi/libonnxruntime.so*))

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup serve test test-rust test-rebuild test-python test-unit lint lint-python lint-rust bench docs fmt lock train clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(BUILT) ## Make .venv: the locked packages, then the native module (rebuilt when its sources changed)

$(BOOTSTRAPPED): requirements/bootstrap.txt
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bootstrap.txt
	@touch $@

$(SYNCED): requirements/dev.txt $(BOOTSTRAPPED)
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(UV) pip sync --quiet --compile-bytecode --require-hashes requirements/dev.txt
	@rm -f $(BUILT)
	@touch $@

$(BUILT): $(SYNCED) $(NATIVE_SOURCES)
	cd $(NATIVE) && VIRTUAL_ENV=$(CURDIR)/$(VENV) PATH="$(CURDIR)/$(BIN):$$PATH" maturin develop --uv --release --locked
	@touch $@

serve: setup ## Serve model_repository/ (ARGS="--http-port=9000" for flags)
	$(BIN)/python -m runners serve --model-repository $(REPOSITORY) $(ARGS)

test: setup lint test-rust test-python ## Everything that proves the product: lint, types, Rust and Python tests

test-rust: setup ## The tests of native/
	@$(TIMED) test-rust $(MAKE) --no-print-directory cargo-tests
	@$(TIMED) model-check $(MAKE) --no-print-directory model-check

# every interleaving of the hand-over between threads
model-check:
	RUSTFLAGS="--cfg loom" && export RUSTFLAGS && $(CARGO) test --quiet --locked --release -p kushi-core --lib --target-dir target/loom handover

.PHONY: cargo-tests model-check
cargo-tests:
	export ORT_DYLIB_PATH=$(ONNXRUNTIME); \
	if cargo nextest --version >/dev/null 2>&1; \
	then $(CARGO) nextest run $(RUST_TESTS) && cargo test --doc --quiet $(RUST_TESTS); \
	else $(CARGO) test --quiet $(RUST_TESTS); fi

test-rebuild: setup ## Change a native source, run make, look for the change from Python
	@$(TIMED) test-rebuild .ci/test-rebuild

test-python: setup ## The tests of tests/ (PYTEST_ARGS="-k name" for some)
	@$(TIMED) test-python $(BIN)/pytest $(PYTEST_ARGS)

test-unit: setup ## The quick Python tests alone
	@$(TIMED) test-unit $(BIN)/pytest tests/unit $(PYTEST_ARGS)

lint: lint-python lint-rust ## Format, lint, types, import laws

lint-python: setup
	@$(TIMED) ruff $(BIN)/ruff check .
	@$(TIMED) ruff-format $(BIN)/ruff format --check .
	@$(TIMED) mypy $(BIN)/mypy
	@$(TIMED) import-linter $(BIN)/lint-imports --no-cache
	@$(TIMED) reference $(BIN)/python -m docs.generate --check

lint-rust: setup
	@$(TIMED) rustfmt sh -c '$(CARGO) fmt --all --check'
	@$(TIMED) clippy sh -c '$(CARGO) clippy --quiet --locked --workspace --all-targets -- -D warnings'
	@$(TIMED) crate-law $(BIN)/python -m tests.crate_law

fmt: setup ## Format everything
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format --quiet .
	$(CARGO) fmt --all

docs: setup ## Write docs/reference/ again, from the code
	$(BIN)/python -m docs.generate

bench: setup ## Run the benchmarks (ARGS="--quick" for a look)
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(UV) pip install --quiet --require-hashes -r requirements/bench.txt
	$(BIN)/python -m benchmarks $(ARGS)

train: ## Train the models of model_repository/ in an environment of their own, .venv-train
	$(PYTHON) -m venv .venv-train
	.venv-train/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bootstrap.txt
	VIRTUAL_ENV=$(CURDIR)/.venv-train .venv-train/bin/uv pip install --quiet --require-hashes -r requirements/train.txt
	.venv-train/bin/python -m training.digits

lock: $(BOOTSTRAPPED) ## Write requirements/*.txt again (ARGS="--upgrade" for newer versions)
	UV=$(UV) requirements/lock.sh $(ARGS)

clean: ## Remove the environment and all build outputs
	rm -rf $(VENV) native/target dist build
