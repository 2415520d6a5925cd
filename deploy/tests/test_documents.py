"""What is written twice is equal: the list of names, the table in the README, versions, the definitions' link."""

import json
import re

import yaml

from kit import CHART, CRD_CHART, ROOT, documented_values, expect, schema_values


def test_the_list_of_known_names_is_the_schemas():
    expect(CHART / "files/known-values.txt", "".join(f"{path}\n" for path in sorted(dict(schema_values()))))


def test_every_value_is_documented():
    documented = {path: comment for path, _, comment in documented_values()}
    assert documented.keys() == dict(schema_values()).keys() - {"global"}
    assert [path for path, comment in documented.items() if not comment] == []


def table():
    lines = ["| value | default | what |", "|---|---|---|"]
    for path, default, comment in documented_values():
        text = json.dumps(default, separators=(",", ":")) if not isinstance(default, str) else default
        text = f"`{text}`" if text and text != "null" else ""
        lines.append(f"| `{path}` | {text if len(text) < 50 else 'see values.yaml'} | {comment} |")
    return "\n".join(lines)


def test_the_table_of_values():
    readme = (CHART / "README.md").read_text()
    marks = re.compile(r"(<!-- values: written from values.yaml by the tests -->\n\n).*?(\n\n<!-- end of values -->)", re.S)
    assert len(marks.findall(readme)) == 1
    expect(CHART / "README.md", marks.sub(lambda found: found[1] + table() + found[2], readme))


def test_versions_are_the_workspaces():
    workspace = re.search(r'^version = "(.+)"$', (ROOT / "Cargo.toml").read_text(), re.M)[1]
    charts = [yaml.safe_load((chart / "Chart.yaml").read_text()) for chart in (CHART, CRD_CHART)]
    assert [(chart["version"], chart["appVersion"]) for chart in charts] == [(workspace, workspace)] * 2
    assert charts[0]["kubeVersion"] == charts[1]["kubeVersion"]


def test_the_definitions_have_one_source():
    assert (CRD_CHART / "definitions").is_symlink()
    assert (CRD_CHART / "definitions").resolve() == CHART / "crds"
