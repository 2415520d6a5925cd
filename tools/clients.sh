#!/usr/bin/env bash
# Makes the genuine clients that tests and the guide use, once: kubectl from its Go module, boto3 and the AWS command line
# from PyPI in an environment of their own. Prints the folder that holds them, for the PATH.
set -euo pipefail
cd "$(dirname "$0")/.."

for tool in go python3; do
  command -v "$tool" >/dev/null || { echo "clients: $tool is missing; it is needed to make kubectl and the AWS clients" >&2; exit 2; }
done
# One package a line, and comments.
mapfile -t packages < <(grep --invert-match '^#' tools/python-requirements.txt)
programs=$(tools/python.sh "${packages[@]}")
ln -sf "$(tools/build.sh kubectl)" "$programs/kubectl"
echo "$programs"
