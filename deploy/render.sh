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

exec awk '
  FNR == 1 && NR > 1 { text = text "---\n" }
  {
    # A comment may name a variable that is for those who take its example up.
    is_comment = $0 ~ /^ *#/
    while (match($0, /[$][{][A-Z][A-Z0-9_]*[}]/)) {
      name = substr($0, RSTART + 2, RLENGTH - 3)
      if (ENVIRON[name] == "" && !is_comment && !(name in missing)) {
        missing[name]
        list = list " " name
      }
      value = ENVIRON[name] == "" ? substr($0, RSTART, RLENGTH) : ENVIRON[name]
      text = text substr($0, 1, RSTART - 1) value
      $0 = substr($0, RSTART + RLENGTH)
    }
    text = text $0 "\n"
  }
  END {
    if (list != "") {
      print "render: not set:" list "; deploy/README.md tells where each comes from" | "cat >&2"
      exit 1
    }
    printf "%s", text
  }
' "$@"
