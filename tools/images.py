#!/usr/bin/env python3
"""Makes the images of deploy/images/images.toml: FROM scratch, a static program in each, for the machine this runs on.

  tools/images.py                     all of them, into target/images and into Docker
  tools/images.py fake-ec2            this one
  tools/images.py --no-load           no Docker needed
  tools/images.py --platform linux/arm64    refuse unless this machine builds that natively
  tools/images.py --compare DIR       fail unless the digests are those of an earlier run into DIR

Each becomes NAME.tar, which `docker load`, `crane push`, `skopeo` and `kind load image-archive` read, with its bill of
materials beside it, NAME.cdx.json. Nothing in them depends on when or where they are made: files carry the date of the
commit, and everything is sorted. What they do depend on is said in deploy/images/README.md.
"""

import argparse
import dataclasses
import gzip
import hashlib
import io
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "trysquare"
MACHINES = {
    "x86_64": ("linux/amd64", "x86_64-unknown-linux-gnu"),
    "aarch64": ("linux/arm64", "aarch64-unknown-linux-gnu"),
}
# Nobody's: no account of the host has this number, and Kubernetes' runAsNonRoot sees that it is not root's.
USER = "65532:65532"
# Mozilla's roots as Debian and its kin package them. Not /etc/ssl/certs: that holds whatever this machine trusts besides.
AUTHORITIES = pathlib.Path("/usr/share/ca-certificates/mozilla")
CYCLONEDX_VERSION = "0.5.9"


class Refused(Exception):
    """What is missing, and what to do about it."""


@dataclasses.dataclass
class Image:
    """One table of images.toml."""

    name: str
    package: str
    program: str
    title: str
    description: str
    ports: list[int] = dataclasses.field(default_factory=list)
    arguments: list[str] = dataclasses.field(default_factory=list)
    default: list[str] = dataclasses.field(default_factory=list)
    folders: list[str] = dataclasses.field(default_factory=list)
    health: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Source:
    """What is built: everything about the commit and the workspace that an image tells."""

    version: str
    repository: str
    licenses: str
    revision: str
    committed_s: int
    is_modified: bool

    @property
    def created(self) -> str:
        return output("date", "--utc", "--date", f"@{self.committed_s}", "+%Y-%m-%dT%H:%M:%SZ")


def main() -> None:
    options = parse()
    settings = tomllib.loads((ROOT / "deploy/images/images.toml").read_text())
    images = [Image(name=name, **table) for name, table in settings["images"].items()]
    chosen = choose(images, options.names)
    machine_platform, target = native()
    if options.platform not in (None, machine_platform):
        raise Refused(f"--platform {options.platform}: this machine builds {machine_platform}; C parts of the dependencies "
                      "are compiled natively, so run this on a machine of that kind")
    source = read_source()
    programs = build(images, target)
    out = pathlib.Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    base = base_layer(source)
    made = {}
    for image in chosen:
        bill = bill_of_materials(image, source, target)
        (out / f"{image.name}.cdx.json").write_bytes(bill)
        layers = [base, program_layer(image, source, programs / image.program, bill)]
        tags = [f"{repository}/{image.name}:{source.version}" for repository in settings["repositories"]]
        made[image.name] = write_archive(out / f"{image.name}.tar", image, source, layers, tags, machine_platform)
    (out / "digests.json").write_text(json.dumps(made, indent=2) + "\n")
    if options.load:
        for image in chosen:
            subprocess.run(["docker", "load", "--quiet", "--input", out / f"{image.name}.tar"],
                           check=True, stdout=subprocess.DEVNULL)
    print_table(made, source, machine_platform)
    if options.compare:
        compare(made, json.loads((pathlib.Path(options.compare) / "digests.json").read_text()))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="IMAGE", help="those to make [default: all]")
    parser.add_argument("--platform", choices=[known for known, _ in MACHINES.values()])
    parser.add_argument("--out", default=ROOT / "target/images", metavar="DIR", help="[default: target/images]")
    parser.add_argument("--compare", metavar="DIR")
    parser.add_argument("--no-load", dest="load", action="store_false")
    return parser.parse_args()


