#!/usr/bin/env bash
# Fuzzes fake-ec2's wire for so many seconds with each target of fake-ec2/fuzz, or with the ones that are named:
#
#   tools/fuzz.sh 60
#   tools/fuzz.sh 600 json
#
# libFuzzer needs coverage of the code under test, and the compiler's own pass for it is in stable Rust; only sanitizers are
# not, and they find little in a program without unsafe code. What is found is kept in the target folder, as is the corpus, so
# that a later run goes on where this one ended.
set -euo pipefail
cd "$(dirname "$0")/../fake-ec2/fuzz"

seconds=${1:?for how many seconds, such as: tools/fuzz.sh 60}
shift
[[ $# -gt 0 ]] || set -- query json
folder=${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/trysquare/target}/fuzz
host=$(rustc -vV | sed -n 's/^host: //p')

instrumented=(
  -Cpasses=sancov-module --cfg fuzzing
  -Cllvm-args=-sanitizer-coverage-level=4
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
  -Cllvm-args=-sanitizer-coverage-pc-table
  -Cllvm-args=-sanitizer-coverage-trace-compares
)
# With --target the flags are for what is tested, and not for build scripts.
RUSTFLAGS="${instrumented[*]}" cargo build --locked --quiet --release --target "$host" --target-dir "$folder"

# Every name that fake-ec2 knows: of actions, parameters, filters, and AWS's words among the values.
words=$folder/words.dict
{ cat common.dict; grep --recursive --no-filename --only-matching --extended-regexp '"[A-Za-z][A-Za-z.:-]{2,40}"' ../src/actions ../src/wire |
  sort --unique; } > "$words"

for target; do
  corpus=$folder/corpus/$target
  mkdir -p "$corpus" "$folder/found"
  echo "fuzz: $target for $seconds s"
  log=$folder/$target.log
  if ! "$folder/$host/release/$target" "$corpus" "seeds/$target" -dict="$words" -max_len=4096 -timeout=20 \
    -rss_limit_mb=2048 -max_total_time="$seconds" -artifact_prefix="$folder/found/$target-" > "$log" 2>&1; then
    tail -n 60 "$log" >&2
    echo "fuzz: $target failed; to repeat it: $folder/$host/release/$target $folder/found/$target-…" >&2
    exit 1
  fi
  grep -E '^(INFO: Loaded 1 modules|Done )' "$log"
done
