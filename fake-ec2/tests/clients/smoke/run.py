"""Runs the smoke scripts, each against a fake-ec2 of its own, and tells how long each took.

    FAKE_EC2=PROGRAM run.py [NAME…]
"""

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import urllib.request

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[3]
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "trysquare/tools"


def output(*command, **more):
    """The last line that a program prints."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **more).stdout.strip().splitlines()[-1]


def versions():
    lines = (ROOT / "tools/versions").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def clients():
    """The programs of the newest boto3 and AWS command line."""
    return output(ROOT / "tools/clients.sh")


def older_clients():
    """The last boto3 and AWS command line that spoke SQS's query protocol."""
    pinned = versions()
    packages = [("awscli", "AWSCLI_QUERY"), ("boto3", "BOTO3_QUERY"), ("botocore", "BOTOCORE_QUERY")]
    return output(ROOT / "tools/python.sh", *(f"{name}=={pinned[key]}" for name, key in packages))


def boto3():
    return [f"{clients()}/python3", HERE / "boto3/smoke.py"]


def boto3_query():
    return [f"{older_clients()}/python3", HERE / "boto3/smoke.py", "--queues-only"]


def awscli():
    return ["env", f"PATH={clients()}:{os.environ['PATH']}", HERE / "awscli/smoke.sh"]


def awscli_query():
    return ["env", f"PATH={older_clients()}:{os.environ['PATH']}", HERE / "awscli/smoke.sh", "--queues-only"]


def go():
    program = CACHE / "smoke-go"
    CACHE.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"}
    subprocess.run(["go", "build", "-o", program, "."], cwd=HERE / "go", env=environment, check=True)
    return [program]


def javascript():
    """The packages are installed outside the checkout, and the script, which finds them by its own place, is copied to them."""
    lock = (HERE / "javascript/package-lock.json").read_bytes()
    folder = CACHE / f"smoke-javascript-{hashlib.sha256(lock).hexdigest()[:12]}"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(HERE / "javascript", folder, ignore=shutil.ignore_patterns("node_modules"))
        subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--silent"], cwd=folder, check=True)
        (folder / "complete").touch()
    shutil.copy(HERE / "javascript/smoke.mjs", folder)
    return ["node", "--no-warnings", folder / "smoke.mjs"]


def rust():
    """A test of the workspace, for it shares the one build of the SDK with everything else; it serves a fake-ec2 itself."""
    test = ["cargo", "test", "--quiet", "--workspace", "--test", "smoke"]
    subprocess.run([*test, "--no-run"], check=True)
    return [*test, "--", "--nocapture"]


SCRIPTS = {
    "boto3": boto3,
    "boto3, SQS query": boto3_query,
    "awscli": awscli,
    "awscli, SQS query": awscli_query,
    "go": go,
    "javascript": javascript,
    "rust": rust,
}


def smoke(program, command):
    """Whether the script ran to its end, and the seconds it took."""
    server = subprocess.Popen([program, "--format", "json", "--bootstrap", "demo"], stdout=subprocess.PIPE, text=True)
    try:
        started = json.loads(server.stdout.readline())
        # Instances end as slowly as AWS's; a script is not to wait half a minute for that.
        quick = json.dumps({"pace": {"shuttingDownMs": 1000}}).encode()
        urllib.request.urlopen(started["controlUrl"] + "reset", quick).close()
        # Nothing of whoever runs this: no profile, no other endpoint.
        own = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        own |= {"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": os.devnull}
        own |= {"AWS_SHARED_CREDENTIALS_FILE": os.devnull}
        began = time.monotonic()
        ended = subprocess.run(command, env=own | started["environment"], timeout=300)
        return ended.returncode == 0, time.monotonic() - began
    finally:
        server.terminate()
        server.wait(timeout=30)


def main():
    program = os.environ.get("FAKE_EC2") or sys.exit("FAKE_EC2 has to name the built program; `make clients-smoke` does so")
    names = sys.argv[1:] or list(SCRIPTS)
    if unknown := [name for name in names if name not in SCRIPTS]:
        sys.exit(f"there is no script {unknown[0]!r}; there are {', '.join(SCRIPTS)}")
    for name in names:
        command = SCRIPTS[name]()
        print(f"== {name}", flush=True)
        passed, seconds = smoke(program, command)
        if not passed:
            sys.exit(f"{name}: failed after {seconds:.1f} s")
        print(f"ok  {name}: {seconds:.1f} s", flush=True)


main()
