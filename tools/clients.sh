#!/usr/bin/env bash
# Makes the genuine clients that tests and the guide use, once: kubectl from its Go module, boto3 and the AWS command line
# from PyPI in an environment of their own. Prints the folder that holds them, for the PATH.
set -euo pipefail
cd "$(dirname "$0")/.."

for tool in go python3; do
  command -v "$tool" >/dev/null || { echo "clients: $tool is missing; it is needed to make kubectl and the AWS clients" >&2; exit 2; }
done
tools=${XDG_CACHE_HOME:-$HOME/.cache}/trysquare/tools
requirements=tools/python-requirements.txt
python=$tools/python-$(cksum < "$requirements" | cut -d' ' -f1)
if [ ! -e "$python/complete" ]; then
  echo "clients: installing $requirements" >&2
  rm -rf "$python"
  python3 -m venv "$python" >&2
  "$python/bin/python3" -m pip install --quiet --disable-pip-version-check --requirement "$requirements" >&2
  touch "$python/complete"
fi
ln -sf "$(tools/build.sh kubectl)" "$python/bin/kubectl"
echo "$python/bin"
