"""What the tests of the charts share: where things are, helm and kubectl as commands, renders as objects."""

import functools
import json
import os
import pathlib
import re
import subprocess

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/chart"
CRD_CHART = ROOT / "deploy/crd-chart"
VALUES = ROOT / "deploy/tests/values"
GOLDEN = ROOT / "deploy/tests/golden"
NAMESPACE = "kube-system"
RENDERS = ["minimal", "getting-started", "migration", "upstream", "everything"]


@functools.cache
def tool(name):
    """The path of a genuine program that `tools/build.sh` makes."""
    return subprocess.run([ROOT / "tools/build.sh", name], check=True, text=True, stdout=subprocess.PIPE).stdout.strip()


@functools.cache
def version(name):
    return re.search(rf"^{name}=(.+)$", (ROOT / "tools/versions").read_text(), re.M)[1]


@functools.cache
def upstream():
    """The source of the Karpenter that this project is compared with; its charts are part of its Go module."""
    module = f"github.com/aws/karpenter-provider-aws@{version('KARPENTER')}"
    command = ["go", "mod", "download", "-json", module]
    answer = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, cwd=ROOT / "tools/karpenter").stdout
    return pathlib.Path(json.loads(answer)["Dir"])


def run(*command, text_in=None, kubeconfig=None):
    """The finished command."""
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig or os.devnull)}
    return subprocess.run(
        [str(word) for word in command],
        input=text_in,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )


@functools.cache
def helm_template(*arguments, chart=CHART, release="karpenter", namespace=NAMESPACE, kubernetes=None):
    kubernetes = kubernetes or version("KUBERNETES")
    where = ["--namespace", namespace, "--kube-version", kubernetes]
    return run(tool("helm"), "template", release, chart, *where, *arguments)


def render(*arguments, **more):
    """What the chart makes of the arguments, as text."""
    done = helm_template(*arguments, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(text):
    return [each for each in yaml.safe_load_all(text) if each]


def only(kind, name, text):
    found = [each for each in objects(text) if each["kind"] == kind and each["metadata"]["name"] == name]
    assert len(found) == 1, f"{kind} {name}: {len(found)} times"
    return found[0]


def container(text):
    return only("Deployment", "karpenter", text)["spec"]["template"]["spec"]["containers"][0]


def environment(text):
    """The variables with values of their own, and those that the pod's surroundings give."""
    variables = container(text)["env"]
    names = [each["name"] for each in variables]
    assert len(names) == len(set(names)), f"a variable is there twice: {sorted(names)}"
    plain = {each["name"]: each["value"] for each in variables if "value" in each}
    return plain, {each["name"] for each in variables if "valueFrom" in each}


def schema_values(schema=None, prefix=""):
    """The path of every value in the schema, and what the schema says of it."""
    schema = schema or json.loads((CHART / "values.schema.json").read_text())
    for name, inner in schema["properties"].items():
        if "properties" in inner:
            yield from schema_values(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", inner


def at(values, path):
    """The value at a dotted path; KeyError where there is none."""
    return functools.reduce(lambda inner, key: inner[key], path.split("."), values)


def documented_values():
    """Path, default and comment of every value in values.yaml, in its order."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    known = dict(schema_values())
    stack, comment = [], []
    for line in (CHART / "values.yaml").read_text().splitlines():
        stripped = line.strip()
        if stripped.startswith("#"):
            comment.append(stripped.lstrip("# "))
            continue
        if key := re.match(r"( *)(\w+):", line):
            depth = len(key[1]) // 2
            stack = stack[:depth] + [key[2]]
            path = ".".join(stack)
            if path in known:
                yield path, at(defaults, path), " ".join(comment)
        comment = []


def settings_of_the_program():
    """Environment name, help and default of every setting in controller/src/config.rs."""
    source = (ROOT / "controller/src/config.rs").read_text()
    block = re.search(r"^arguments! \{\n(.*?)^\}", source, re.S | re.M)[1]
    for help_text, name in re.findall(r"((?:    ///.*\n)+)    (\w+): ", block):
        help_text = " ".join(re.findall(r"/// (.*)", help_text))
        default = re.search(r"\[default: (.*)\]", help_text)
        yield name.upper(), help_text, default and default[1]


def expect(path, text):
    """Compares a file with what it should be; UPDATE_EXPECT=1 writes it."""
    if os.environ.get("UPDATE_EXPECT"):
        path.write_text(text)
    found = path.read_text() if path.exists() else ""
    assert found == text, f"{path.relative_to(ROOT)} is out of date; UPDATE_EXPECT=1 make chart-test writes it"
