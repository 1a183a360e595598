# make test    set up .venv (once) and run the tests
# make slow    the same set-up, then the tests that take long: clusters, killed runs, random networks, exports, damaged files
# make whole   the same set-up, then all of what the others test in part: every layer, every ONNX model, every bit of a proof
# make docs    the same set-up, then the documentation as pages, into out/site
# make bench   the same set-up, then every benchmark in a short form, into out/bench
# make release the same set-up, then wheel and source archive, into dist, and the wheel tried in an empty environment
# make demo    the same set-up, then proofmap demo
# make lint    the same set-up, then ruff, mypy and pyright
# make clean   remove .venv and everything generated
#
# PYTHON=...   the interpreter to build .venv with (3.10 or newer)
# WORKERS=...  test processes, each with one torch thread

SHELL := /bin/bash
PYTHON ?= python3
WORKERS ?= 2

VENV := .venv
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip --disable-pip-version-check --log $(VENV)/pip.log
# oneDNN without AMX: some virtual machines announce these instructions and then refuse them, which ends the process.
# Bytecode is written even where the environment says otherwise: the tests start many processes that read the package.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 $(RUN) -m pytest -n $(WORKERS) --dist worksteal
STAMP := $(VENV)/installed
EMPTY := out/empty

# The stamp holds the folder it was made in: an editable install points there, so a moved or copied tree starts again.
ifneq "$(shell cat $(STAMP) 2>/dev/null)" "$(CURDIR)"
.PHONY: $(STAMP)
endif

.PHONY: test slow whole docs bench release demo lint clean

test: $(STAMP)
	$(PYTEST) -m "not slow and not whole" $(ARGS)

slow: $(STAMP)
	$(PYTEST) -m "slow and not whole" $(ARGS)

whole: $(STAMP)
	$(PYTEST) -m whole $(ARGS)

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict --quiet $(ARGS)

bench: $(STAMP)
	$(RUN) scripts/bench.py $(ARGS)

# An environment without pip, which only what the wheel asks for is installed into, by the pip of the other one.
release: $(STAMP)
	$(RUN) scripts/release.py
	@rm -rf $(EMPTY) $(VENV)/pip.log
	$(RUN) -m venv --without-pip $(EMPTY)
	@$(call install,-c constraints.txt --no-compile dist/*.whl,$(EMPTY)/bin/python)
	$(EMPTY)/bin/python -I scripts/try_release.py
	@rm -rf $(EMPTY)

demo: $(STAMP)
	$(VENV)/bin/proofmap demo $(ARGS)

lint: $(STAMP)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(RUN) scripts/check_types.py

clean:
	rm -rf $(VENV) .venv-quantus .venv-metrics build dist out .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
	find src tests fuzz benchmarks scripts -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# torch comes first and alone: its exact version is then in place before anything that depends on it is resolved.
# setuptools comes with it, so that the package itself is built without a second, hidden environment.
$(STAMP): pyproject.toml constraints.txt
	@command -v "$(PYTHON)" >/dev/null 2>&1 || { \
	  echo "error: no '$(PYTHON)' was found: install Python 3.10 or newer, or name one with 'make PYTHON=/path/to/python3'." >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || { \
	  echo "error: '$(PYTHON)' is $$("$(PYTHON)" --version 2>&1), expected Python 3.10 or newer: name one with 'make PYTHON=/path/to/python3'." >&2; exit 1; }
	@"$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "error: '$(PYTHON)' cannot make environments, its venv or ensurepip module is missing: install it (on Debian and Ubuntu the package python3-venv)." >&2; exit 1; }
	@rm -f $(STAMP) $(VENV)/pip.log
	"$(PYTHON)" -m venv $(VENV)
	@$(call install,-c constraints.txt torch setuptools)
	@$(call install,-c constraints.txt --no-build-isolation -e '.[dev]')
	@printf '%s\n' "$(CURDIR)" > $(STAMP)

# $(1): what to install; $(2): the interpreter to install it for, where that is not the one of .venv
UNREACHABLE := NewConnectionError|ConnectTimeoutError|ReadTimeoutError|NameResolutionError|ProxyError|SSLError|Connection refused|Connection reset

define install
echo "pip install $(1)"; $(PIP) $(if $(2),--python $(2)) install --quiet $(1) || { \
  if grep -qE '$(UNREACHABLE)' $(VENV)/pip.log; then \
    echo "error: the package index cannot be reached: check the network, or set PIP_INDEX_URL or PIP_FIND_LINKS to one that can, and run make again." >&2; \
  else \
    echo "error: pip could not install the dependencies: the lines above and $(VENV)/pip.log say why." >&2; \
  fi; exit 1; }
endef
