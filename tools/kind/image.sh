#!/usr/bin/env bash
# Makes a kind node image on a machine that reaches Debian packages and Go modules but no image registry. What it made
# before it takes from a cache outside the checkout; prints the image's name. README.md tells when this is needed at all.
#
#   tools/kind/image.sh                 as root, on Debian, beside a running Docker Engine (engine.sh)
set -euo pipefail
cd "$(dirname "$0")"
. ../versions

cache=${XDG_CACHE_HOME:-$HOME/.cache}/trysquare
tools=$cache/tools        # the programs of tools/build.sh, which are not built a second time
kind=$cache/kind          # what only the image needs: a folder for each program and its version, and the Debian system
work=$kind/work           # removed at the end, however it comes
root=$work/root           # the node's file system
layout=$work/layout       # the images of the cluster's own pods, in OCI's layout
image=trysquare-node:$KUBERNETES
pod_programs=(kube-apiserver kube-controller-manager kube-scheduler kube-proxy etcd coredns pause)
doing="the checks"

main() {
  check_machine
  mkdir -p "$kind"
  exec 9> "$kind/lock"
  flock --nonblock 9 || { say "another image.sh is at work; waiting for it"; flock 9; }
  trap finish EXIT
  rm -rf "$work"; mkdir -p "$work"

  install_packages
  step "the programs of tools/build.sh" ../build.sh kubectl kubeadm kubelet kube-proxy kube-apiserver \
    kube-controller-manager kube-scheduler etcd > /dev/null
  once "containerd-$CONTAINERD" build_containerd
  once "runc-$RUNC" build_runc
  once "cri-tools-$CRI_TOOLS" install_module "sigs.k8s.io/cri-tools/cmd/crictl@$CRI_TOOLS"
  once "cni-plugins-$CNI_PLUGINS" build_cni_plugins
  once "$(coredns_folder)" build_coredns
  once "$(pause_folder)" build_pause
  once "debian-$DEBIAN" fetch_debian
  check_wanted_images

  local print; print=$(fingerprint)
  if [[ $(docker image inspect --format '{{index .Config.Labels "trysquare.print"}}' "$image" 2> /dev/null) != "$print" ]]; then
    step "$image" assemble "$print"
  fi
  echo "$image"
}

say() { echo "kind image: $*" >&2; }

refuse() { say "$*"; exit 2; }

check_machine() {
  local debian
  [[ $EUID == 0 ]] || refuse "it lays out a Debian system, which takes root; run it as root"
  debian=$(. /etc/os-release 2> /dev/null && echo "${VERSION_CODENAME:-unknown}") || debian=unknown
  [[ $debian == "$DEBIAN" ]] ||
    refuse "the node is made from this machine's own package sources, which must be Debian $DEBIAN and are $debian"
  command -v go > /dev/null || refuse "go is missing, with which the node's programs are built; install it (go.dev/dl)"
  docker info > /dev/null 2>&1 || refuse "no Docker Engine answers; tools/kind/engine.sh installs and starts one"
}

finish() {
  local code=$?
  rm -rf "$work"
  [[ $code == 0 ]] ||
    say "stopped at $doing (status $code); what was finished before is kept. The first time takes a network:" \
      "Go modules from $(go env GOPROXY), packages from apt's sources"
}

# step NAME COMMAND...: run the command, saying how long it took.
step() {
  local began=$SECONDS
  doing=$1; shift
  "$@"
  [[ $((SECONDS - began)) -lt 2 ]] || say "$doing: $((SECONDS - began)) s"
}

# once FOLDER COMMAND...: have the command fill the folder $made, which takes its place in the cache when it is complete.
once() {
  local folder=$kind/$1
  [[ ! -e $folder ]] || return 0
  made=$work/made
  rm -rf "$made"; mkdir "$made"
  say "making $1"
  step "$@" 2> >(grep --invert-match '^go: downloading ' >&2)
  mv "$made" "$folder"
}

# Changes when anything does that the image is made from.
fingerprint() {
  {
    echo "$KUBERNETES $ETCD $KIND $CONTAINERD $RUNC $CRI_TOOLS $CNI_PLUGINS $COREDNS $DEBIAN"
    find image.sh coredns pause node -type f | LC_ALL=C sort | xargs cat
    stat --format '%Y' "$kind/debian-$DEBIAN"
  } | sha256sum | cut -c 1-12
}

