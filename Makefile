# `make serve` installs what is missing and serves the default model; `make test` does the same and runs every test.
# PYTHON picks the interpreter that .venv is made of, ARGS is passed on: make serve ARGS="--port 9000".
PYTHON ?= python3
ARGS ?=
SHELL := /bin/sh
VENV := $(CURDIR)/.venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip
# Commands see the environment's cmake and ninja first.
export PATH := $(BIN):$(PATH)

# Only the lock decides versions; the package itself is then installed without a look at any index.
EDITABLE := $(PIP) install --quiet --no-build-isolation --no-deps --editable .

.PHONY: help install install-test serve test test-fast judges test-sanitize fuzz stress soak lint format docs wheel cuda clean

help:  ## Show these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

# The .pth file: an editable install runs cmake when it is imported. .venv/bin/python must find it without `activate`,
# and the program itself rather than the Python script that starts it (27 ms instead of 170 ms at each import).
$(VENV)/made:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 10) else "Octavo needs Python 3.10 or newer, this is " + sys.version.split()[0] + "; name another with make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	@site=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && \
	  echo "import os; os.environ['PATH'] = '$$site/cmake/data/bin:$(BIN):' + os.environ.get('PATH', os.defpath)" > "$$site/0_venv_on_path.pth"
	@touch $@

$(VENV)/installed: requirements.lock pyproject.toml $(VENV)/made
	@echo "Installing the locked packages into .venv"
	$(PIP) install --quiet --requirement requirements.lock
	@echo "Compiling the engine: 2 to 5 minutes on two CPUs, without a word meanwhile"
	$(EDITABLE)
	@touch $@

$(VENV)/installed-test: requirements-test.lock $(VENV)/installed
	@echo "Installing what the tests need into .venv (some hundred MB)"
	$(PIP) install --quiet --requirement requirements.lock --requirement requirements-test.lock
	@echo "Compiling the CUDA kernels for the host, on which their tests run them: some minutes more"
	$(EDITABLE) --config-settings=cmake.define.OCTAVO_CUDA_EMULATOR=ON
	@touch $@

install: $(VENV)/installed  ## Make .venv, install the locked versions, build the engine
install-test: $(VENV)/installed-test

serve: install  ## Serve the default model on 127.0.0.1:8000
	$(BIN)/octavo serve $(ARGS)

test: install-test  ## Run every test
	$(BIN)/python -m pytest $(ARGS)

test-fast: install-test  ## Run most tests: two minutes on two cores
	$(BIN)/python -m pytest -m "not slow" $(ARGS)

# What others wrote to try the server with: clients, checkers, load. Tests of tests/judges are skipped without them.
judges: $(VENV)/made  ## Install the judges that tests/judges runs, into .judges
	$(PYTHON) -m venv .judges/py
	.judges/py/bin/python -m pip install --quiet --requirement tests/judges/requirements.lock
	cp tests/judges/package.json tests/judges/package-lock.json .judges/
	npm ci --silent --prefix .judges

test-sanitize: install-test  ## Run every test with the engine under AddressSanitizer and UBSan
	tests/sanitize.sh $(ARGS)

