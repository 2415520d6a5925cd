#!/usr/bin/env bash
# Makes the images of this commit twice, from two checkouts at different paths, and compares their digests. All crates of
# our own are compiled anew for the second; the dependencies, which know nothing of a checkout, are compiled once.
set -euo pipefail
cd "$(dirname "$0")/.."

[[ -z $(git status --porcelain --untracked-files=no) ]] ||
  { echo "images-twice: there are changes that are not committed, which another checkout lacks; commit them first" >&2; exit 2; }
folder=$(mktemp --directory)
other=$folder/another-place/trysquare
cleanup() {
  git worktree remove --force "$other" 2> /dev/null || true
  rm -rf "$folder"
}
trap cleanup EXIT

tools/images.py --no-load --out "$folder/first"
git worktree add --quiet --detach "$other" HEAD
"$other/tools/images.py" --no-load --out "$folder/second" --compare "$folder/first"
