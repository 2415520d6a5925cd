#!/usr/bin/env bash
# Proves that scenarios repeat to the byte, and that the proof is worth something: with the system's randomness in place of
# the seed's, the same comparison must see a difference.
set -euo pipefail
trysquare=$1
cd "$(dirname "$0")/.."

"$trysquare" test --tags @essential --twice

echo
echo "Control: a scenario twice with the system's randomness, which must differ."
set +e
control=$("$trysquare" test features/resilience/takeover.feature --twice --randomness system 2>&1)
code=$?
set -e
if [ "$code" -ne 1 ] || ! grep "DIFFERENT" <<< "$control"; then
  echo "$control"
  echo "twice: the control did not differ (exit $code), so the comparison proves nothing" >&2
  exit 1
fi
