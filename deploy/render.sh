#!/usr/bin/env bash
# Prints a file with each ${NAME} replaced by the environment variable of that name. A variable that is not set is an error:
# replaced by nothing, "KarpenterNodeRole-${CLUSTER_NAME}" would be the name of a role that nobody has.
#
#   deploy/render.sh FILE…
#
# Exit codes: 0 printed, 1 a variable is not set (nothing is printed), 2 wrong usage.
set -euo pipefail

[[ $# -gt 0 ]] || { echo "usage: deploy/render.sh FILE…" >&2; exit 2; }
for file; do
  [[ -r $file ]] || { echo "render: there is no file $file that can be read" >&2; exit 2; }
done

# Comments name variables without meaning their values; a line that is one is passed over.
missing=()
for name in $(sed '/^ *#/d' "$@" | grep -o '\${[A-Z][A-Z0-9_]*}' | tr -d '${}' | sort -u); do
  [[ -n ${!name:-} ]] || missing+=("$name")
done
if [[ ${#missing[@]} -gt 0 ]]; then
  echo "render: $* needs ${missing[*]}, which is not set; deploy/README.md tells where it comes from" >&2
  exit 1
fi

separator=
for file; do
  printf '%s' "$separator"
  text=$(< "$file")
  for name in $(grep -o '\${[A-Z][A-Z0-9_]*}' <<< "$text" | tr -d '${}' | sort -u); do
    text=${text//"\${$name}"/"${!name:-"\${$name}"}"}
  done
  printf '%s\n' "$text"
  separator=$'---\n'
done
