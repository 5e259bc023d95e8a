# Nothing outside this folder changes, but pip's cache of downloads: everything is put into .venv and .kafka.
# The oldest supported Python that is here, and runs: a shim of pyenv may have none behind it.
PYTHON ?= $(shell for minor in 11 12 13 14; do python3.$$minor -c '' 2>/dev/null && echo python3.$$minor && break; done)
BIN := .venv/bin
STAMP := .venv/.installed

# Every process of the tests imports all of them: with the byte code that another has left, even where the environment
# says that none is to be left.
unexport PYTHONDONTWRITEBYTECODE
# Threads of linear algebra wait for each other by spinning: with six processes on two cores that doubled the time of
# tests with small matrices.
test: export OPENBLAS_NUM_THREADS = 1
test: export OMP_NUM_THREADS = 1

.PHONY: install demo test lint bench clean

install: $(STAMP)

# Most of what is installed is never imported, and so not compiled; what everybody needs is, here.
$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { echo "Murk needs Python 3.11 to 3.14: install one, or name it: make PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-compile --upgrade pip
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[dev]'
	$(BIN)/python -c 'from murk.learners import *'
	touch $(STAMP)

demo: install
	$(BIN)/murk demo

# More processes than two cores have work for: half of them run tests of services, which wait for most of their time.
test: install
	$(BIN)/python -m tests.compiling
	$(BIN)/python -m pytest -n 6 --dist loadfile --no-loadscope-reorder --durations 40

# Lines and branches of murk/ that the tests run, in build/coverage; those of compiled kernels are not seen.
.PHONY: coverage
coverage: install
	$(BIN)/python -m pytest -n 6 --dist loadfile --cov=murk --cov-branch --cov-report=html:build/coverage \
	  --cov-report=term:skip-covered

# The wheel, the demonstration and the fast tests on each Python of this machine.
.PHONY: matrix
matrix:
	.ci/matrix

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# A Kafka broker on this machine, without containers, in .kafka; needs Java 17 and, the first time, Maven.
.PHONY: kafka
kafka: install
	$(BIN)/python -m deploy.broker

# The tests of topics, rights and transactions with the oldest supported broker, the last 3.x, and the newest.
.PHONY: brokers
brokers: install
	for version in 3.3.2 3.9.1 4.1.0; do MURK_KAFKA_VERSION=$$version MURK_REQUIRE_SERVICES=1 $(BIN)/python -m pytest -q \
		tests/services/test_broker.py tests/services/test_topics.py tests/services/test_faults_transactions.py || exit 1; done

# Devices, learners, monitors and a broker killed again and again: MURK_SOAK_KILLS times (1,000 by default), but no
# longer than MURK_SOAK minutes. Then gateways and shufflers with them: MURK_SOAK_CROWD_KILLS times (500).
.PHONY: soak
soak: install
	$(BIN)/python -m tests.soak
	$(BIN)/python -m tests.soak.crowds

# Hostile inputs by a grammar: MURK_FUZZ of them (10^7 by default).
.PHONY: fuzz
fuzz: install
	$(BIN)/python -m tests.fuzz

# Small mistakes made on purpose in a copy, and which of them no test notices: MURK_MUTANTS of them (100 by default).
.PHONY: mutants
mutants: install
	$(BIN)/python -m tests.mutation

# The reference pages, dashboards and alert rules that are made from the code; a test compares them with these.
.PHONY: generate
generate: install
	$(BIN)/python -m tools.generate

# Reproduce every table and figure of the papers and write docs/reproductions.
.PHONY: reproductions
reproductions: install
	$(BIN)/python -m tools.reproductions

# The documentation site in build/docs, offline; a broken link, a name without its place or its docstring, or anything
# loaded from another host is an error.
.PHONY: docs
docs: install
	$(BIN)/python -m sphinx --fresh-env --fail-on-warning --quiet -d build/doctrees docs build/docs
	@echo "build/docs/index.html"

# What the notebooks of the documentation show, and the gallery's pictures, made anew; tests run them, too.
.PHONY: notebooks
notebooks: install
	$(BIN)/python -m tools.notebooks
	$(BIN)/python -m tools.gallery

# Exact versions and hashes of all that the image holds, for whoever publishes one: the Dockerfile takes the file where
# it is there.
.PHONY: lock
lock: install
	$(BIN)/python -m pip install --quiet 'pip-tools>=7.4'
	$(BIN)/pip-compile --quiet --generate-hashes --strip-extras --no-header --no-emit-index-url --no-emit-trusted-host \
	  --no-emit-options --extra gateway --extra kafka --extra monitor --extra ohttp \
	  --output-file deploy/requirements.txt pyproject.toml

bench: install
	$(BIN)/python -m benchmarks

# Which Python is used.
.PHONY: python
python:
	@echo $(PYTHON)

clean:
	rm -rf .venv .kafka/kafka-* murk-demo dist build

# The whole deployment in containers: compose.yaml.
.PHONY: up down
up:
	@command -v docker >/dev/null || { echo "make up needs Docker with its compose plugin; without it: make kafka, and docs/deploy.md" >&2; exit 1; }
	@docker compose version >/dev/null 2>&1 || { echo "this docker has no compose plugin (docker compose): install it; without it: make kafka, and docs/deploy.md" >&2; exit 1; }
	@docker info >/dev/null 2>&1 || { echo "docker does not answer: is its engine running, and may this user talk to it?" >&2; exit 1; }
	docker compose up --build --detach
	@echo "Live page   http://127.0.0.1:9464/"
	@echo "Grafana     http://127.0.0.1:3000/"
	@echo "Prometheus  http://127.0.0.1:9090/"
	@echo "Kafka       kafka://127.0.0.1:9094/third-child"
	@echo "make down stops all of it; what was learned and spent is kept."

down:
	@command -v docker >/dev/null || { echo "make down needs Docker with its compose plugin" >&2; exit 1; }
	docker compose down
