#!/usr/bin/env python3
"""Writes this folder's tables from the shared catalogue (README.md beside this file says where that comes from).

Usage: generate.py CATALOGUE_FOLDER. Standard library only. The output needs no parsing at start: an instance type is one
line of facts followed by the XML that DescribeInstanceTypes answers for it, ready to be copied to the wire."""
import csv, json, pathlib, sys
from xml.sax.saxutils import escape

source, here = pathlib.Path(sys.argv[1]), pathlib.Path(__file__).parent


def rows(name):
    with open(source / name, newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file, delimiter="\t")


def element(name):
    """The API's member name as EC2 spells it on the wire: the first letter changes, and three lists are named as sets."""
    sets = {"InterfaceTypes": "interfaceTypeSet", "EbsCards": "ebsCardSet", "Workloads": "workloadSet"}
    return sets.get(name, name[0].lower() + name[1:])


def number(value):
    return str(int(value)) if isinstance(value, float) and value == int(value) and abs(value) < 1e15 else str(value)


def render(value):
    if isinstance(value, dict):
        return "".join(f"<{element(k)}>{render(v)}</{element(k)}>" for k, v in value.items())
    if isinstance(value, list):
        return "".join(f"<item>{render(v)}</item>" for v in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return escape(value) if isinstance(value, str) else number(value)


def facts(t):
    network, gpus = t["NetworkInfo"], t.get("GpuInfo", {}).get("Gpus", [])
    cards = {card["NetworkCardIndex"]: card["MaximumNetworkInterfaces"] for card in network["NetworkCards"]}
    neuron = t.get("NeuronInfo", {}).get("NeuronDevices", [])
    return [
        t["InstanceType"],
        number(t["VCpuInfo"]["DefaultVCpus"]),
        number(t["MemoryInfo"]["SizeInMiB"]),
        ",".join(t["ProcessorInfo"]["SupportedArchitectures"]),
        ",".join(t["SupportedUsageClasses"]),
        ",".join(t["SupportedVirtualizationTypes"]),
        t.get("Hypervisor", ""),
        "true" if t["BareMetal"] else "false",
        "true" if t["CurrentGeneration"] else "false",
        number(cards[network["DefaultNetworkCardIndex"]]),
        number(network["MaximumNetworkInterfaces"]),
        number(network["Ipv4AddressesPerInterface"]),
        number(network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0)),
        ";".join(f"{g['Manufacturer']}:{g['Name']}:{g['Count']}:{g['MemoryInfo']['SizeInMiB']}" for g in gpus),
        ";".join(f"{d['Name']}:{d['Count']}:{d['CoreInfo']['Count']}" for d in neuron),
        number(t.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0)),
    ]


offered = {row["instance_type"] for row in rows("offerings.tsv")}
with open(source / "instance-types.jsonl", encoding="utf-8") as file:
    types = [json.loads(line) for line in file]
types = sorted((t for t in types if t["InstanceType"] in offered), key=lambda t: t["InstanceType"])
with open(here / "instance-types.tsv", "w", encoding="utf-8") as out:
    for t in types:
        out.write("\t".join(facts(t) + [render(t)]) + "\n")

on_demand = {(r["region"], r["instance_type"]): r for r in rows("on-demand.tsv")}
spot = {(r["region"], r["instance_type"]): r for r in rows("spot.tsv")}
for region in sorted({row["region"] for row in rows("offerings.tsv")}):
    with open(here / f"offerings-{region}.tsv", "w", encoding="utf-8") as out:
        for row in (r for r in rows("offerings.tsv") if r["region"] == region):
            price, market = (table.get((region, row["instance_type"]), {}) for table in (on_demand, spot))
            out.write("\t".join([
                row["instance_type"],
                row["zones"],
                price.get("usd_per_hour", ""),
                price.get("metal_dedicated_usd_per_hour", ""),
                market.get("interruption_band", ""),
                market.get("zone_usd_per_hour", ""),
            ]) + "\n")
with open(here / "zones.tsv", "w", encoding="utf-8") as out:
    for row in rows("zones.tsv"):
        out.write(f"{row['region']}\t{row['zone']}\t{row['zone_id']}\n")