install_packages() {
  local packages=(mmdebstrap gcc libc6-dev libseccomp-dev jq)
  dpkg-query --show "${packages[@]}" > /dev/null 2>&1 || step "Debian's ${packages[*]}" apt_install "${packages[@]}"
}

apt_install() {
  apt-get update -qq >&2
  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" > /dev/null
}

# --- programs -------------------------------------------------------------------------------------------------------

# Without C, so that they also run in an image that holds nothing else.
install_module() { CGO_ENABLED=0 GOBIN=$made go install -trimpath -ldflags "-s -w ${link_flags:-}" "$@"; }

build_containerd() {
  local module=github.com/containerd/containerd/v2
  link_flags="-X $module/version.Version=$CONTAINERD" install_module \
    -tags urfave_cli_no_docs,no_btrfs,no_devmapper,no_zfs "$module/cmd/"{containerd,ctr,containerd-shim-runc-v2}"@$CONTAINERD"
}

# runc enters namespaces in C, and filters system calls with libseccomp. Linked statically it needs neither in the node.
build_runc() {
  CGO_ENABLED=1 GOBIN=$made go install -trimpath -tags seccomp,netgo,osusergo,urfave_cli_no_docs \
    -ldflags "-s -w -extldflags -static -X main.version=${RUNC#v}" "github.com/opencontainers/runc@$RUNC"
}

build_cni_plugins() {
  install_module \
    github.com/containernetworking/plugins/plugins/{ipam/host-local,main/loopback,main/ptp,meta/portmap}"@$CNI_PLUGINS"
}

coredns_folder() { echo "coredns-$COREDNS-$(cat coredns/* | sha256sum | cut -c 1-8)"; }

build_coredns() {
  local wanted
  wanted=$(cd coredns && go list -mod=mod -m -f '{{.Version}}' github.com/coredns/coredns)
  [[ $wanted == "$COREDNS" ]] ||
    refuse "tools/versions says CoreDNS $COREDNS and tools/kind/coredns/go.mod $wanted; run tools/build.sh --tidy"
  (cd coredns && CGO_ENABLED=0 go build -trimpath -mod=readonly -ldflags '-s -w' -o "$made/coredns" .)
}

pause_folder() { echo "pause-$(cat pause/* | sha256sum | cut -c 1-8)"; }

build_pause() { CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$made/pause" ./pause; }

# --- images of the cluster's own pods -------------------------------------------------------------------------------

# image_of PROGRAM: the full name under which kubeadm wants its image.
image_of() {
  "$tools/kubeadm-$KUBERNETES" config images list --kubernetes-version "$KUBERNETES" 2> /dev/null | grep "/$1:"
}

# kubeadm's manifests and kind's containerd name images by tag. A tag may stand for another patch of etcd, since one build
# of it serves here and in `make tools`; it may not stand for anything else.
check_wanted_images() {
  local etcd coredns
  etcd=$(image_of etcd); etcd=${etcd##*:}
  coredns=$(image_of coredns); coredns=${coredns##*:}
  doing="the versions that kubeadm wants"
  [[ v${etcd%.*} == "${ETCD%.*}" ]] ||
    refuse "kubeadm $KUBERNETES wants etcd $etcd and tools/versions says $ETCD: the minor must be the same"
  [[ $coredns == "$COREDNS" ]] || refuse "kubeadm $KUBERNETES wants CoreDNS $coredns and tools/versions says $COREDNS"
}

binary_of() {
  case $1 in
    coredns) echo "$kind/$(coredns_folder)/coredns" ;;
    pause) echo "$kind/$(pause_folder)/pause" ;;
    etcd) echo "$tools/etcd-$ETCD" ;;
    *) echo "$tools/$1-$KUBERNETES" ;;
  esac
}

