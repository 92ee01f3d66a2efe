# Every target installs what it needs: .venv is made when it is missing and brought up to date when
# pyproject.toml, constraints.txt or the kernels changed. `make help` lists the targets.

PYTHON ?= python3
VENV ?= .venv
# Processes for the tests, each with one thread of torch's: two threads that share a core are slower than one.
WORKERS ?= 2
PYTEST := -m pytest --numprocesses $(WORKERS) --dist loadfile
PY := $(VENV)/bin/python
INSTALLED := $(VENV)/installed
PEERS := $(VENV)/installed-peers
# The suite against the wheel runs in a folder of its own that holds the installed wheel, a copy of the
# tests and nothing else of the package, so no module can come from the checkout by mistake.
SHIPPED := build/shipped
# Both frameworks, on scripted models and on the real one; all of it again would double the time.
SHIPPED_TESTS := tests/test_public_surface.py tests/extractors \
	$(addprefix tests/integrations/test_,langchain.py langchain_structured.py langchain_tools.py \
	llama_index.py llama_index_structured.py llama_index_tools.py) \
	tests/contracts/test_langchain_standard.py::TestUnit \
	tests/contracts/test_langchain_standard.py::TestIntegration::test_stream \
	tests/contracts/test_llama_index.py::test_all_endpoints_agree \
	tests/contracts/test_llama_index.py::test_structured_prediction_in_four_forms

QUALITY := agreement calibration extraction grammar records tool_calls tool_decisions values

.PHONY: help install demo test test-checkout test-wheel check bench bench-quality evaluate clean

help:
	@echo "demo      the dog example (LangChain) and questions over documents (LlamaIndex) on a real model"
	@echo "test      every quick test, then a part of them against the built wheel"
	@echo "check     style, types and layers"
	@echo "bench     how fast it is: one table and a chart, in build/bench (BENCH=--quick: in minutes)"
	@echo "bench-quality  how right it is: the other measurements under benchmarks/"
	@echo "evaluate  the long runs: accuracy sets and soaks"
	@echo "clean     remove .venv, build outputs and caches"

install: $(INSTALLED)

# One pip call, so that the pinned torch is chosen before anything that depends on it.
$(INSTALLED): pyproject.toml constraints.txt $(wildcard chatlocal/engine/runtime/native/*.cpp chatlocal/engine/runtime/native/*.h)
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --constraint constraints.txt --editable '.[test]'
	touch $@

demo: $(INSTALLED)
	$(PY) examples/dog.py
	$(PY) examples/rag.py

test: test-checkout test-wheel

test-checkout: $(INSTALLED)
	OMP_NUM_THREADS=1 $(PY) $(PYTEST)

# `build` makes the sdist and builds the wheel from that, so a file missing from either shows here.
test-wheel: $(INSTALLED)
	rm -rf $(SHIPPED)
	$(PY) -m build --quiet --no-isolation --outdir $(SHIPPED)/dist .
	$(PY) -m pip install --quiet --no-deps --target $(SHIPPED) $(SHIPPED)/dist/*.whl
	cp -R pyproject.toml tests $(SHIPPED)
	cd $(SHIPPED) && OMP_NUM_THREADS=1 $(abspath $(PY)) $(PYTEST) $(SHIPPED_TESTS)

check: $(INSTALLED)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -m pytest tests/test_layers.py

# What is compared with. langchain-huggingface declares an older huggingface-hub than transformers has here, and runs with it.
$(PEERS): $(INSTALLED)
	$(PY) -m pip install --constraint constraints.txt --editable '.[bench]'
	$(PY) -m pip install --no-deps --constraint constraints.txt langchain-huggingface
	touch $@

bench: $(PEERS)
	$(PY) benchmarks/performance.py $(BENCH)

bench-quality: $(PEERS)
	set -e; for name in $(QUALITY); do echo "== $$name"; $(PY) benchmarks/$$name.py; done

# pytest exits with 5 when no test carries the marker.
evaluate: $(INSTALLED)
	$(PY) -m pytest -m evaluate || [ $$? -eq 5 ]

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
