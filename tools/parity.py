#!/usr/bin/env python3
"""Compares our scheduler's decisions with those of upstream's, on fresh problems.

    python3 tools/parity.py DECIDE ORACLE_FOLDER --oracle PROGRAM [--seeds 77,2024]
    python3 tools/parity.py DECIDE ORACLE_FOLDER --corpus FILE

DECIDE is the program `decide` of controller-core's examples. ORACLE_FOLDER holds the
decision oracle: generate.py makes problems, PROGRAM (built from the folder with Go)
answers them with upstream's scheduler, compare.py compares, check.py knows the rules.
FILE holds problems of seed 1 with answers that were recorded before. What PROGRAM
answers is kept in --work, as it takes minutes.

Problems that docs/differences.md lists as decided otherwise on purpose are counted
apart; those that it lists as explained still count. Prints one row per seed, then
whatever is not explained; exits 1 if a figure is missed.
"""

import argparse
import contextlib
import importlib
import io
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Each figure with the least or the most that it may be, over the problems not decided otherwise on purpose.
LEAST = {"unschedulable": 100.0, "claims": 99.0, "exact": 97.0}
MOST = {"price-mean": 1.0, "price-worst": 1.01}
MOST_ON_PURPOSE = 10.0


def listed():
    """Of docs/differences.md: the ids decided otherwise on purpose, and those that are explained."""
    text = (ROOT / "docs/differences.md").read_text(encoding="utf-8")
    section = text.split("#### Against upstream's recorded decisions", 1)[1].split("\n### ", 1)[0]
    tables, seeds = [], []
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| reason"):
            seeds = [re.search(r"\d+", cell).group() for cell in cells[1:]]
            tables.append(set())
        elif line.startswith("|") and seeds:
            for seed, cell in zip(seeds, cells[1:]):
                tables[-1] |= {f"schedule-{seed}-{number}" for number in re.findall(r"\d{4}", cell)}
    return tables


def run(command, source, target):
    """Runs the program from one file to another; the target appears when it is whole."""
    partial = target.with_suffix(".part")
    with open(source, "rb") as given, open(partial, "wb") as taken:
        done = subprocess.run(command, stdin=given, stdout=taken, stderr=subprocess.PIPE, check=False)
    if done.returncode or done.stderr:
        sys.exit(f"{command[0]}: {done.stderr.decode()[-3000:]}")
    partial.rename(target)


def fresh(args, seed, work):
    """Problems of a seed with upstream's answers."""
    corpus = work / f"upstream-{seed}-{args.count}.jsonl"
    if not corpus.exists():
        if not args.oracle:
            sys.exit(f"--oracle is missing: the program that answers the problems of seed {seed}")
        problems = work / f"problems-{seed}-{args.count}.jsonl"
        command = [sys.executable, str(args.folder / "generate.py"), "schedule", "--seed", seed, "--count", str(args.count)]
        run(command, "/dev/null", problems)
        run([str(args.oracle), "-catalogues", str(args.folder), "-pair", "schedule"], problems, corpus)
    return corpus


class Row:
    """One corpus, decided by us, compared and checked."""

    def __init__(self, seed, corpus, args, work, tools):
        compare, check = tools
        records = list(compare.lines(str(corpus)))
        problems, answers = work / f"given-{seed}.jsonl", work / f"ours-{seed}.jsonl"
        problems.write_text("".join(json.dumps(record["problem"]) + "\n" for record in records), encoding="utf-8")
        run([str(args.decide), "--catalogues", str(args.folder), "--check"], problems, answers)
        ours = compare.answers(str(answers))
        on_purpose, explained = listed()
        counted = [record for record in records if record["answer"]["id"] not in on_purpose]
        self.seed, self.counted = seed, len(counted)
        self.on_purpose = 100 * (len(records) - len(counted)) / len(records)
        everything, self.differing = self.compared(compare, records, ours)
        self.report, _ = self.compared(compare, counted, ours)
        self.exact_of_all = everything["exact"]
        self.unexplained = [d for d in self.differing if d[0] not in on_purpose | explained]
        known = {record["answer"]["id"] for record in records} & (on_purpose | explained)
        self.stale = sorted(known - {identifier for identifier, _ in self.differing})
        referee = check.Referee()
        for record in records:
            referee.judge(record["problem"], ours[record["problem"]["id"]])
        self.checks, self.broken = sum(referee.checked.values()), referee.broken

    @staticmethod
    def compared(compare, records, ours):
        """The report of compare.py, and the problems on which ours is no outcome of upstream's."""
        with contextlib.redirect_stdout(io.StringIO()) as text:
            report = compare.compare_schedule(records, ours, len(records))
        differing = re.findall(r"^  (schedule-\S+): (.*)$", text.getvalue(), re.MULTILINE)
        return report, differing

    def missed(self):
        """Figures that are not as they should be."""
        missed = [f"{key} {self.report[key]:.2f} %, at least {least} % wanted" for key, least in LEAST.items() if self.report[key] < least]
        missed += [f"{key} {self.report[key]:.4f}, at most {most} wanted" for key, most in MOST.items() if self.report[key] > most]
        if self.on_purpose >= MOST_ON_PURPOSE:
            missed.append(f"{self.on_purpose:.1f} % on purpose, less than {MOST_ON_PURPOSE} % wanted")
        missed += [f"broken: {text}" for text in self.broken]
        missed += [f"{identifier} is listed as different and is not" for identifier in self.stale]
        return missed

    def text(self):
        report = self.report
        return (
            f"{self.seed:>6} {self.counted:9} {self.on_purpose:8.1f} % {report['unschedulable']:11.2f} % {report['claims']:8.2f} % "
            f"{report['exact']:6.2f} % {self.exact_of_all:8.2f} % {report['price-mean']:7.4f} {report['price-worst']:7.4f} "
            f"{self.checks:8} {len(self.broken):6}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("decide", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--oracle", type=pathlib.Path, help="the oracle's program")
    parser.add_argument("--corpus", type=pathlib.Path, help="problems of seed 1 with recorded answers")
    parser.add_argument("--seeds", default="", help="fresh problems to make, such as 77,2024")
    parser.add_argument("--count", type=int, default=400, help="how many of each seed")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/tmp/parity"), help="where answers are kept")
    args = parser.parse_args()
    args.decide, args.folder = args.decide.resolve(), args.folder.resolve()
    args.work.mkdir(parents=True, exist_ok=True)
    sys.dont_write_bytecode = True  # The oracle's folder may be read-only, and is not ours.
    sys.path.insert(0, str(args.folder))
    tools = [importlib.import_module(name) for name in ("compare", "check")]
    corpora = [("1", args.corpus)] if args.corpus else []
    corpora += [(seed, fresh(args, seed, args.work)) for seed in args.seeds.split(",") if seed]
    print("  seed   counted on purpose same refused same nodes  exact  exact, all   price   worst   checks broken")
    rows = []
    for seed, corpus in corpora:
        rows.append(Row(seed, corpus, args, args.work, tools))
        print(rows[-1].text(), flush=True)
    for row in rows:
        for identifier, difference in row.unexplained:
            print(f"not explained: {identifier}: {difference[:400]}")
    missed = [f"seed {row.seed}: {text}" for row in rows for text in row.missed()]
    print("\n".join(missed))
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
