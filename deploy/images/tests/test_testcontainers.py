"""The example of fake-ec2's README for users of testcontainers, run as it stands there."""

import re

import pytest
from conftest import ROOT, VERSION


@pytest.fixture
def no_ryuk(monkeypatch):
    """testcontainers' own helper, which removes what a killed test leaves, is an image to be pulled."""
    monkeypatch.setattr("testcontainers.core.config.testcontainers_config.ryuk_disabled", True)


def test_the_readmes_example_for_python_runs(no_ryuk):
    readme = (ROOT / "fake-ec2/README.md").read_text()
    [example] = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert f"fake-ec2:{VERSION}" in example, "the README names this version"
    found = {}
    exec(compile(example, "fake-ec2/README.md", "exec"), found)
    found["test_launch"]()
