# `make run` and `make test` do their own set-up; they need Python 3.11 or later with venv.

PYTHON ?= python3
BIN := .venv/bin
# One BLAS thread: the products are small, and results are the same everywhere.
export OPENBLAS_NUM_THREADS = 1
# Without cached bytecode, compiling the imports takes half of a process's start-up time.
unexport PYTHONDONTWRITEBYTECODE

# OpenBLAS kernels of other processor types that this machine can run, such as "Haswell Prescott".
CORETYPES ?= Prescott

.PHONY: run serve test test-fast test-kernels test-sensitive test-valkey test-one image-test lint docs site report notebooks bench free-threaded sbom audit audit-reach lock clean delete-data tools

run: .venv/runtime
	$(BIN)/okl demo

serve: .venv/runtime
	$(BIN)/okl serve

# Three processes for two cores (tests/conftest.py); an idle process steals tests from another.
PYTEST := $(BIN)/pytest -n auto --dist worksteal

test: .venv/dev tools
	$(PYTEST)

# tests/selection.py decides which tests are slow.
test-fast: .venv/dev
	$(PYTEST) -m "not slow"

# Tests that depend on the order of summation in products, which varies with the processor type: the cases of
# `make test-fast`, or all of them with `make test-kernels CASES=`. Contract clauses that hold for any order are left out.
# CI runs those of SENSITIVE: forecasts on record, the contract, and what tests of other orders have broken at before.
CASES ?= -m "not slow"
NO_PRODUCTS := $(patsubst %,tests/core/test_%.py,conformal fields house late_benches records rng)
CONTRACT := tests/contract/test_learners.py
KERNEL_TESTS ?= $(filter-out $(NO_PRODUCTS),$(wildcard tests/core/test_*.py)) tests/golden $(CONTRACT)
SENSITIVE := $(patsubst %,tests/core/test_%.py,conditioning forgetting kons linear_packing packing precision regret \
	root_posterior sketched_kons) tests/golden $(CONTRACT)
test-kernels: .venv/dev
	for core in $(CORETYPES); do \
		OPENBLAS_CORETYPE=$$core $(PYTEST) $(CASES) $(KERNEL_TESTS) \
			--deselect $(CONTRACT)::test_contract_of_all_kernels || exit 1; \
	done
test-sensitive: KERNEL_TESTS := $(SENSITIVE)
test-sensitive: test-kernels

# Every test that needs Redis, on Valkey or another compatible server: make test-valkey SERVER=/path/to/redis-server
SERVER ?= valkey-server
test-valkey: .venv/dev tools
	OKL_TEST_REDIS=$(SERVER) $(PYTEST) -m redis

# Builds and runs the image with buildah as root, without an engine. Takes minutes; requirements: tests/tools/image_test.sh
image-test:
	sh tests/tools/image_test.sh

# make test-one T=tests/core/test_kons.py, or T="-k regret tests/core"; with TIMES=20, randomised tests draw 20 times as much.
test-one: .venv/dev tools
	$(BIN)/pytest $(T)

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright

# Generates documentation from the code: configs of the learners, kernels, the picture of the architecture, the page of results.
docs: .venv/dev
	$(BIN)/python -m tests.docs.generated
	$(BIN)/python -m tests.docs.architecture
	$(BIN)/python -m tests.docs.requests

# Builds the documentation as a site in site/. Neither building nor reading it needs the network.
site: .venv/dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Builds the report, errata, theorems, bounds and tables as one document: site/report/index.html and report.pdf.
report: .venv/dev tools
	$(BIN)/python -m tests.docs.report

# Executes the notebooks of docs/ and saves their output.
notebooks: .venv/dev
	$(BIN)/python -m tests.docs.notebooks

bench: .venv/dev tools
	$(BIN)/python -m bench.store
	$(BIN)/python -m bench.http
	$(BIN)/python -m bench.journal
	$(BIN)/python -m bench.papers.pomdr
	$(BIN)/python -m bench.papers.kons
	$(BIN)/python -m bench.papers.aioli
	$(BIN)/python -m bench.papers.metric
	# Last, since it fails if a threshold is exceeded.
	$(BIN)/python -m bench.learners

# The learners in threads of a Python without its global lock, which needs no package of the service: for information. FREE is
# such a Python, by version or path; uv finds it, or downloads it.
FREE ?= 3.14t
free-threaded: .venv/uv
	$(BIN)/uv run --no-project --no-build --python $(FREE) --with "numpy>=2.3,<3" --with "scipy>=1.16,<2" --with "pydantic>=2.13,<3" \
		--with "threadpoolctl>=3.5,<4" python -m bench.free_threaded

# The image's bill of materials in CycloneDX format; and a check for known vulnerabilities, which needs the internet.
sbom: .venv/uv
	$(BIN)/uv tool run --from cyclonedx-bom==7.5.0 cyclonedx-py requirements requirements.lock \
		--pyproject pyproject.toml --output-reproducible --output-format JSON --output-file sbom.json

PIP_AUDIT := $(BIN)/uv tool run pip-audit==2.10.1 --strict --disable-pip
audit: .venv/uv
	$(PIP_AUDIT) --require-hashes --requirement requirements.lock

# Succeeds if the advisory database answers about a package that it knows, whatever it says of it.
audit-reach: .venv/uv
	rm -f .venv/reached.json
	-echo numpy==2.3.0 | $(PIP_AUDIT) --no-deps --requirement /dev/stdin --format json --output .venv/reached.json
	test -e .venv/reached.json

# Redis server, nginx, openssl, curl and Chromium for the tests: those on PATH, or the distribution's packages.
tools:
	@sh tests/tools/install_tools.sh

# The image and a checkout include the dashboard and the support for data frames.
lock: .venv/dev
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --extra dashboard --extra frames pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --group dev --extra dashboard --extra frames -c requirements.lock pyproject.toml -o requirements-dev.lock
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --group build -c requirements-dev.lock -o requirements-build.lock

.venv/uv:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --disable-pip-version-check uv==0.13.9
	touch $@

.venv/runtime: .venv/uv requirements.lock requirements-build.lock pyproject.toml
	$(BIN)/uv pip install -q --require-hashes -r requirements.lock -r requirements-build.lock
	$(BIN)/uv pip install -q --no-deps --no-build-isolation -e .
	touch $@

.venv/dev: .venv/runtime requirements-dev.lock
	$(BIN)/uv pip install -q --require-hashes -r requirements-dev.lock
	touch $@

clean:
	rm -rf .venv .tools .pytest_cache .hypothesis .ruff_cache

# Deletes the sessions of the default store; this cannot be undone.
delete-data:
	@ls -l data
	@printf 'Delete data/ and all sessions in it? Answer yes: '; read -r answer && [ "$$answer" = yes ]
	rm -rf data
