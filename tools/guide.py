#!/usr/bin/env python3
"""Runs a guide as a reader would: every block, in order, and compares what comes with what the guide shows.

    tools/guide.py [--keep-going] [FILE…]      docs/guide/*.md in the order of their names by default

A block is fenced with ```console. A line that begins with "$ " is a command ("> " continues it); the lines after it are
its whole output, standard error included. In them "…" stands for anything within a line, and a line of "…" alone for any
number of lines. The first word after ```console says more:

    ```console background     the command stays; its output is waited for, line by line, and it ends with the guide
    ```console exit=1         the last command of the block ends with this code instead of 0
    ```console retry          the last command is tried again for a minute until its output is right

A block fenced with ```sh run is for pasting as a whole: each of its commands must succeed, whatever it prints. Other blocks,
```sh alone among them, are not run: they need what is not here, such as an account that costs money.

All other commands of all files share one shell, as one terminal would. Needs trysquare, kubectl, aws and a python3 with boto3 on the PATH.
Exit codes: 0 all as shown, 1 something differs, 2 wrong usage.
"""

import argparse
import os
import pathlib
import queue
import re
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# A command of the guide takes seconds; one that hangs must not hang CI.
COMMAND_LIMIT_S = 120
BACKGROUND_LIMIT_S = 180
RETRY_LIMIT_S = 60
RETRY_PAUSE_S = 1
END = "guide-command-ended"


class Differs(Exception):
    """What came is not what the guide shows."""


def blocks(path):
    """Yields (line number, words after ```, lines) of every block that is to be run."""
    found, words, start = None, [], 0
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if found is None and (line.startswith("```console") or line.split() == ["```sh", "run"]):
            found, words, start = [], line[len("```"):].split(), number
        elif found is not None and line.startswith("```"):
            yield start, words, found
            found = None
        elif found is not None:
            found.append((number, line))
    if found is not None:
        raise SystemExit(f"{path}:{start}: the block does not end")


def commands(words, lines):
    """Splits a block into (line number, command, expected lines)."""
    if words == ["sh", "run"]:
        script = "\n".join(line for _, line in lines)
        return [(lines[0][0], f"failed=0; trap failed=1 ERR\n{script}\ntrap - ERR; (exit $failed)", ["…"])]
    result = []
    for number, line in lines:
        if line.startswith("$ "):
            result.append((number, line[2:], []))
        elif line.startswith("> ") and result and not result[-1][2]:
            result[-1] = (result[-1][0], result[-1][1] + "\n" + line[2:], [])
        elif result:
            result[-1][2].append(line)
        else:
            raise SystemExit(f"line {number}: a block begins with a command, not with {line!r}")
    return result


def pattern(line):
    """The expected line as a regular expression. Columns are as wide as their widest cell, so several blanks match any number."""
    parts = (re.sub(r"(\\ ){2,}", r"\\s+", re.escape(part)) for part in line.rstrip().split("…"))
    return re.compile(".*".join(parts) + r"\s*")


def matches(expected, lines):
    """Whether the lines are the expected ones, "…" standing for anything."""
    if not expected:
        return not lines
    if expected[0].strip() == "…":
        return any(matches(expected[1:], lines[skipped:]) for skipped in range(len(lines) + 1))
    return bool(lines) and bool(pattern(expected[0]).fullmatch(lines[0])) and matches(expected[1:], lines[1:])


class Lines:
    """The lines of a stream as they come."""

    def __init__(self, stream):
        self.queue = queue.Queue()
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream):
        for line in stream:
            self.queue.put(line.rstrip("\n"))
        self.queue.put(None)

    def next(self, limit):
        """The next line; None at the end of the stream; raises queue.Empty when none comes in time."""
        return self.queue.get(timeout=max(0.0, limit))


