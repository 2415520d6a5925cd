#!/usr/bin/env bash
# Runs cargo for the static release variant, which images and benchmarks share: `tools/static.sh build --package fake-ec2`
# is `cargo build --release` with glibc linked in, for the target of this machine or of $TARGET. Everything that decides what
# is compiled is said here and in Cargo.toml's [profile.release], so that the EC2 SDK is compiled once for both.
# docs/decisions/0005 tells why it is as it is.
set -euo pipefail
cd "$(dirname "$0")/.."

export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/trysquare/target}
target=${TARGET:-$(rustc -vV | sed -n 's/^host: //p')}

# Where cargo keeps its sources and results is no part of a program: with the two names replaced, it comes out the same
# for everyone. Paths inside the checkout are relative already.
flags=(
  -C target-feature=+crt-static
  "--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}/registry/src=/cargo"
  "--remap-path-prefix=$CARGO_TARGET_DIR=/target"
)
export CARGO_ENCODED_RUSTFLAGS
CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f'; echo "${flags[*]}")
unset RUSTFLAGS

# What the programs answer to --version.
commit=$(git rev-parse --short=12 HEAD)
[[ -z $(git status --porcelain --untracked-files=no) ]] || commit+=-modified
export TRYSQUARE_COMMIT=${TRYSQUARE_COMMIT-$commit}

command=${1:?tools/static.sh: name a command of cargo, such as build or bench}
shift
profile=(--release)
[[ $command == bench ]] && profile=()
exec cargo "$command" --locked "${profile[@]}" --target "$target" "$@"
