# What a contributor does. `just` lists it; each line also works typed by hand.

_list:
    @just --list --unsorted

# Format everything
fmt:
    cargo fmt --all

# What the CI complains about before it runs a test
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --locked -- -D warnings
    cargo deny check bans licenses sources

# Every test, with the programs that they need
test:
    tests/run

# The end-to-end tests whose names contain FILTER, with what they print
e2e FILTER="":
    cargo test --test e2e -- {{FILTER}}

# The same with netbox run by real root
e2e-root FILTER="":
    sudo --preserve-env=PATH,HOME NETBOX_E2E_AS=root "$(command -v cargo)" test --test e2e -- {{FILTER}}

# What must hold on a kernel without nf_tables too, as on one
e2e-without-nf-tables FILTER="":
    NETBOX_E2E_WITHOUT=nf_tables cargo test --test e2e -- {{FILTER}}

# Whether all of it compiles for the other architecture: needs `rustup target add` of it, and its C compiler
check-aarch64:
    cargo check --workspace --all-targets --locked --target aarch64-unknown-linux-gnu

# pip, npm, cargo, apt and curl against the registries that this machine is configured with
registries:
    NETBOX_REGISTRIES=1 cargo test --test registries

# Write docs/cli.md anew from the definitions, and the tables of docs/platforms.md
reference:
    NETBOX_WRITE_REFERENCE=1 cargo test --bin netbox reference
    NETBOX_WRITE_REFERENCE=1 cargo test --test e2e -- platforms

# Start time against bwrap, throughput against a direct connection, tunnels against squid and tinyproxy, a thousand sandboxes
# of one service, long policies
bench:
    cargo bench --bench start
    cargo bench --bench attach
    cargo bench --bench connects
    cargo bench --bench throughput
    cargo bench --bench tunnels
    cargo bench --bench crowd
    cargo bench --bench policy

# The shared service at full load for MINUTES: nothing is lost, and it stays as large as it is
soak MINUTES="20":
    tests/soak --minutes {{MINUTES}}

# Everything, as the CI does it
ci:
    .ci/run
