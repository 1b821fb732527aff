# Every target sets up what it needs in .venv first: the only thing a machine must have is
# Python 3.11 or later. Set-up runs once, and again when pyproject.toml or constraints.txt change.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
# Each library that dpglm is compared with has an environment of its own.
PEERS := diffprivlib dp_xgboost interpret jax opacus
PEER_VENVS := .venv-peers
# pip is told to print errors only; `make PIP_VERBOSITY= demo` shows all it does.
PIP_VERBOSITY ?= -qq
PIP_INSTALL := $(RUN) -m pip install --disable-pip-version-check $(PIP_VERBOSITY) -c constraints.txt
# Test processes share the cores, so none of them may start its own pool of threads. They, and the
# processes that they start, keep compiled modules, whatever the environment says.
JOBS ?= 2
PYTEST := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= \
	$(RUN) -m pytest --dist worksteal
# Options for the command that a target runs, as in `make demo ARGS=--help`.
ARGS ?=

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test docs laws slow lint format bars peers speed noise planning guidance table wide additive edges coverage groups evaluation exploration rates papers audit lock clean

help: ## show this list
	@grep -hE '^[a-z]+:.*## ' Makefile | sed -E 's/^([a-z]+):.*## /\1|/' \
		| while IFS='|' read -r name text; do printf '  make %-8s %s\n' "$$name" "$$text"; done

demo: $(VENV)/.installed-demo ## do a whole private study of real data and show what it costs
	@$(RUN) -m examples.demo $(ARGS)

test: $(VENV)/.installed-dev ## run all tests but the slow ones, on two processes
	$(PYTEST) -n $(JOBS) $(ARGS)

docs: $(VENV)/.installed-dev ## build the documentation site into build/site/html; a broken link fails
	@OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(RUN) docs/_site/build.py -j $(JOBS) $(ARGS)

slow: $(VENV)/.installed-spark ## run the slow tests
	$(PYTEST) -n $(JOBS) -m slow $(ARGS) || [ $$? -eq 5 ]  # 5: there is none

laws: $(VENV)/.installed-dev ## try the laws of privacy on many more examples than the tests do
	$(PYTEST) -n $(JOBS) tests/laws tests/oracle/test_exact_sums.py --hypothesis-profile=long --system-noise $(ARGS)

lint: $(VENV)/.installed-dev ## check style, formatting and types
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy --strict src

format: $(VENV)/.installed-dev ## rewrite the code in the project's style
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

bars: $(VENV)/.installed-dev ## measure accuracy and speed against the project's bars
	$(RUN) -m benchmarks.bars $(ARGS)

peers: $(VENV)/.installed-dev $(PEERS:%=$(PEER_VENVS)/%/.installed) ## compare with other libraries: rewrites docs/evidence/peers.md
	$(RUN) -m benchmarks.peers --environments $(PEER_VENVS) $(ARGS)

speed: $(VENV)/.installed-dev $(PEERS:%=$(PEER_VENVS)/%/.installed) ## measure speed beside other libraries: rewrites docs/evidence/speed.md
	$(RUN) -m benchmarks.step_cost --environments $(PEER_VENVS) $(ARGS)

noise: $(VENV)/.installed-dev ## measure noise and its low bits: rewrites a table of docs/evidence/speed.md
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(RUN) -m benchmarks.noise $(ARGS)

planning: $(VENV)/.installed-dev ## measure how long plans take: rewrites a table of docs/evidence/speed.md
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(RUN) -m benchmarks.planning $(ARGS)

guidance: $(VENV)/.installed-dev ## test what plans say of accuracy on 40 problems: rewrites a table of docs/evidence/coverage.md
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(RUN) -m benchmarks.guidance $(ARGS)

table: $(VENV)/.installed-dev ## compare all solvers on four problems: rewrites docs/evidence/comparison.md
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(RUN) -m experiments.solver_table $(ARGS)

wide: $(VENV)/.installed-dev ## compare the default on one-hot tables of 300 to 1000 columns: rewrites docs/evidence/comparison.md
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(RUN) -m experiments.wide_tables $(ARGS)

additive: $(VENV)/.installed-dev ## compare additive models with linear ones on development rows: rewrites docs/evidence/additive.md
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(RUN) -m experiments.additive $(ARGS)

edges: $(VENV)/.installed-dev ## try default settings at the edges: rewrites docs/evidence/edges.md
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(RUN) -m experiments.edges $(ARGS)

groups: $(VENV)/.installed-dev ## measure persons with several rows: rewrites tables of docs/evidence/coverage.md (some minutes)
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(RUN) -m experiments.groups $(ARGS)

coverage: $(VENV)/.installed-dev ## measure confidence intervals: rewrites tables of docs/evidence/coverage.md (some half an hour)
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(RUN) -m experiments.coverage $(ARGS)

