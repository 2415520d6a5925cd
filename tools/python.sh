#!/usr/bin/env bash
# Makes an environment of its own for these packages of PyPI, once, into the cache of the tools, and prints the folder that
# holds their programs:
#
#   tools/python.sh 'moto[server]==5.2.1'
set -euo pipefail
[ $# -gt 0 ] || { echo "python: name the packages with their versions, such as 'moto[server]==5.2.1'" >&2; exit 2; }
command -v python3 > /dev/null || { echo "python: python3 is missing; it is needed for $*" >&2; exit 2; }

environment=${XDG_CACHE_HOME:-$HOME/.cache}/trysquare/tools/python-$(printf '%s\n' "$@" | cksum | cut -d' ' -f1)
if [ ! -e "$environment/complete" ]; then
  echo "python: installing $*" >&2
  rm -rf "$environment"
  python3 -m venv "$environment" >&2
  "$environment/bin/python3" -m pip install --quiet --disable-pip-version-check "$@" >&2
  touch "$environment/complete"
fi
echo "$environment/bin"