def choose(images: list[Image], names: list[str]) -> list[Image]:
    known = [image.name for image in images]
    for name in names:
        if name not in known:
            raise Refused(f"there is no image {name!r}; there are: {', '.join(known)}")
    return [image for image in images if not names or image.name in names]


def native() -> tuple[str, str]:
    machine = platform.machine()
    if sys.platform != "linux" or machine not in MACHINES:
        raise Refused(f"images are built on Linux, x86_64 or aarch64, and this is {sys.platform} on {machine}")
    return MACHINES[machine]


def output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE).stdout.strip()


def read_source() -> Source:
    package = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]
    return Source(
        version=package["version"],
        repository=package["repository"],
        licenses=package["license"],
        revision=output("git", "rev-parse", "HEAD"),
        committed_s=int(output("git", "log", "-1", "--format=%ct")),
        is_modified=bool(output("git", "status", "--porcelain", "--untracked-files=no")),
    )


def build(images: list[Image], target: str) -> pathlib.Path:
    """Builds the programs and answers their folder. All of them whichever are asked for: built alone, a program's crates
    would have fewer features, and come out otherwise."""
    subprocess.run([ROOT / "tools/first-build.sh", "static"], check=True)
    wanted = [word for image in images for word in ("--package", image.package, "--bin", image.program)]
    subprocess.run([ROOT / "tools/static.sh", "build", *wanted], check=True, env={**os.environ, "TARGET": target})
    folder = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or CACHE / "target") / target / "release"
    for image in images:
        headers = output("readelf", "--program-headers", "--wide", str(folder / image.program))
        if "INTERP" in headers:
            raise Refused(f"{folder / image.program} asks for a dynamic linker, which no image has; it must be static")
    return folder


def bill_of_materials(image: Image, source: Source, target: str) -> bytes:
    """The crates that Cargo.lock gives this program, by cargo-cyclonedx, and what is linked or copied in besides them."""
    # It writes beside each manifest, so it works on a copy of the manifests, in which targets are found by empty files.
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder)
        for name in output("git", "ls-files", "*.rs", "*Cargo.toml", "Cargo.lock", "rust-toolchain.toml").splitlines():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes(b"" if name.endswith(".rs") else (ROOT / name).read_bytes())
        manifest = copy / manifest_of(image.package)
        subprocess.run(
            [cyclonedx(), "cyclonedx", "--quiet", "--format", "json", "--spec-version", "1.5", "--describe", "binaries",
             "--target", target, "--no-build-deps", "--manifest-path", manifest],
            cwd=copy, check=True, env={**os.environ, "SOURCE_DATE_EPOCH": str(source.committed_s)})
        text = (manifest.parent / f"{image.program}_bin.cdx.json").read_text()
        bill = json.loads(text.replace(f"path+file://{copy}", "path+file:///trysquare"))
    bill["components"] += besides()
    bill["components"].sort(key=lambda component: component["bom-ref"])
    return (json.dumps(bill, indent=1, sort_keys=True) + "\n").encode()


def manifest_of(package: str) -> str:
    packages = json.loads(output("cargo", "metadata", "--locked", "--no-deps", "--format-version", "1"))["packages"]
    manifest = next(one["manifest_path"] for one in packages if one["name"] == package)
    return str(pathlib.Path(manifest).relative_to(ROOT))


def cyclonedx() -> str:
    root = CACHE / "tools" / f"cargo-cyclonedx-{CYCLONEDX_VERSION}"
    program = root / "bin/cargo-cyclonedx"
    if not program.exists():
        print(f"images: installing cargo-cyclonedx {CYCLONEDX_VERSION}", file=sys.stderr)
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["cargo", "install", "--quiet", "--locked", "--version", CYCLONEDX_VERSION, "--root", root,
                            "cargo-cyclonedx"], check=True, env={**os.environ, "CARGO_TARGET_DIR": folder})
    return str(program)


