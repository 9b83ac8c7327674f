# Two commands to begin with: `make demo` and `make test`. Each sets up what it needs (see scripts/setup).

CARGO ?= cargo
# What rustup and pip have put there may not be on the path of a bare shell.
export PATH := $(PATH):$(HOME)/.cargo/bin:$(HOME)/.local/bin
FUZZ_SECONDS ?= 60
TARGET = $${CARGO_TARGET_DIR:-target}
BIN = $(TARGET)/release/manypath

.PHONY: help demo test check bench gallery fuzz build

help:
	@echo "make demo    two emulated paths, a stock curl and web server, one of the paths cut in the middle"
	@echo "make test    every check and every test, against the Linux kernel too where that is possible"
	@echo "make check   the checks of the source only (format, lints, architecture, documentation, licences)"
	@echo "make bench   goodput and processor time beside the kernel's TCP and Multipath TCP"
	@echo "make gallery every figure of the papers anew, into docs/figures; takes what out/figures has from a run that was stopped"
	@echo "make fuzz    each fuzz target for FUZZ_SECONDS=$(FUZZ_SECONDS) seconds"
	@echo "make build   the release binary, $(BIN), and beside it what debuggers need"

# The line tables go into a file of their own, which debuggers, perf and the program's backtraces find beside it.
build:
	@scripts/setup build
	$(CARGO) build --release --package manypath-cli
	objcopy --only-keep-debug $(BIN) $(BIN).debug
	objcopy --strip-debug --add-gnu-debuglink=$(BIN).debug $(BIN)

# Built without the release's optimisation of the whole program, which takes minutes.
demo:
	@scripts/setup demo
	$(CARGO) build --profile demo --package manypath-cli
	$(TARGET)/demo/manypath demo

test:
	@scripts/setup test
	$(CARGO) xtask check --strict

check:
	@scripts/setup build
	$(CARGO) xtask check --strict --skip test

bench:
	@scripts/setup bench
	$(CARGO) build --release --package manypath-cli
	$(BIN) lab bench

gallery:
	@scripts/setup bench
	$(CARGO) build --release --package manypath-cli
	$(BIN) lab figure all --quick --out out/figures
	cp out/figures/index.html out/figures/nsdi-4a.png docs/figures/

fuzz:
	@scripts/setup fuzz
	scripts/fuzz $(FUZZ_SECONDS)
