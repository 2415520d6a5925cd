#!/usr/bin/env bash
# Builds the genuine programs that Trysquare is compared with from their published Go modules, each once, into a cache
# outside the checkout, and prints where each one is.
#
#   tools/build.sh                      all of them, but those that only a node image holds
#   tools/build.sh kubectl helm         these
#   tools/build.sh --tidy               make the go.mod files follow tools/versions
set -euo pipefail
cd "$(dirname "$0")"
. ./versions

cache=${XDG_CACHE_HOME:-$HOME/.cache}/trysquare/tools
programs=(kube-apiserver kube-controller-manager kube-scheduler kubectl etcd helm karpenter kind)
# Built where tools/kind/image.sh asks for them: with a published node image nobody needs them.
node_programs=(kubeadm kubelet kube-proxy)

# of PROGRAM: the folder of its module, the package that is built and its version.
of() {
  case $1 in
    kube-apiserver | kube-controller-manager | kube-scheduler | kubectl | kubeadm | kubelet | kube-proxy)
      echo "kubernetes k8s.io/kubernetes/cmd/$1 $KUBERNETES k8s.io/kubernetes" ;;
    etcd) echo "etcd go.etcd.io/etcd/server/v3 $ETCD go.etcd.io/etcd/server/v3" ;;
    helm) echo "helm helm.sh/helm/v3/cmd/helm $HELM helm.sh/helm/v3" ;;
    karpenter)
      echo "karpenter github.com/aws/karpenter-provider-aws/cmd/controller $KARPENTER github.com/aws/karpenter-provider-aws" ;;
    kind) echo "kind sigs.k8s.io/kind $KIND sigs.k8s.io/kind" ;;
    *) echo "tools: there is no program $1; there are: ${programs[*]} ${node_programs[*]}" >&2; return 2 ;;
  esac
}

# What the program says of itself with --version; without it a module's build says nothing, or v0.0.0.
link_flags() {
  local package flags=""
  case $1 in
    kubernetes)
      for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        flags+=" -X $package.gitVersion=$2 -X $package.gitMajor=1 -X $package.gitMinor=$(cut -d. -f2 <<< "$2")"
        flags+=" -X $package.gitTreeState=clean"
      done ;;
    helm)
      flags=" -X helm.sh/helm/v3/internal/version.version=$2"
      # The Kubernetes that it renders for without a cluster, which else is one of years ago.
      for package in chartutil lint/rules; do
        flags+=" -X helm.sh/helm/v3/pkg/$package.k8sVersionMajor=1"
        flags+=" -X helm.sh/helm/v3/pkg/$package.k8sVersionMinor=$(cut -d. -f2 <<< "$KUBERNETES")"
      done ;;
    karpenter) flags=" -X sigs.k8s.io/karpenter/pkg/operator.Version=${2#v}" ;;
  esac
  echo "-s -w$flags"
}

build() {
  local program=$1 folder package version module binary began=$SECONDS
  read -r folder package version module <<< "$(of "$program")"
  binary=$cache/$program-$version
  if [[ ! -x $binary ]]; then
    command -v go > /dev/null ||
      { echo "tools: $program is built with Go, which is not installed" >&2; exit 3; }
    local wanted
    wanted=$(cd "$folder" && go list -mod=mod -m -f '{{.Version}}' "$module")
    [[ $wanted == "$version" ]] ||
      { echo "tools: tools/versions says $version and tools/$folder/go.mod $wanted; run tools/build.sh --tidy" >&2; exit 1; }
    echo "tools: building $program $version" >&2
    # Built beside its place and then moved: an interrupted build leaves no broken program behind.
    (cd "$folder" && CGO_ENABLED=0 go build -trimpath -mod=readonly -ldflags "$(link_flags "$folder" "$version")" \
      -o "$binary.new" "$package")
    mv "$binary.new" "$binary"
    echo "tools: $program $version: $((SECONDS - began)) s, $(du -m "$binary" | cut -f1) MB" >&2
  fi
  # Upstream's definitions belong to its program.
  if [[ $program == karpenter && ! -d $binary-crds ]]; then
    rm -rf "$binary-crds.new"
    cp -r "$(cd "$folder" && go list -m -f '{{.Dir}}' "$module")/pkg/apis/crds" "$binary-crds.new"
    chmod -R u+w "$binary-crds.new"
    mv "$binary-crds.new" "$binary-crds"
  fi
  echo "$binary"
}

tidy() {
  local program folder package version module
  for program in kubectl etcd helm karpenter kind; do
    read -r folder package version module <<< "$(of "$program")"
    echo "tools: $folder $version" >&2
    (
      cd "$folder"
      go mod edit -require "$module@$version"
      if [[ $folder == kubernetes ]]; then
        # Kubernetes names its own libraries by path, which only its repository has; as a module it builds once each of
        # them is pointed at the one that was published with it.
        directory=$(go mod download -json "$module@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
        for library in $(awk '$2 == "=>" { print $1 }' "$directory/go.mod"); do
          go mod edit -replace "$library=$library@v0.${version#v1.}"
        done
      fi
      go mod tidy
    )
  done
  # The node image's CoreDNS is a main package of its own: it names the plugins that are compiled in.
  (cd kind/coredns && go mod edit -require "github.com/coredns/coredns@$COREDNS" && go mod tidy)
}

mkdir -p "$cache"
if [[ ${1:-} == --tidy ]]; then
  tidy
  exit
fi
[[ $# -gt 0 ]] || set -- "${programs[@]}"
for program; do of "$program" > /dev/null; done
for program; do build "$program"; done