def besides() -> list[dict]:
    """What is in an image besides crates. The versions are those of this machine's packages."""
    packages = {
        "libc6-dev": ("glibc", "library", "LGPL-2.1-or-later"),
        "ca-certificates": ("ca-certificates", "data", "MPL-2.0"),
    }
    components = []
    for package, (name, kind, licence) in packages.items():
        version = output("dpkg-query", "--show", "--showformat", "${Version}", package)
        reference = f"pkg:deb/{distribution()}/{package}@{version}"
        components.append({"type": kind, "bom-ref": reference, "purl": reference, "name": name, "version": version,
                           "licenses": [{"license": {"id": licence}}]})
    rust = re.search(r'channel = "(.+)"', (ROOT / "rust-toolchain.toml").read_text())[1]
    components.append({"type": "library", "bom-ref": f"pkg:generic/rust-std@{rust}", "purl": f"pkg:generic/rust-std@{rust}",
                       "name": "rust-std", "version": rust, "licenses": [{"expression": "MIT OR Apache-2.0"}]})
    return components


def distribution() -> str:
    return re.search(r'^ID="?(\w+)', pathlib.Path("/etc/os-release").read_text(), re.MULTILINE)[1]


def base_layer(source: Source) -> bytes:
    """What all images share: trusted authorities, and a place for temporary files where the root can be written."""
    roots = sorted(AUTHORITIES.glob("*.crt"))
    if not roots:
        raise Refused(f"{AUTHORITIES} holds no certificates; install the package ca-certificates")
    bundle = b"".join(root.read_bytes().rstrip() + b"\n" for root in roots)
    layer = Layer(source.committed_s)
    layer.file("etc/ssl/certs/ca-certificates.crt", bundle)
    layer.folder("tmp", mode=0o1777)
    return layer.finish()


def program_layer(image: Image, source: Source, program: pathlib.Path, bill: bytes) -> bytes:
    layer = Layer(source.committed_s)
    layer.file(image.program, stripped(program), mode=0o755)
    layer.file("usr/share/licenses/trysquare/LICENSE", (ROOT / "LICENSE").read_bytes())
    layer.file(f"usr/share/sbom/{image.name}.cdx.json", bill)
    for folder in image.folders:
        for name in output("git", "ls-files", folder).splitlines():
            layer.file(name, (ROOT / name).read_bytes())
    return layer.finish()


def stripped(program: pathlib.Path) -> bytes:
    """Without the names of its functions, a third of it. Here and not in Cargo's profile: benchmarks are to have them."""
    with tempfile.NamedTemporaryFile() as copy:
        subprocess.run(["strip", "--strip-all", "-o", copy.name, program], check=True)
        return pathlib.Path(copy.name).read_bytes()


class Layer:
    """A tar archive that comes out the same whenever the same is put in."""

    def __init__(self, time_s: int):
        self.time_s = time_s
        self.entries: dict[str, tuple[tarfile.TarInfo, bytes]] = {}

    def folder(self, name: str, mode: int = 0o755) -> None:
        info = self.entry(name, mode)
        info.type = tarfile.DIRTYPE
        self.entries.setdefault(name, (info, b""))

    def file(self, name: str, content: bytes, mode: int = 0o644) -> None:
        for parent in pathlib.PurePosixPath(name).parents:
            if parent.name:
                self.folder(str(parent))
        info = self.entry(name, mode)
        info.size = len(content)
        self.entries[name] = (info, content)

    def entry(self, name: str, mode: int) -> tarfile.TarInfo:
        info = tarfile.TarInfo(name)
        info.mode, info.mtime = mode, self.time_s
        return info

    def finish(self) -> bytes:
        return tar(self.entries[name] for name in sorted(self.entries))


def tar(entries) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as writer:
        for info, content in entries:
            writer.addfile(info, io.BytesIO(content))
    return archive.getvalue()