evaluation: $(VENV)/.installed-dev ## measure private evaluations: renews tables of docs/evidence/coverage.md (some ten minutes)
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(RUN) -m experiments.evaluation $(ARGS)

exploration: $(VENV)/.installed-dev ## measure private descriptions: renews tables of docs/evidence/coverage.md (some five minutes)
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(RUN) -m experiments.exploration $(ARGS)

papers: $(VENV)/.installed-dev ## measure all that docs/evidence/papers.md lists, and renew it (an hour of one core)
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(RUN) -m experiments.papers_page $(ARGS)

rates: $(VENV)/.installed-dev ## measure the theorems' rates and draw them into the docs
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(RUN) -m experiments.rates $(ARGS)

audit: $(VENV)/.installed-dev ## attack everything, and planted bugs: rewrites docs/evidence/audit_table.md
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(RUN) -m experiments.audits --jobs $(JOBS) $(ARGS)

lock: ## write constraints.txt anew with the newest versions that fit
	rm -rf $(VENV)
	$(MAKE) $(VENV)/.created
	$(RUN) -m pip install --disable-pip-version-check $(PIP_VERBOSITY) 'hatchling>=1.27,<2' editables
	$(RUN) -m pip install --disable-pip-version-check $(PIP_VERBOSITY) --no-build-isolation \
		-e '.[all,dev,spark]'
	sed -n '/^#/p' constraints.txt > constraints.new
	$(RUN) -m pip freeze --exclude-editable | tr 'A-Z_' 'a-z-' | LC_ALL=C sort >> constraints.new
	mv constraints.new constraints.txt

clean: ## remove everything that make has made, .venv included
	rm -rf $(VENV) $(PEER_VENVS) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# The demo needs no development tools, so its set-up is the smaller one; the larger one covers both.
BUILT_FROM := pyproject.toml constraints.txt hatch_build.py $(wildcard src/dpglm/data/compiled/_*.[ch])
$(VENV)/.installed-demo: $(VENV)/.created $(BUILT_FROM)
	@echo "Installing dpglm into $(VENV) (once; a minute or two) ..."
	@$(PIP_INSTALL) hatchling editables
	@$(PIP_INSTALL) --no-build-isolation -e '.[all]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.created $(BUILT_FROM)
	@echo "Installing dpglm and its development tools into $(VENV) (once; a minute or two) ..."
	@$(PIP_INSTALL) hatchling editables
	@$(PIP_INSTALL) --no-compile --no-build-isolation -e '.[all,dev]'  # compiled when imported
	@touch $(VENV)/.installed-demo $@

# Spark is large, and only slow tests use it.
$(VENV)/.installed-spark: $(VENV)/.installed-dev
	@$(PIP_INSTALL) --no-build-isolation -e '.[spark]'
	@touch $@

$(PEERS:%=$(PEER_VENVS)/%/.installed): $(PEER_VENVS)/%/.installed: $(PEER_VENVS)/%/.created \
		benchmarks/peers/%.txt
	@echo "Installing $* into $(@D) (once; a minute or two) ..."
	@$(@D)/bin/python -m pip install --disable-pip-version-check $(PIP_VERBOSITY) \
		-r benchmarks/peers/$*.txt
	@touch $@

# Debian's python3 comes without ensurepip, which venv needs: virtualenv brings its own pip.
$(VENV)/.created $(PEERS:%=$(PEER_VENVS)/%/.created):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "dpglm needs Python 3.11 or later, and '$(PYTHON)' is not." >&2; \
		echo "On Debian 12 or later: apt-get install python3 python3-venv" >&2; \
		echo "If it has another name: make PYTHON=python3.12 ..." >&2; \
		exit 1; }
	@rm -rf $(@D)
	@$(PYTHON) -m venv $(@D) >/dev/null 2>&1 \
		|| { rm -rf $(@D); $(PYTHON) -m virtualenv -q $(@D) 2>/dev/null; } \
		|| { rm -rf $(@D); \
			$(PYTHON) -m pip install --disable-pip-version-check -qq \
				--target $(@D)/virtualenv virtualenv 2>/dev/null \
			&& PYTHONPATH=$(@D)/virtualenv $(PYTHON) -m virtualenv -q $(@D); } \
		|| { rm -rf $(@D); [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
			&& echo "Installing Debian's python3-venv ..." \
			&& { apt-get update -qq; apt-get install -y -qq python3-venv >/dev/null; } \
			&& $(PYTHON) -m venv $(@D) >/dev/null; } \
		|| { rm -rf $(@D); \
			echo "'$(PYTHON)' can make no virtual environment (its venv module lacks ensurepip)." >&2; \
			echo "On Debian or Ubuntu: apt-get install python3-venv" >&2; \
			exit 1; }
	@touch $@
