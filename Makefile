# `make run` starts the gateway; `make check` must pass before a merge. `make help` lists all targets.
.DEFAULT_GOAL := help
.PHONY: help run unit test check clients conformance faults every-byte long-file many-chats floods markdown attack api-fuzz mutants first-run soak systemd bench man wheel format hooks new-platform lock clean run-environment dev-environment
BIN := .venv/bin
NAME = # of a new platform, given on the command line only
export PYTHON ARGS NAME

help:
	@echo "make run       install into .venv (once) and start the gateway   (ARGS: for holdfast run)"
	@echo "make unit      run the tests of single modules, without daemon or browser (ARGS: for pytest)"
	@echo "make test      install the test dependencies and run all tests   (ARGS: for pytest)"
	@echo "make check     check format, lint, types and import contracts, and run all tests with coverage"
	@echo "make faults    kill the daemon a hundred times and check every message (ARGS: --kills N --seed N)"
	@echo "make every-byte cut a recorded answer of each protocol after every byte, in three ways"
	@echo "make long-file write a 60 KB file over a connection that cuts every answer (ARGS: --seeds N)"
	@echo "make first-run install the wheel into a new environment, set it up, count steps and seconds to the first reply,"
	@echo "               and run the commands of docs/install.md with pipx, uv and pip"
	@echo "make wheel     build dist/holdfast-VERSION-py3-none-any.whl, for pip, pipx and uv"
	@echo "make man       rewrite docs/commands.md and the man page from the commands"
	@echo "make bench     measure the decoder, many streams at once, and the gateway beside a bare minimum program;"
	@echo "               needs an idle machine                              (ARGS: --quick, --only NAME)"
	@echo "make many-chats run 20 answers at once on each platform, in real time (ARGS: --size N --seconds N --rounds N)"
	@echo "make conformance run the client scenarios of the MCP conformance suite (ARGS: SCENARIO...)"
	@echo "make clients   install third-party clients, model servers and MCP servers, and use each with the gateway"
	@echo "                                                                 (ARGS: for pytest, such as -k webui)"
	@echo "make floods    flood the daemon with strangers, commands and text while a person in another chat asks"
	@echo "                                                                 (ARGS: --only NAME --seconds N)"
	@echo "make markdown  judge with TDLib and others, then show 5,000 texts and all prefixes of difficult ones on each platform (ARGS: --texts N)"
	@echo "make attack    try every attack of the suite, public lists and floods, and print what held (ARGS: for pytest)"
	@echo "make api-fuzz  send 10,000 valid and unusual requests to the API, and check them against its OpenAPI document"
	@echo "                                                                 (ARGS: --requests N --seed N)"
	@echo "make mutants   change the modules that decide about safety, and check that a test notices each change"
	@echo "                                                                 (ARGS: PART-OF-PATH, -j N)"
	@echo "make soak      simulate a day of use in ten minutes; needs an idle machine (ARGS: --people N --turns N --seconds N)"
	@echo "make systemd   test the service under a real systemd, on a machine booted inside this one; needs root"
	@echo "make format    format the code and fix the lint errors that the linter can fix"
	@echo "make hooks     check format, lint, types and import contracts before every commit"
	@echo "make new-platform NAME=pigeon  write an adapter, a fake server and contract tests that pass"
	@echo "make lock      rewrite requirements/*.lock                       (ARGS=--upgrade for newer versions)"
	@echo "make clean     remove .venv, caches and build results"

run: run-environment
	@exec $(BIN)/holdfast run $(ARGS)

unit: dev-environment
	@scripts/tests unit $(BIN)/python -m pytest

test: dev-environment
	@scripts/system-packages
	@scripts/node-packages
	@scripts/tests all $(BIN)/python -m pytest

# Cheapest checks first, so that most failures appear early.
check: dev-environment
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	@scripts/system-packages
	@scripts/node-packages
	$(BIN)/coverage erase
	@scripts/tests all $(BIN)/coverage run -m pytest; tests=$$?; \
	$(BIN)/coverage combine --quiet && $(BIN)/coverage report --skip-covered --skip-empty && exit $$tests

faults: dev-environment
	$(BIN)/python -m tests.faults.kills $(ARGS)
	$(BIN)/python -m tests.faults.journal_kills $(ARGS)

every-byte: dev-environment
	$(BIN)/python -m tests.faults.cuts $(ARGS)

long-file: dev-environment
	$(BIN)/python -m tests.faults.long_file $(ARGS)

many-chats: dev-environment
	$(BIN)/python -m tests.faults.many_chats $(ARGS)

conformance: dev-environment
	$(BIN)/python -m tests.conformance $(ARGS)

clients: dev-environment
	$(BIN)/python -m pytest tests/clients $(ARGS)

floods: dev-environment
	$(BIN)/python -m tests.faults.floods $(ARGS)

markdown: dev-environment
	@scripts/node-packages
	$(BIN)/python -m tests.faults.markdown_judges
	$(BIN)/python -m tests.faults.markdown $(ARGS)

attack: dev-environment
	@scripts/system-packages
	@command -v slowhttptest >/dev/null && command -v h2load >/dev/null || scripts/apt-install slowhttptest nghttp2-client
	$(BIN)/python -m pytest tests/attack/test_attack.py tests/attack/long_attack.py $(ARGS)

soak: dev-environment
	$(BIN)/python -m tests.faults.soak $(ARGS)

api-fuzz: dev-environment
	$(BIN)/python -m tests.faults.api_fuzz $(ARGS)
	$(BIN)/python -m tests.faults.api_schema

mutants: dev-environment
	$(BIN)/python -m tests.mutants $(ARGS)

first-run: dev-environment
	$(BIN)/python -m tests.faults.first_run $(ARGS)
	$(BIN)/python -m tests.faults.installing

systemd: dev-environment
	$(BIN)/python -m tests.faults.real_systemd

bench: dev-environment
	$(BIN)/python -m tests.bench.decoder
	$(BIN)/python -m tests.bench.streams
	$(BIN)/python -m tests.bench.api_streams
	$(BIN)/python -m tests.bench.table $(ARGS)

wheel: run-environment
	@rm -rf dist
	@$(BIN)/python -m hatchling build -t wheel

man: dev-environment
	@$(BIN)/python -m scripts.command_docs

format: dev-environment
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

hooks: dev-environment
	$(BIN)/prek install

new-platform: dev-environment
	@$(BIN)/python -m scripts.new_platform "$$NAME"

lock:
	scripts/lock $(ARGS)

clean:
	rm -rf .venv tests/node/node_modules tests/node/markdown/node_modules build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache htmlcov .coverage .coverage.*
	find agent gateway platforms sessions tests scripts -name __pycache__ -prune -exec rm -rf {} +

run-environment:
	@scripts/environment run

dev-environment:
	@scripts/environment dev
