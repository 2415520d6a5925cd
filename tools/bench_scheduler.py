#!/usr/bin/env python3
"""Times the scheduler on the workloads that upstream times its own with.

    python3 tools/bench_scheduler.py DECIDE [--oracle ORACLE] [--pods 50,500,5000]

DECIDE is the program `decide` of controller-core's examples; ORACLE, where there
is one, answers the same problems with upstream's scheduler. Both read the same
file. The shapes are upstream's scheduling_benchmark_test.go in words: 400 types of
n vCPU, 2n GiB and 10n pods; one pool; pods of which a fifth each is plain, spread
over zones, spread over hosts, near its own kind by zone, and apart from its own
kind by host; and 4,000 equal pods whose wishes cannot all be met. Others are our own:
a cluster in use, with what a region really sells, 2,000 nodes with 20,000 pods, and a
batch of 200 more; 100,000 pods; ten thousand values of a label; requirements of a
thousand values. Times are medians of the decision alone; memory is the whole program's.
"""

import argparse
import gzip
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

NOW = "2026-06-01T12:00:00Z"
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
CPU = ["100m", "250m", "500m", "1", "1500m"]
MEMORY = ["100Mi", "256Mi", "512Mi", "1Gi", "2Gi", "4Gi"]
VALUES = list("abcdefg")
RACK = "example.com/rack"
# What one region sells, with prices.
REAL_CATALOGUE = pathlib.Path(__file__).resolve().parent.parent / "controller/core/tests/data/parity/catalogue.json.gz"
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
            "limits": {"cpu": "1000000000", "memory": "1000000000Gi"},
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


def problem(name, pods, catalogue="catalogue-bench", node_pool=None, **more):
    return {"id": name, "now": NOW, "catalogue": catalogue, "nodePools": [node_pool or pool()], "pods": pods, **more}