class Shell:
    """The reader's terminal."""

    def __init__(self):
        self.process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, cwd=ROOT, start_new_session=True)
        self.lines = Lines(self.process.stdout)

    def run(self, command):
        """Runs a command and answers (exit code, lines)."""
        # Standard input is the script itself, which no command may eat.
        self.process.stdin.write("{ " + command + "\n} </dev/null\ncode=$?; echo; echo " + END + " $code\n")
        self.process.stdin.flush()
        lines, deadline = [], time.monotonic() + COMMAND_LIMIT_S
        while True:
            try:
                line = self.lines.next(deadline - time.monotonic())
            except queue.Empty:
                raise Differs(f"nothing more came within {COMMAND_LIMIT_S} s after:\n" + "\n".join(lines)) from None
            if line is None:
                raise Differs("the shell ended:\n" + "\n".join(lines))
            if line.startswith(END + " "):
                # The empty line is ours.
                return int(line.split()[1]), lines[:-1] if lines and not lines[-1] else lines
            lines.append(line)


class Background:
    """A command in a terminal of its own."""

    def __init__(self, command):
        self.process = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-c", "exec " + command], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, start_new_session=True)
        self.lines = Lines(self.process.stdout)

    def expect(self, expected):
        """Waits for the expected lines, in this order; others may come between where "…" stands alone."""
        seen, deadline, skipping = [], time.monotonic() + BACKGROUND_LIMIT_S, False
        for wanted in expected:
            if wanted.strip() == "…":
                skipping = True
                continue
            while True:
                try:
                    line = self.lines.next(deadline - time.monotonic())
                except queue.Empty:
                    line = None
                if line is None:
                    raise Differs(f"expected {wanted!r}, but got:\n" + "\n".join(seen[-30:]))
                seen.append(line)
                if pattern(wanted).fullmatch(line):
                    skipping = False
                    break
                if not skipping:
                    raise Differs(f"expected {wanted!r}, but got {line!r}")

    def end(self):
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise Differs(f"it did not end within 10 s of Ctrl-C") from None


def run_command(shell, command, expected, code, retry):
    deadline = time.monotonic() + (RETRY_LIMIT_S if retry else 0)
    while True:
        got, lines = shell.run(command)
        if got == code and matches(expected, lines):
            return
        if time.monotonic() >= deadline:
            break
        time.sleep(RETRY_PAUSE_S)
    shown = "\n".join(f"    {line}" for line in lines) or "    (nothing)"
    wanted = "\n".join(f"    {line}" for line in expected) or "    (nothing)"
    raise Differs(f"exit code {got}, expected {code}\n  the guide shows:\n{wanted}\n  it prints:\n{shown}")


def run_file(path, shell, background, keep_going):
    """Runs a file's blocks; answers how many commands were as shown and how many differed."""
    right = wrong = 0
    for _, words, lines in blocks(path):
        listed = commands(words, lines)
        for index, (number, command, expected) in enumerate(listed):
            last = index == len(listed) - 1
            code = next((int(word[5:]) for word in words if word.startswith("exit=")), 0) if last else 0
            started = time.monotonic()
            try:
                if "background" in words:
                    background.append(Background(command))
                    background[-1].expect(expected)
                else:
                    run_command(shell, command, expected, code, "retry" in words and last)
                right += 1
                shown = lines[0][1] if words == ["sh", "run"] else command.splitlines()[0]
                print(f"as shown  {path.name}:{number}  {shown}  ({time.monotonic() - started:.1f} s)", flush=True)
            except Differs as difference:
                wrong += 1
                print(f"DIFFERS   {path.name}:{number}  {command}\n  {difference}", flush=True)
                if not keep_going:
                    return right, wrong
    return right, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    parser.add_argument("--keep-going", action="store_true", help="go on after the first difference")
    arguments = parser.parse_args()
    files = arguments.files or sorted((ROOT / "docs/guide").glob("*.md"))
    missing = [str(path) for path in files if not path.is_file()]
    if missing or not files:
        parser.error(f"no such file: {', '.join(missing) or 'docs/guide/*.md'}")
    shell, background, right, wrong = Shell(), [], 0, 0
    try:
        for path in files:
            passed, differed = run_file(path, shell, background, arguments.keep_going)
            right, wrong = right + passed, wrong + differed
            if wrong and not arguments.keep_going:
                break
    finally:
        shell.process.kill()
        for process in background:
            try:
                code = process.end()
                if code != 0:
                    raise Differs(f"it ended with code {code}")
            except Differs as difference:
                wrong += 1
                print(f"DIFFERS   the command in the background: {difference}")
    print(f"guide: {right} passed, {wrong} failed")
    return 1 if wrong or not right else 0


if __name__ == "__main__":
    sys.exit(main())