# Model files: libFuzzer, guided by coverage, where there is clang++; else made-up files alone.
FUZZ_INPUTS ?= 100000
FUZZ_CXX ?= $(shell command -v clang++ || command -v $(CXX))
fuzz: install-test  ## Feed made-up model files, bodies and templates to what reads them (FUZZ_INPUTS=100000)
	$(BIN)/cmake -G Ninja -S . -B build/fuzz -DCMAKE_BUILD_TYPE=Release -DOCTAVO_FUZZ=ON -DOCTAVO_SANITIZE=ON \
	  -DCMAKE_CXX_COMPILER=$(FUZZ_CXX) \
	  -DPython_EXECUTABLE=$(BIN)/python -Dnanobind_DIR="$$($(BIN)/python -m nanobind --cmake_dir)"
	$(BIN)/cmake --build build/fuzz --target fuzz_gguf fuzz_safetensors
	for target in gguf safetensors; do \
	  mkdir -p build/fuzz/corpus_$$target; \
	  ASAN_OPTIONS=max_allocation_size_mb=64 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
	    build/fuzz/tests/fuzz/fuzz_$$target -runs=$(FUZZ_INPUTS) -max_len=65536 -timeout=20 \
	    -artifact_prefix=build/fuzz/$$target- build/fuzz/corpus_$$target || exit 1; \
	done
	$(PIP) install --quiet --no-deps atheris==3.0.0  # no part of the lock: it has no wheels for some systems
	for target in bodies templates; do \
	  $(BIN)/python tests/fuzz/fuzz_$$target.py -runs=$(FUZZ_INPUTS) -max_len=2000 -timeout=20 -artifact_prefix=build/fuzz/$$target- \
	    build/fuzz/corpus_$$target || exit 1; \
	done

STRESS_SECONDS ?= 60
stress: install-test  ## Submit, fork, cancel and read from many threads under ThreadSanitizer (STRESS_SECONDS=60)
	$(BIN)/cmake -G Ninja -S . -B build/stress -DCMAKE_BUILD_TYPE=Release -DOCTAVO_STRESS=ON -DOCTAVO_SANITIZE_THREADS=ON \
	  -DPython_EXECUTABLE=$(BIN)/python -Dnanobind_DIR="$$($(BIN)/python -m nanobind --cmake_dir)"
	$(BIN)/cmake --build build/stress --target stress
	TSAN_OPTIONS=halt_on_error=0:second_deadlock_stack=1 build/stress/tests/stress/stress $(STRESS_SECONDS)

SOAK_SECONDS ?= 1800
soak: install-test  ## Load a server for half an hour and compare every answer bit by bit (SOAK_SECONDS=1800)
	$(BIN)/octavo bench soak --seconds $(SOAK_SECONDS) --folder build/soak --out build/soak.json

# The stub of the extension is made by the build; type checking reads it beside the package's own files.
lint: install-test  ## Check formatting, lint rules and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	git ls-files '*.cpp' '*.h' | xargs $(BIN)/clang-format --dry-run --Werror
	cp -r "$$($(BIN)/python -c 'import octavo._engine as e, pathlib; print(pathlib.Path(e.__file__).parent / "_engine")')" python/octavo/
	$(BIN)/mypy

format: install-test  ## Rewrite files to the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	git ls-files '*.cpp' '*.h' | xargs $(BIN)/clang-format -i

docs: install-test  ## Write the flag tables of docs/configuration.md anew
	$(BIN)/python tests/project/flag_tables.py

wheel: install-test  ## Build dist/*.whl and check it with auditwheel
	rm -rf build/unchecked && mkdir -p build/unchecked dist
	$(PIP) wheel --quiet --no-build-isolation --no-deps --wheel-dir build/unchecked .
	$(BIN)/auditwheel repair --wheel-dir dist build/unchecked/*.whl

# With nvcc where there is one, else with the nvidia-* wheels, which are then installed into .venv. The GPU itself is not
# needed. CUDA_ARCHITECTURES=90 compiles for one kind alone.
CUDA_ARCHITECTURES ?=
cuda: install  ## Build the CUDA backend for sm_80, sm_89, sm_90 and PTX, and put it into .venv
	@command -v nvcc || test -x /usr/local/cuda/bin/nvcc || $(PIP) install --quiet --requirement requirements-cuda.lock
	$(EDITABLE) --config-settings=cmake.define.OCTAVO_CUDA=on --config-settings=cmake.define.OCTAVO_CUDA_ARCHITECTURES="$(CUDA_ARCHITECTURES)"

clean:  ## Remove what was built; keep .venv
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -rf $(VENV)/installed python/octavo/_engine
