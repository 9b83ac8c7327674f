# Two commands to begin with: `make demo` and `make test`. Each sets up what it needs (see scripts/setup).

CARGO ?= cargo
# What rustup and pip have put there may not be on the path of a bare shell.
export PATH := $(PATH):$(HOME)/.cargo/bin:$(HOME)/.local/bin
FUZZ_SECONDS ?= 60
BIN = $${CARGO_TARGET_DIR:-target}/release/manypath

.PHONY: help demo test check bench gallery fuzz build

help:
	@echo "make demo    two emulated paths, a stock curl and web server, one of the paths cut in the middle"
	@echo "make test    every check and every test, against the Linux kernel too where that is possible"
	@echo "make check   the checks of the source only (format, lints, architecture, documentation, licences)"
	@echo "make bench   goodput and processor time beside the kernel's TCP and Multipath TCP"
	@echo "make gallery every figure of the papers anew, into docs/figures; takes what out/figures has from a run that was stopped"
	@echo "make fuzz    each fuzz target for FUZZ_SECONDS=$(FUZZ_SECONDS) seconds"
	@echo "make build   the release binary, $(BIN)"

build:
	@scripts/setup build
	$(CARGO) build --release --package manypath-cli

demo:
	@scripts/setup demo
	$(CARGO) build --release --package manypath-cli
	$(BIN) demo

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
