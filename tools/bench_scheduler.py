#!/usr/bin/env python3
"""Times the scheduler on the workloads that upstream times its own with.

    python3 tools/bench_scheduler.py DECIDE [--oracle ORACLE] [--pods 50,500,5000]

DECIDE is the program `decide` of controller-core's examples; ORACLE, where there
is one, answers the same problems with upstream's scheduler. Both read the same
file. The shapes are upstream's scheduling_benchmark_test.go in words: 400 types of
n vCPU, 2n GiB and 10n pods; one pool; pods of which a fifth each is plain, spread
over zones, spread over hosts, near its own kind by zone, and apart from its own
kind by host; and 4,000 equal pods whose wishes cannot all be met. A third workload
is a cluster in use: 2,000 nodes with 20,000 pods, and a batch of 200 more.
"""

import argparse
import json
import pathlib
import random
import resource
import subprocess
import sys
import tempfile

NOW = "2026-06-01T12:00:00Z"
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
CPU = ["100m", "250m", "500m", "1", "1500m"]
MEMORY = ["100Mi", "256Mi", "512Mi", "1Gi", "2Gi", "4Gi"]
VALUES = list("abcdefg")
ZONES = ["test-zone-1", "test-zone-2", "test-zone-3"]


def catalogue():
    types = []
    for n in range(1, 401):
        price = 0.1 * n + 0.1 * 2 * n * 1.073741824
        ways = [("spot", z) for z in ZONES[:2]] + [("on-demand", z) for z in ZONES]
        types.append(
            {
                "name": f"fake-it-{n - 1}",
                "requirements": {
                    "node.kubernetes.io/instance-type": [f"fake-it-{n - 1}"],
                    "kubernetes.io/arch": ["amd64"],
                    "kubernetes.io/os": ["linux"],
                    ZONE: ZONES,
                    "karpenter.sh/capacity-type": ["on-demand", "spot"],
                },
                "capacity": {"cpu": str(n), "memory": f"{2 * n}Gi", "pods": str(10 * n), "ephemeral-storage": "20Gi"},
                "overhead": {"kubeReserved": {"cpu": "100m", "memory": "10Mi"}, "systemReserved": {}, "evictionThreshold": {}},
                "offerings": [
                    {"zone": z, "zoneId": z, "capacityType": c, "price": round(price, 6), "available": True} for c, z in ways
                ],
            }
        )
    reservation = [f"karpenter.k8s.aws/capacity-reservation-{what}" for what in ("id", "type", "interruptible")]
    return {"region": "test", "wellKnownLabels": ["topology.k8s.aws/zone-id", *reservation], "instanceTypes": types}


def pod(name, labels, requests, **spec):
    spec["containers"] = [{"name": "main", "image": "main", "resources": {"requests": requests}}]
    return {"count": 1, "pod": {"metadata": {"name": name, "labels": labels}, "spec": spec}}


def diverse(count):
    draw = random.Random(42)

    def size():
        return {"cpu": draw.choice(CPU), "memory": draw.choice(MEMORY)}

    def spread(key):
        constraint = {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"my-label": draw.choice(VALUES)}},
        }
        return {"topologySpreadConstraints": [constraint]}

    def near():
        labels = {"my-affinity": draw.choice(VALUES)}
        term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": labels}}
        return labels, {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}

    apart = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "nginx"}}}
    apart = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}}
    pods = []
    for kind in range(5):
        for _ in range(count // 5):
            name, labels = f"pod-{len(pods)}", {"my-label": draw.choice(VALUES)}
            if kind == 1:
                pods.append(pod(name, labels, size(), **spread(ZONE)))
            elif kind == 2:
                pods.append(pod(name, labels, size(), **spread(HOST)))
            elif kind == 3:
                labels, spec = near()
                pods.append(pod(name, labels, size(), **spec))
            elif kind == 4:
                pods.append(pod(name, {"app": "nginx"}, size(), **apart))
            else:
                pods.append(pod(name, labels, size()))
    while len(pods) < count:
        pods.append(pod(f"pod-{len(pods)}", {"my-label": draw.choice(VALUES)}, size()))
    return pods


def preference(count):
    labels = {"app": "nginx"}

    def term(weight, key):
        return {"weight": weight, "podAffinityTerm": {"topologyKey": key, "labelSelector": {"matchLabels": labels}}}

    wanted = {"weight": 1, "preference": {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [ZONES[0]]}]}}
    affinity = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wanted]},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term(10, ZONE), term(1, HOST)]},
    }
    group = pod("pod", labels, {"cpu": "500m", "memory": "512Mi"}, affinity=affinity)
    return [dict(group, count=count)]


