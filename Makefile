# Two commands: `make demo` and `make test`. Both install what is missing from Debian's packages; they need a Rust
# toolchain, and root or sudo.

SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
CARGO ?= cargo
export DEBIAN_FRONTEND = noninteractive

# What the programs are built with: libzmq with CURVE, a C compiler for SQLite.
BUILD_PACKAGES := libzmq3-dev pkg-config gcc libc6-dev
# What the tests use besides: a PostgreSQL server, Python for the decoder of the protocol's description, MUNGE, and a link
# between network namespaces.
TEST_PACKAGES := postgresql-15 python3 munge iproute2

# What the tests under a real Slurm use besides.
SLURM_PACKAGES := slurmctld slurmd slurm-client munge mpich libmpich-dev

.PHONY: demo test test-slurm test-oar slurm-experiment build release lint doc quick-experiments fuzz test-qemu check-nix deps test-deps slurm-deps clean

demo: release
	$(SUDO) deploy/demo/run.sh target/release target/demo

test: test-deps
	$(CARGO) build --workspace --locked
	$(CARGO) test --workspace --locked --no-fail-fast

# A cluster of two nodes on this machine, as root, with cgroups of version 1.
SLURM_TEST := POLYMETER_REQUIRE="$$POLYMETER_REQUIRE,slurm" $(CARGO) test --locked --workspace --test e2e -- slurm::
test-slurm: slurm-deps
	$(CARGO) build --workspace --locked
	$(SLURM_TEST) --test-threads 1

# Jobs in the cgroups that OAR's own script makes. It is taken out of Debian's package: nothing of OAR is installed.
OAR_SCRIPT := target/oar/usr/share/oar/oar-server/job_resource_manager_cgroups.pl
test-oar: test-deps $(OAR_SCRIPT)
	$(CARGO) build --workspace --locked
	POLYMETER_REQUIRE="$$POLYMETER_REQUIRE,oar" POLYMETER_OAR_SCRIPT=$(CURDIR)/$(OAR_SCRIPT) \
	    $(CARGO) test --locked --workspace --test e2e -- oar::

$(OAR_SCRIPT):
	@mkdir -p target/oar
	cd target/oar && { apt-get -qq download oar-server || { $(SUDO) apt-get -qq update && apt-get -qq download oar-server; }; }
	cd target/oar && dpkg-deb -x oar-server_*.deb .

# What a prolog costs, and how much of what a job used its last sample has.
slurm-experiment: slurm-deps
	$(CARGO) build --workspace --locked
	$(SLURM_TEST)what_it_costs_and_what_it_sees --ignored --nocapture

slurm-deps: test-deps
	@deploy/install-packages.sh $(SLURM_PACKAGES)

build: deps
	$(CARGO) build --workspace --locked

release: deps
	$(CARGO) build --release --locked -p polymeter-agent -p polymeter-collector -p polymeter-cli

lint: deps
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

doc: deps
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

# Every experiment and every bench once, short: that they work, not what they measure. So they are built as the tests are.
# Nothing is installed for a comparison with Prometheus, which is made where there is one.
quick-experiments: test-deps
	$(CARGO) build --locked --workspace
	target/debug/wire
	target/debug/curve --quick
	target/debug/ingest --quick
	target/debug/scale --quick $$(command -v prometheus > /dev/null && echo --prometheus)
	$(SUDO) target/debug/gather --quick
	$(SUDO) target/debug/jitter --quick
	$(SUDO) target/debug/overhead --quick
	$(SUDO) target/debug/control --quick
	$(SUDO) target/debug/jobs --quick
	$(SUDO) target/debug/outage --quick
	$(SUDO) target/debug/sustain --quick
	$(CARGO) test --locked --workspace --bench codec --bench gathering --bench storing

# Every fuzz target for FUZZ_SECONDS; two run at a time.
FUZZ_SECONDS ?= 60
fuzz: deps
	@deploy/install-packages.sh g++
	fuzz/run.sh $(FUZZ_SECONDS)

# In a machine of its own, whose cgroups are of version 2 alone. Not part of `make test`: it takes a minute or two.
test-qemu: release
	@deploy/install-packages.sh qemu-system-x86 busybox-static e2fsprogs python3
	e2e/guest/run.sh target/release target/guest

# What can be said of the Nix files where nixpkgs cannot be fetched. NIXPKGS_LIB=PATH names nixpkgs' lib, for more of it.
check-nix: deps
	@deploy/install-packages.sh nix-bin python3
	$(CARGO) build --locked --workspace
	nix/check.sh $${CARGO_TARGET_DIR:-target}/debug

deps:
	@deploy/install-packages.sh $(BUILD_PACKAGES)

test-deps:
	@deploy/install-packages.sh $(BUILD_PACKAGES) $(TEST_PACKAGES)

clean:
	$(CARGO) clean