def in_use(nodes, bound, batch):
    """Nodes of a genuine type that are nearly full, and a batch of which some fits; new ones may be of any genuine type."""
    draw = random.Random(7)
    packed = REAL_CATALOGUE.read_bytes()
    kind = next(t for t in json.loads(gzip.decompress(packed))["instanceTypes"] if t["name"] == "m5.2xlarge")
    described = {key: values[0] for key, values in kind["requirements"].items() if len(values) == 1}
    zones = sorted({offering["zone"] for offering in kind["offerings"]})
    amounts = {"cpu": "7910m", "memory": "29Gi", "pods": kind["capacity"]["pods"]}
    status = {"capacity": kind["capacity"], "allocatable": amounts}
    records = []
    for n in range(nodes):
        name = f"node-{n}"
        labels = {
            **described,
            "karpenter.sh/nodepool": "default",
            "karpenter.sh/registered": "true",
            "karpenter.sh/initialized": "true",
            "karpenter.sh/capacity-type": "on-demand",
            "karpenter.k8s.aws/ec2nodeclass": "default",
            HOST: name,
            ZONE: zones[n % len(zones)],
        }
        conditions = [
            {"type": t, "status": "True", "reason": t, "message": "", "lastTransitionTime": NOW}
            for t in ("Launched", "Registered", "Initialized")
        ]
        claim_spec = dict(pool()["spec"]["template"]["spec"], resources={})
        provider_id = f"aws:///{labels[ZONE]}/i-{n:017x}"
        records.append(
            {
                "node": {
                    "metadata": {"name": name, "labels": labels},
                    "spec": {"providerID": provider_id},
                    "status": dict(status, conditions=[{"type": "Ready", "status": "True"}]),
                },
                "nodeClaim": {
                    "metadata": {"name": name, "labels": labels},
                    "spec": claim_spec,
                    "status": dict(status, providerID=provider_id, nodeName=name, conditions=conditions),
                },
                "pods": [
                    pod(f"running-{n}-{i}", {"my-label": draw.choice(VALUES)}, {"cpu": "750m", "memory": "1Gi"})
                    for i in range(bound // nodes)
                ],
            }
        )
    return problem(f"in-use-{nodes}-nodes-{batch}-pods", diverse(batch), catalogue="catalogue", nodes=records)


def racks(count):
    """A pool that offers so many values of a label, and a pod for each of them."""
    node_pool = pool()
    values = [f"rack-{n}" for n in range(count)]
    node_pool["spec"]["template"]["spec"]["requirements"] = [{"key": RACK, "operator": "In", "values": values}]
    pods = [pod(f"pod-{n}", {}, {"cpu": "1", "memory": "1Gi"}, nodeSelector={RACK: value}) for n, value in enumerate(values)]
    return problem(f"label-values-{count}", pods, node_pool=node_pool)


def long_requirements(values, count):
    """Pods that each list so many values, a thousand times different, of a label that a pool has freely."""
    node_pool = pool()
    node_pool["spec"]["template"]["spec"]["requirements"] = [{"key": RACK, "operator": "Exists"}]
    pods = []
    for n in range(count):
        wanted = {"key": RACK, "operator": "In", "values": [f"rack-{n % 1000 + v}" for v in range(values)]}
        required = {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        pods.append(pod(f"pod-{n}", {}, {"cpu": "1", "memory": "1Gi"}, affinity=affinity))
    return problem(f"requirement-of-{values}-values", pods, node_pool=node_pool)


class OutOfTime(Exception):
    """The program gave up after the minute that upstream allows itself."""


# Run by a process of its own: a child's peak begins with what its parent has, and this one holds the problems.
MEASURE = """
import os, sys
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(child, 0)
print(usage.ru_maxrss, file=sys.stderr)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def run(command, folder, line):
    """The program's answer and the most memory that it had, in MiB."""
    command = [sys.executable, "-c", MEASURE, *command]
    done = subprocess.run(command, input=line, cwd=folder, capture_output=True, text=True, check=False)
    if "deadline exceeded" in done.stderr:
        raise OutOfTime
    if done.returncode:
        sys.exit(f"{command[3]}: {done.stderr[-2000:]}")
    return json.loads(done.stdout), int(done.stderr.split()[-1]) / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("decide")
    parser.add_argument("--oracle", help="upstream's scheduler behind the same form")
    parser.add_argument("--pods", default="50,500,5000,10000,20000")
    parser.add_argument("--oracle-most", type=int, default=5000, help="larger problems are not given to the oracle")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--only", default="", help="only workloads whose name begins so")
    args = parser.parse_args()
    decide = str(pathlib.Path(args.decide).resolve())
    problems = [problem(f"diverse-{n}", diverse(n)) for n in map(int, args.pods.split(","))]
    problems += [problem("preference-4000", preference(4000)), in_use(2000, 20000, 200)]
    problems += [problem("diverse-100000", diverse(100_000)), racks(10_000), long_requirements(1000, 5000)]
    print(f"{'workload':28} {'pods':>6} {'nodes':>6} {'left':>5} {'ms':>9} {'µs/pod':>8} {'pods/s':>9} {'peak MiB':>8} {'upstream/s':>10} {'ratio':>7}")
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "catalogue-bench.json").write_text(json.dumps(catalogue()))
        shutil.copy(REAL_CATALOGUE, folder)
        for each in (each for each in problems if each["id"].startswith(args.only)):
            line = json.dumps(each) + "\n"
            answer, peak = run([decide, "--catalogues", folder, "--repeat", str(args.repeat)], folder, line)
            pods, outcome = answer["pods"], answer["outcomes"][0]
            nanos = answer["solveNs"]
            left = sum(r["count"] for r in outcome["unschedulable"].values())
            theirs, ratio = "", ""
            if args.oracle and pods <= args.oracle_most and not each.get("nodes"):
                try:
                    upstream, _ = run([args.oracle, "-catalogues", folder, "schedule"], folder, line)
                    rate = pods / (upstream["solveNs"] / 1e9)
                    theirs, ratio = f"{rate:.0f}", f"{upstream['solveNs'] / nanos:.0f}×"
                except OutOfTime:
                    theirs, ratio = f"<{pods / 60:.0f}", f">{60e9 / nanos:.0f}×"
            print(
                f"{each['id']:28} {pods:6} {outcome['claims']:6} {left:5} {nanos / 1e6:9.2f} {nanos / 1e3 / pods:8.1f} "
                f"{pods / (nanos / 1e9):9.0f} {peak:8.0f} {theirs:>10} {ratio:>7}",
                flush=True,
            )


if __name__ == "__main__":
    main()