def write_archive(path: pathlib.Path, image: Image, source: Source, layers: list[bytes], tags: list[str],
                  image_platform: str) -> dict:
    """An OCI image layout in a tar file, with the index of Docker's own format, so that everything can read it."""
    system, architecture = image_platform.split("/")
    blobs = Blobs()
    packed = [blobs.add(gzip.compress(layer, mtime=0)) for layer in layers]
    labels = {
        "title": image.title,
        "description": image.description,
        "version": source.version,
        "revision": source.revision + ("-modified" if source.is_modified else ""),
        "source": source.repository,
        "url": source.repository,
        "licenses": source.licenses,
        "created": source.created,
    }
    labels = {f"org.opencontainers.image.{key}": value for key, value in labels.items()}
    config = {
        "created": source.created,
        "architecture": architecture,
        "os": system,
        "config": {
            "User": USER,
            "ExposedPorts": {f"{port}/tcp": {} for port in image.ports},
            "Entrypoint": [f"/{image.program}", *image.arguments],
            "Cmd": image.default,
            "WorkingDir": "/",
            "Labels": labels,
            **healthcheck(image),
        },
        "rootfs": {"type": "layers", "diff_ids": [digest(layer) for layer in layers]},
        "history": [{"created": source.created, "created_by": "tools/images.py"} for _ in layers],
    }
    config_blob = blobs.add(canonical(config))
    manifest = blobs.add(canonical({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", **config_blob},
        "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", **layer} for layer in packed],
        "annotations": labels,
    }))
    reference = {
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        **manifest,
        "platform": {"os": system, "architecture": architecture},
    }
    files = {
        **blobs.files,
        "oci-layout": canonical({"imageLayoutVersion": "1.0.0"}),
        "index.json": canonical({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [{**reference, "annotations": {"io.containerd.image.name": tag,
                                                        "org.opencontainers.image.ref.name": tag}} for tag in tags],
        }),
        "manifest.json": canonical([{"Config": blobs.name(config_blob), "RepoTags": tags,
                                     "Layers": [blobs.name(layer) for layer in packed]}]),
    }
    layer = Layer(source.committed_s)
    for name, content in files.items():
        layer.file(name, content)
    path.write_bytes(layer.finish())
    return {
        "tags": tags,
        "id": config_blob["digest"],
        "manifest": manifest["digest"],
        "unpackedBytes": sum(map(len, layers)),
        "packedBytes": sum(layer["size"] for layer in packed),
    }


class Blobs:
    """The contents of an image, each under its digest."""

    def __init__(self):
        self.files: dict[str, bytes] = {}

    def add(self, content: bytes) -> dict:
        descriptor = {"digest": digest(content), "size": len(content)}
        self.files[self.name(descriptor)] = content
        return descriptor

    @staticmethod
    def name(descriptor: dict) -> str:
        return "blobs/" + descriptor["digest"].replace(":", "/")


def healthcheck(image: Image) -> dict:
    """How Docker asks the container whether it is well, in its nanoseconds; Kubernetes has its own probes."""
    if not image.health:
        return {}
    second = 1_000_000_000
    asked = ["CMD", f"/{image.program}", *image.health]
    times = {"Interval": 10 * second, "Timeout": 15 * second, "StartPeriod": 5 * second, "Retries": 3}
    return {"Healthcheck": {"Test": asked, **times}}


def digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def canonical(value) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def print_table(made: dict, source: Source, image_platform: str) -> None:
    modified = ", with changes that are not committed" if source.is_modified else ""
    print(f"\nImages for {image_platform} of commit {source.revision[:12]}{modified}:\n")
    print(f"  {'image':34} {'to pull':>8} {'unpacked':>9}  image id (sha256)")
    for image in made.values():
        packed, unpacked = (f"{image[key] / 1e6:.1f} MB" for key in ("packedBytes", "unpackedBytes"))
        print(f"  {image['tags'][-1]:34} {packed:>8} {unpacked:>9}  {image['id'][7:19]}")


def compare(made: dict, earlier: dict) -> None:
    for name, image in made.items():
        for key in ("id", "manifest"):
            if image[key] != earlier[name][key]:
                raise Refused(f"{name}: {key} is {image[key]} and was {earlier[name][key]}: not reproducible")
    print(f"\nThe same digests as before: {', '.join(made)}.")


if __name__ == "__main__":
    try:
        main()
    except Refused as refused:
        sys.exit(f"images: {refused}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"images: {' '.join(map(str, error.cmd))}: exit code {error.returncode}")
