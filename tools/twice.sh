#!/usr/bin/env bash
# Proves that scenarios repeat to the byte, and that the proof is worth something: with the system's randomness in place of
# the seed's, the same comparison must see a difference.
set -euo pipefail
trysquare=$1
cd "$(dirname "$0")/.."

"$trysquare" test --tags @essential --twice

echo
echo "Control: the same with the system's randomness. At least one scenario must differ."
if "$trysquare" test features/resilience/takeover.feature --twice --randomness system; then
  echo "twice: two runs with the system's randomness were identical, so the comparison proves nothing" >&2
  exit 1
fi
echo "twice: the control differs, as it must"
