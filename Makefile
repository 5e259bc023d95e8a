# Everything is put into .venv; nothing outside this folder changes.
PYTHON ?= python3.11
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: install demo test lint bench clean

install: $(STAMP)

$(STAMP): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $(STAMP)

demo: install
	$(BIN)/murk demo

test: install
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# A Kafka broker on this machine, without containers; needs Java 17 and, the first time, Maven.
.PHONY: kafka
kafka: install
	$(BIN)/python -m deploy.broker

bench: install
	$(BIN)/python -m benchmarks

clean:
	rm -rf .venv murk-demo dist