def pool():
    return {
        "metadata": {"name": "default"},
        "spec": {
            "limits": {"cpu": "10000000", "memory": "10000000Gi"},
            "disruption": {"consolidateAfter": "0s"},
            "template": {
                "spec": {
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                    "requirements": [],
                    "expireAfter": "720h",
                }
            },
        },
    }


def problem(name, pods, **more):
    return {"id": name, "now": NOW, "catalogue": "catalogue-bench", "nodePools": [pool()], "pods": pods, **more}


def in_use(nodes, bound, batch):
    """Nodes of 16 vCPU that are nearly full, and a batch of which some fits."""
    draw = random.Random(7)
    records = []
    for n in range(nodes):
        name, zone = f"node-{n}", ZONES[n % 3]
        labels = {
            "karpenter.sh/nodepool": "default",
            "karpenter.sh/registered": "true",
            "karpenter.sh/initialized": "true",
            "karpenter.sh/capacity-type": "on-demand",
            "karpenter.k8s.aws/ec2nodeclass": "default",
            "node.kubernetes.io/instance-type": "fake-it-7",
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            HOST: name,
            ZONE: zone,
        }
        amounts = {"cpu": "8", "memory": "16Gi", "pods": "80"}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
        conditions = [
            {"type": t, "status": "True", "reason": t, "message": "", "lastTransitionTime": NOW}
            for t in ("Launched", "Registered", "Initialized")
        ]
        claim_spec = dict(pool()["spec"]["template"]["spec"], resources={})
        records.append(
            {
                "node": {"metadata": {"name": name, "labels": labels}, "spec": {"providerID": f"fake:///{name}"}, "status": status},
                "nodeClaim": {
                    "metadata": {"name": name, "labels": labels},
                    "spec": claim_spec,
                    "status": {"providerID": f"fake:///{name}", "nodeName": name, "capacity": amounts, "allocatable": amounts, "conditions": conditions},
                },
                "pods": [
                    pod(f"running-{n}-{i}", {"my-label": draw.choice(VALUES)}, {"cpu": "750m", "memory": "1Gi"})
                    for i in range(bound // nodes)
                ],
            }
        )
    pods = diverse(batch)
    return problem(f"in-use-{nodes}-nodes-{batch}-pods", pods, nodes=records)


class OutOfTime(Exception):
    """The program gave up after the minute that upstream allows itself."""


def run(command, folder, line):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    done = subprocess.run(command, input=line, cwd=folder, capture_output=True, text=True, check=False)
    if "deadline exceeded" in done.stderr:
        raise OutOfTime
    if done.returncode:
        sys.exit(f"{command[0]}: {done.stderr[-2000:]}")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return json.loads(done.stdout), max(before, peak) / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("decide")
    parser.add_argument("--oracle", help="upstream's scheduler behind the same form")
    parser.add_argument("--pods", default="50,500,5000,10000,20000")
    parser.add_argument("--oracle-most", type=int, default=5000, help="larger problems are not given to the oracle")
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    decide = str(pathlib.Path(args.decide).resolve())
    problems = [problem(f"diverse-{n}", diverse(n)) for n in map(int, args.pods.split(","))]
    problems += [problem("preference-4000", preference(4000)), in_use(2000, 20000, 200)]
    print(f"{'workload':28} {'pods':>6} {'nodes':>6} {'left':>5} {'ms':>9} {'µs/pod':>8} {'pods/s':>9} {'peak MiB':>8} {'upstream/s':>10} {'ratio':>7}")
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "catalogue-bench.json").write_text(json.dumps(catalogue()))
        for each in problems:
            line = json.dumps(each) + "\n"
            answer, peak = run([decide, "--catalogues", folder, "--repeat", str(args.repeat)], folder, line)
            pods, outcome = answer["pods"], answer["outcomes"][0]
            nanos = answer["leastNs"]
            left = sum(r["count"] for r in outcome["unschedulable"].values())
            theirs, ratio = "", ""
            if args.oracle and pods <= args.oracle_most and not each.get("nodes"):
                try:
                    upstream, _ = run([args.oracle, "-catalogues", folder, "schedule"], folder, line)
                    rate = pods / (upstream["leastNs"] / 1e9)
                    theirs, ratio = f"{rate:.0f}", f"{upstream['leastNs'] / nanos:.0f}×"
                except OutOfTime:
                    theirs, ratio = f"<{pods / 60:.0f}", f">{60e9 / nanos:.0f}×"
            print(
                f"{each['id']:28} {pods:6} {outcome['claims']:6} {left:5} {nanos / 1e6:9.2f} {nanos / 1e3 / pods:8.1f} "
                f"{pods / (nanos / 1e9):9.0f} {peak:8.0f} {theirs:>10} {ratio:>7}",
                flush=True,
            )


if __name__ == "__main__":
    main()
