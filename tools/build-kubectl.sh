#!/usr/bin/env bash
# Builds the genuine kubectl from its published Go module, unless it is there, and prints where it is.
set -euo pipefail
cd "$(dirname "$0")/kubectl"

version=v1.36.3
binary="${XDG_CACHE_HOME:-$HOME/.cache}/trysquare/tools/kubectl-$version"

if [[ ! -x $binary ]]; then
    command -v go > /dev/null || { echo "kubectl is built with Go, which is not installed" >&2; exit 1; }
    echo "building kubectl $version: minutes, once" >&2
    flags=""
    for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        flags+=" -X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=36"
        flags+=" -X $package.gitTreeState=clean"
    done
    mkdir -p "$(dirname "$binary")"
    # Built beside its place and then moved: an interrupted build leaves no broken program behind.
    CGO_ENABLED=0 go build -trimpath -mod=readonly -ldflags "-s -w$flags" -o "$binary.new" .
    mv "$binary.new" "$binary"
fi
echo "$binary"
