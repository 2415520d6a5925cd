#!/usr/bin/env python3
"""Start and memory of the images in containers, as medians of several runs: the figures of deploy/images/README.md.

Start is counted from the moment Docker gives for the container's start until the program answers. Memory is what the
process holds (VmRSS of its first process), of which the anonymous part (RssAnon) is its own and the rest its file.
"""

import datetime
import pathlib
import statistics
import sys
import time

from conftest import SERVE, Container, beside, docker, eventually, get, image

RUNS = 9


def main():
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    print(f"medians of {runs} runs      start ms   (least–most)   VmRSS MiB  RssAnon MiB")
    report("fake-ec2", [fake_ec2() for _ in range(runs)])
    cluster = Container(*SERVE)
    try:
        report("controller", [controller(cluster) for _ in range(runs)])
    finally:
        docker("rm", "--force", "--volumes", cluster.id)


def fake_ec2():
    container = Container("--publish", "127.0.0.1::4566", image("fake-ec2"), "--bootstrap", "demo")
    return measured(container, f"http://127.0.0.1:{container.port(4566)}/_trysquare/health")


def controller(cluster):
    container = Container(*beside(cluster), image("controller"))
    return measured(container, f"http://127.0.0.1:{cluster.port(8081)}/readyz")


def measured(container, url):
    try:
        eventually(lambda: get(url), pause_s=0.002)
        answered = datetime.datetime.now(datetime.UTC)
        state = container.inspect()["State"]
        started = datetime.datetime.fromisoformat(state["StartedAt"][:26].rstrip("Z") + "+00:00")
        # What a start allocates and gives back at once is not of interest.
        time.sleep(3)
        status = pathlib.Path(f"/proc/{state['Pid']}/status").read_text()
        kib = {line.split(":")[0]: int(line.split()[1]) for line in status.splitlines() if line.endswith(" kB")}
        return (answered - started).total_seconds() * 1000, kib["VmRSS"] / 1024, kib["RssAnon"] / 1024
    finally:
        docker("stop", "--time", 10, container.id)
        docker("rm", "--force", container.id)


def report(name, runs):
    starts, resident, own = zip(*runs)
    spread = f"({min(starts):.0f}–{max(starts):.0f})"
    print(f"{name:22} {statistics.median(starts):11.0f} {spread:>14} {statistics.median(resident):11.1f} {statistics.median(own):12.1f}")


if __name__ == "__main__":
    main()
