#!/usr/bin/env bash
# Makes sure that a Docker Engine runs in which a kind node starts: installs Debian's, starts it, or leaves the one that
# runs. From then on no container starts a connection that leaves the machine. README.md tells when this is needed at all.
#
#   tools/kind/engine.sh                as root
set -euo pipefail
cd "$(dirname "$0")"

kind=${XDG_CACHE_HOME:-$HOME/.cache}/trysquare/kind
log=$kind/dockerd.log
capfit=/usr/local/bin/capfit

main() {
  [[ $EUID == 0 ]] || refuse "starting a Docker Engine takes root; run it as root"
  mkdir -p "$kind"
  exec 9> "$kind/engine-lock"
  flock 9
  install_packages
  if holds_every_capability; then
    answers || { start; wait_until answers; }
  else
    use_capfit
  fi
  close_the_way_out
  say "Docker Engine $(docker info --format '{{.ServerVersion}}') answers; its containers reach this machine and no further"
}

say() { echo "kind engine: $*" >&2; }

refuse() { say "$*"; exit 2; }

install_packages() {
  local missing=()
  command -v dockerd > /dev/null || missing+=(docker.io)
  command -v iptables > /dev/null || missing+=(iptables)
  command -v jq > /dev/null || missing+=(jq)
  [[ ${#missing[@]} -gt 0 ]] || return 0
  command -v apt-get > /dev/null || refuse "${missing[*]} must be installed, and there is no apt-get to do it"
  say "installing ${missing[*]}"
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}"; } \
    > /dev/null || refuse "apt-get could not install ${missing[*]}; it needs its package sources"
}

answers() { docker info > /dev/null 2>&1; }

# forget FILE PROGRAM: remove the note of a process that is not there any more. An engine that was killed leaves its own, and
# the next one would take whoever has that number now for it.
forget() {
  [[ -e $1 ]] || return 0
  [[ $(cat "/proc/$(< "$1")/comm" 2> /dev/null) == "$2" ]] || rm -f "$1"
}

# The engine outlives this script.
start() {
  forget /var/run/docker.pid dockerd
  forget /var/run/docker/containerd/containerd.pid containerd
  say "starting dockerd; its log is $log"
  setsid dockerd > "$log" 2>&1 < /dev/null 9>&- &
}

# wait_until COMMAND...: half a minute, which an engine that starts never needs.
wait_until() {
  for _ in {1..150}; do
    ! "$@" || return 0
    sleep 0.2
  done
  [[ ! -e $log ]] || tail "$log" >&2
  refuse "the engine does not come up; its log is $log"
}

# --- capabilities ---------------------------------------------------------------------------------------------------

# A kind node is privileged, which means every capability that the kernel knows. On some machines root holds fewer.
holds_every_capability() {
  local held last
  held=$((16#$(awk '/^CapPrm:/ { print $2 }' /proc/self/status)))
  last=$(< /proc/sys/kernel/cap_last_cap)
  [[ $held == $(((1 << (last + 1)) - 1)) ]]
}

runtime_is() { [[ $(docker info --format '{{.DefaultRuntime}}' 2> /dev/null) == "$1" ]]; }

# The runtime belongs to the machine, as the settings that name it do: neither goes when the cache is deleted. An engine that
# runs already reads them again, which stops no container.
use_capfit() {
  local settings=/etc/docker/daemon.json
  ! runtime_is capfit || return 0
  say "root lacks capabilities here; making capfit the engine's runtime, in $settings"
  build_capfit
  mkdir -p "$(dirname "$settings")"
  [[ -s $settings ]] || echo '{}' > "$settings"
  jq --arg path "$capfit" '.runtimes.capfit.path = $path | ."default-runtime" = "capfit"' "$settings" > "$settings.new"
  mv "$settings.new" "$settings"
  if answers; then kill -HUP "$(< /var/run/docker.pid)"; else start; fi
  wait_until runtime_is capfit
}

build_capfit() {
  command -v go > /dev/null || refuse "capfit is built with Go, which is missing"
  CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$capfit.new" ./capfit
  mv "$capfit.new" "$capfit"
}

# --- the way out ----------------------------------------------------------------------------------------------------

# Containers reach each other and the machine itself, at their gateway's address; a connection that would go on from there
# is refused at once, so that a fault in a test never reaches a stranger. (node/fence.sh does the same inside a node, where
# pods' addresses that no route covers would leave by the default route.)
close_the_way_out() {
  local interface rule
  for interface in $(ip -4 route show default | grep -o 'dev [^ ]*' | cut -d ' ' -f 2 | sort -u); do
    rule=(DOCKER-USER --out-interface "$interface" --match conntrack --ctstate NEW --jump REJECT)
    iptables --check "${rule[@]}" 2> /dev/null || iptables --insert "${rule[@]}"
  done
}

main