make_pod_images() {
  local program
  mkdir -p "$layout/blobs/sha256"
  lay_proxy "$work/kube-proxy"
  for program in "${pod_programs[@]}"; do
    make_pod_image "$program" "$work/$program" >> "$work/manifests"
    rm -rf "${work:?}/$program"
  done
  echo '{"imageLayoutVersion": "1.0.0"}' > "$layout/oci-layout"
  jq --slurp '{schemaVersion: 2, manifests: .}' "$work/manifests" > "$layout/index.json"
}

# make_pod_image PROGRAM FOLDER: an image of the folder with the program in it; prints its line of the layout's index.
make_pod_image() {
  local layer config manifest
  install -D "$(binary_of "$1")" "$2/usr/local/bin/$1"
  layer=$(tar --numeric-owner --owner 0 --group 0 -C "$2" -c . | blob application/vnd.oci.image.layer.v1.tar)
  # kubeadm's manifests name most programs as the command; CoreDNS and pause are their image's entrypoint.
  config=$(jq --null-input --arg program "/usr/local/bin/$1" --arg architecture "$(go env GOARCH)" --argjson layer "$layer" \
    '{$architecture, os: "linux", rootfs: {type: "layers", diff_ids: [$layer.digest]},
      config: {Entrypoint: [$program], Env: ["PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]}}' |
    blob application/vnd.oci.image.config.v1+json)
  manifest=$(jq --null-input --argjson config "$config" --argjson layer "$layer" \
    '{schemaVersion: 2, mediaType: "application/vnd.oci.image.manifest.v1+json", $config, layers: [$layer]}' |
    blob application/vnd.oci.image.manifest.v1+json)
  jq --compact-output --arg name "$(image_of "$1")" '.annotations = {"io.containerd.image.name": $name}' <<< "$manifest"
}

# blob MEDIA_TYPE: store what is read as one of the layout's blobs, and print its descriptor.
blob() {
  local digest
  cat > "$work/blob"
  digest=$(sha256sum "$work/blob" | cut -d ' ' -f 1)
  jq --null-input --compact-output --arg mediaType "$1" --arg digest "sha256:$digest" \
    --argjson size "$(stat --format %s "$work/blob")" '{$mediaType, $digest, $size}'
  mv "$work/blob" "$layout/blobs/sha256/$digest"
}

# kube-proxy calls nft, or the iptables programs where it is told to: the node's, with the libraries that they load.
lay_proxy() {
  local file program
  mkdir -p "$1"
  for program in /usr/sbin/nft /usr/sbin/xtables-nft-multi; do
    echo "$program"
    chroot "$root" ldd "$program" | grep -o '/[^ ]*'
  done | LC_ALL=C sort -u | while read -r file; do
    mkdir -p "$1$(dirname "$file")"
    cp --dereference "$root$file" "$1$file"
  done
  (cd "$root" && cp --recursive --parents usr/lib/*-linux-gnu/xtables "$1/")
  for program in {iptables,ip6tables}{,-save,-restore}; do
    ln -s xtables-nft-multi "$1/usr/sbin/$program"
  done
}

# --- the node -------------------------------------------------------------------------------------------------------

fetch_debian() {
  local sources=/etc/apt/sources.list.d/debian.sources
  [[ -e $sources ]] || sources=/etc/apt/sources.list
  mmdebstrap --quiet --mode=root --variant=minbase \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --include=systemd,conntrack,iptables,nftables,iproute2,ethtool,util-linux,mount,kmod,bash,ca-certificates,jq,procps,socat \
    "$DEBIAN" "$made/system.tar" "$sources" >&2
}

assemble() {
  say "assembling $image"
  mkdir "$root"
  tar -C "$root" -xf "$kind/debian-$DEBIAN/system.tar"
  lay_kind_files
  lay_programs
  settle_systemd
  settle_containerd
  # The kubelet refuses cgroup v1 unless it is told otherwise; on cgroup v2 this says nothing.
  sed -i 's/^KUBELET_EXTRA_ARGS=.*/& --fail-cgroupv1=false/' "$root/etc/default/kubelet"
  make_pod_images
  fill_store
  import_node "$1"
}

# kind's module carries the files of its own base image: the entrypoint, the units, the settings of containerd.
lay_kind_files() {
  go mod download sigs.k8s.io/kind
  cp --recursive --no-preserve=mode,ownership "$(go list -m -f '{{.Dir}}' sigs.k8s.io/kind)/images/base/files/." "$root/"
  chmod 0755 "$root"/usr/local/bin/* "$root"/kind/bin/*
  echo "$KUBERNETES" > "$root/kind/version"
  install -D -m 0644 -t "$root/kind/manifests" node/default-{cni,storage}.yaml
}

lay_programs() {
  local program
  for program in kubeadm kubelet kubectl; do
    install "$tools/$program-$KUBERNETES" "$root/usr/bin/$program"
  done
  install -t "$root/usr/local/bin" "$kind/containerd-$CONTAINERD"/* "$kind/cri-tools-$CRI_TOOLS/crictl"
  install -t "$root/usr/local/sbin" "$kind/runc-$RUNC/runc"
  install -D -t "$root/opt/cni/bin" "$kind/cni-plugins-$CNI_PLUGINS"/*
  mkdir -p "$root/etc/kubernetes/manifests"
}

# A container has no devices, disks or consoles to bring up.
settle_systemd() {
  (
    cd "$root"
    rm -f lib/systemd/system/{multi-user,local-fs,basic}.target.wants/* etc/systemd/system/*.wants/* \
      lib/systemd/system/sockets.target.wants/*{udev,initctl}* \
      lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service
    echo 'ReadKMsg=no' >> etc/systemd/journald.conf
    ln -sf /usr/lib/systemd/systemd sbin/init
  )
  install -m 0755 node/fence.sh "$root/kind/bin/"
  install -m 0644 node/fence.service "$root/etc/systemd/system/"
  chroot "$root" systemctl --quiet enable kubelet containerd undo-mount-hacks fence
  chroot "$root" systemctl --quiet mask systemd-binfmt
}

# containerd writes each node's network from the pod range that the node is given, so no plugin need run as a pod. It never
# lowers an OOM score: where root holds no CAP_SYS_RESOURCE, that would fail.
settle_containerd() {
  local config=$root/etc/containerd/config.toml
  sed -i -e "s#^\( *sandbox_image = \).*#\1\"$(image_of pause)\"#" \
    -e 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' "$config"
  printf '\n[plugins."io.containerd.grpc.v1.cri".cni]\n  conf_template = "/etc/containerd/cni.conflist"\n' >> "$config"
  install -m 0644 node/cni.conflist "$root/etc/containerd/"
  "$kind/containerd-$CONTAINERD/ctr" oci spec | jq 'del(.process.rlimits)' > "$root/etc/containerd/cri-base.json"
}

# Put the pods' images into the node's containerd, by a containerd that lives for this step.
fill_store() (
  cat > "$work/containerd.toml" << TOML
version = 3
root = "$root/var/lib/containerd"
state = "$work/containerd"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime",
  "io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri"]
[grpc]
address = "$work/containerd.sock"
[ttrpc]
address = "$work/containerd.ttrpc"
TOML
  "$kind/containerd-$CONTAINERD/containerd" --config "$work/containerd.toml" 2> "$kind/containerd.log" 9>&- &
  server=$!
  trap 'kill "$server" 2> /dev/null; wait "$server"' EXIT
  until [[ -S $work/containerd.sock ]]; do
    kill -0 "$server" 2> /dev/null || { tail "$kind/containerd.log" >&2; exit 1; }
    sleep 0.1
  done
  tar -C "$layout" -c . | "$kind/containerd-$CONTAINERD/ctr" --address "$work/containerd.sock" --namespace k8s.io \
    images import --no-unpack --label io.cri-containerd.pinned=pinned - > /dev/null
)

# import_node PRINT: hand the file system to the engine; the name leaves the image that had it before, which goes.
import_node() {
  local before
  before=$(docker image inspect --format '{{.Id}}' "$image" 2> /dev/null) || before=""
  tar -C "$root" --numeric-owner -c . | docker import --change 'ENV container=docker' \
    --change 'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]' --change "LABEL trysquare.print=$1" - "$image" > /dev/null
  # A cluster that still runs on the old one keeps it.
  [[ -z $before ]] || docker rmi "$before" > /dev/null 2>&1 || true
}

main
