#!/usr/bin/env bash
# Builds the EC2 SDK alone, once per target folder: its compiler takes 8 GB of memory and cannot share them with a second
# heavy crate on a small machine. Says what it costs before it starts. Every later build finds it ready.
#
#   tools/first-build.sh           for the everyday build and its tests
#   tools/first-build.sh static    for the static release build of images and benchmarks
set -euo pipefail
cd "$(dirname "$0")/.."

inputs=(Cargo.lock rust-toolchain.toml Cargo.toml)
case ${1:-} in
  "") build=(cargo build) ;;
  static) build=(tools/static.sh build); inputs+=(tools/static.sh) ;;
  *) echo "first-build: there is no variant $1, only static" >&2; exit 2 ;;
esac
needed_mib=9000
folder=${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/trysquare/target}
export CARGO_TARGET_DIR=$folder

for tool in cargo cc; do
  command -v "$tool" >/dev/null || { echo "first-build: $tool is missing; install Rust (rustup.rs) and a C compiler" >&2; exit 2; }
done
stamp=$folder/.first-build${1:+-$1}-$(cat "${inputs[@]}" | cksum | cut -d' ' -f1)
[ -e "$stamp" ] && exit 0

available_mib=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo 2>/dev/null || echo "$needed_mib")
echo "first-build: compiles the AWS SDK for EC2 first, alone. Once per target folder and variant: 6 to 10 minutes on 2 cores,"
echo "first-build: 8 GB of memory at its peak, 3 GB of disk in $folder."
if [ "$available_mib" -lt "$needed_mib" ]; then
  echo "first-build: only $available_mib MiB of memory are available and $needed_mib are needed; close something or add swap" >&2
  exit 2
fi
"${build[@]}" --package aws-sdk-ec2
mkdir -p "$folder"
touch "$stamp"
