#!/usr/bin/env bash
# Breaks the product on purpose and expects its scenarios to notice. Each patch under e2e/sabotage/ is applied to a copy of
# the checkout; its first lines say what it breaks and which scenarios must fail for it.
#
#   # expect: <tag expression>     scenarios that must all fail under the patch
#   # sequence: <name>             or the request sequence that must fail: fake-kube against what a genuine server answered
#
# Usage: tools/sabotage.sh [PATCH…]     all patches by default
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/trysquare/target}-sabotage
source_target=${CARGO_TARGET_DIR%-sabotage}

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
# The copy keeps its path between patches, so that each builds only what it changes.
git ls-files -z | xargs -0 cp --parents -t "$copy"
if [ ! -d "$CARGO_TARGET_DIR" ] && [ -d "$source_target" ]; then
  cp -a "$source_target" "$CARGO_TARGET_DIR"
fi

[ $# -gt 0 ] || set -- "$root"/e2e/sabotage/*.patch "$root"/fake-kube/contract/sabotage/*.patch
caught=0 missed=0
for patch in "$@"; do
  name=$(basename "$patch" .patch)
  expect=$(sed -n 's/^# expect: //p' "$patch")
  sequence=$(sed -n 's/^# sequence: //p' "$patch")
  echo
  echo "== $name: $(sed -n 's/^# breaks: //p' "$patch")"
  patch --quiet --strip 1 --directory "$copy" < "$patch"
  if [ -n "$sequence" ]; then
    # Unoptimised: fake-kube alone is built anew for each, and plays one sequence.
    set +e
    (cd "$copy" && CONTRACT_SEQUENCES=$sequence CARGO_PROFILE_DEV_OPT_LEVEL=0 \
      cargo test --quiet --package fake-kube-contract --test sequences > "$copy/sequence.txt" 2>&1)
    set -e
    if grep -qE '^[1-9][0-9]* sequences differ$' "$copy/sequence.txt"; then
      caught=$((caught + 1))
      grep -A 2 -E '^[1-9][0-9]* sequences differ$' "$copy/sequence.txt" | sed '1d; s/^/   /' | cut -c 1-200
    else
      missed=$((missed + 1))
      echo "   NOT NOTICED"
      tail -n 20 "$copy/sequence.txt" | sed 's/^/   /'
    fi
    patch --quiet --strip 1 --reverse --directory "$copy" < "$patch"
    continue
  fi
  (cd "$copy" && cargo build --quiet --package e2e --bin trysquare)
  report=$copy/sabotage-report
  rm -rf "$report"
  set +e
  (cd "$copy" && "$CARGO_TARGET_DIR/debug/trysquare" test --tags "$expect" --report "$report" > "$report.txt" 2>&1)
  code=$?
  set -e
  summary=$(grep -E '^[0-9]+ passed, ' "$report.txt" | tail -n 1 || true)
  if [ "$code" -eq 1 ] && [[ $summary == "0 passed, "* ]]; then
    caught=$((caught + 1))
    echo "   noticed: $summary"
    sed -n '/^FAILED/,/what happened/p' "$report.txt" | sed '/what happened/d; s/^/   /' | head -n 12
  else
    missed=$((missed + 1))
    echo "   NOT NOTICED (exit $code): $summary"
    sed 's/^/   /' "$report.txt" | tail -n 40
  fi
  patch --quiet --strip 1 --reverse --directory "$copy" < "$patch"
done
echo
echo "sabotage: $caught passed, $missed failed"
[ "$missed" -eq 0 ]
