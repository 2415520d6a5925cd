#!/usr/bin/env python3
"""Prints docs/fidelity.md from the `// fidelity:` marks and the ignored parameters in fake-ec2/src, and from the accepted
differences in fake-kube/contract; `--check` compares it with the file."""

import difflib, pathlib, re, sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE, TARGET = ROOT / "fake-ec2/src", ROOT / "docs/fidelity.md"
KIND = re.compile(r"(?:^|; )(documented|observed|assumed)(?=[(:])")
CONTRACT = ROOT / "fake-kube/contract"
INTRODUCTION = """# How faithful the fakes are

Written by `tools/fidelity.py` from the marks in `fake-ec2/src` and from the sequences in `fake-kube/contract`; change
those. The first four tables are about fake-ec2, where a behaviour without a sentence is named by its function; the last is
about fake-kube, which is compared with a genuine API server by `make contract`.
"""
IGNORED = """
## Parameters accepted but not acted on ({count})

A request with one of them is carried out as if it were not there (some are told again where the resource is described), and
the log says so at level info. Any other parameter
that is not known is refused.

| action, or what reads it | parameters | why |
|---|---|---|
"""
KUBE = """
## fake-kube: accepted differences ({count})

`make contract` plays every sequence of requests to fake-kube and to the genuine kube-apiserver of the version in
`tools/versions`, and compares status, headers and body of every reply and every event of watches. Uids, times and
revisions are masked. What fake-kube leaves out altogether is listed in
[its README](../fake-kube/README.md#known-gaps).

| difference | where | sequences |
|---|---|---|
"""
TITLES = {
    "documented": "AWS documents it; the page is named.",
    "observed": "Seen in practice; when and where is named.",
    "assumed": "Nobody promises it. A test should not rest on it.",
}


def balanced(text):
    """The text inside the parentheses that `text` begins with, and what follows them."""
    depth = 0
    for index, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return text[1:index], text[index + 1 :]
    sys.exit(f"fidelity mark with an open parenthesis: {text}")


def subject(lines, first, last):
    """What a mark without a sentence is about: the doc comment above it, else the item below it."""
    if first > 0 and (doc := re.match(r"\s*///\s*(.*)", lines[first - 1])):
        return doc[1]
    item = re.search(r"\b(?:fn|const|enum|struct|impl)\s+(\w+)", " ".join(lines[last : last + 3]))
    return f"`{item[1]}`" if item else "the whole file"


def marks(path):
    """Every (kind, page, sentence) of a file."""
    lines = path.read_text().splitlines()
    for first, line in enumerate(lines):
        lead, found, text = line.partition("// fidelity: ")
        if not found:
            continue
        more = re.compile(r"\s*//!\s+(?!//)(.+)" if "//!" in lead else r"\s*//\s+(?!fidelity:)(.+)")
        last = first + 1
        while last < len(lines) and (rest := more.fullmatch(lines[last])):
            text, last = f"{text} {rest[1]}", last + 1
        pieces = KIND.split(text)[1:]
        for kind, piece in zip(pieces[::2], pieces[1::2]):
            page, piece = balanced(piece) if piece.startswith("(") else ("", piece)
            name, _, detail = page.partition(": ")
            page, detail = (page, "") if ";" in name else (name, detail)  # Of several pages, one has the colon.
            said = [part for part in (detail, piece.strip(" ;:.")) if part]
            yield kind, page, "; ".join(said) or subject(lines, first, last)


def ignored():
    """Every (reader, reason, parameters) of `Query::ignore` and `Query::keep`."""
    found = {}
    for path in sorted((SOURCE / "actions").rglob("*.rs")):
        text = path.read_text()
        for call in re.finditer(r'\.(?:ignore|keep)\(\s*"([^"]+)",\s*&\[(.*?)\],?\s*\)', text, re.S):
            function = re.findall(r"\bfn (\w+)", text[: call.start()])[-1]
            action = "".join(word.capitalize() for word in function.split("_"))
            is_action = re.search(rf'"{action}"', "".join(file.read_text() for file in path.parent.glob("*.rs")))
            reader = action if is_action else f"`{path.relative_to(SOURCE).as_posix()}`, `{function}`"
            found.setdefault((reader, call[1]), set()).update(re.findall(r'"([^"]+)"', call[2]))
    return sorted((reader, reason, sorted(names)) for (reader, reason), names in found.items())


def accepted():
    """Every (reason, places, sequences) that the sequences accept, and what the masks accept everywhere."""
    found = {}
    for path in sorted((CONTRACT / "sequences").rglob("*.yaml")):
        for braces in re.findall(r"differs: \{(.*?)\}(?:\}|$)", path.read_text(), re.M):
            for place, quoted, plain in re.findall(r'(/[\w/*~-]*): *(?:"([^"]*)"|([^,}]*))', braces):
                places, sequences = found.setdefault((quoted or plain).strip().rstrip("."), (set(), set()))
                places.add(re.sub(r"^/(body|headers|events)", r"\1", place))
                sequences.add(path.stem)
    for path in sorted((CONTRACT / "src").glob("*.rs")):
        for mark in re.findall(r"// accepted: (.*(?:\n\s*// .*)*)", path.read_text()):
            sentence = re.sub(r"\n\s*// ", " ", mark).strip().rstrip(".")
            found[sentence] = ({"everywhere"}, {"all"})
    return sorted((reason, sorted(places), sorted(sequences)) for reason, (places, sequences) in found.items())


def document():
    rows = {kind: set() for kind in TITLES}
    for path in SOURCE.rglob("*.rs"):
        for kind, page, sentence in marks(path):
            rows[kind].add((page, sentence.rstrip("."), path.relative_to(SOURCE).as_posix()))
    text = INTRODUCTION
    for kind, found in rows.items():
        text += f"\n## {kind.capitalize()} ({len(found)})\n\n{TITLES[kind]}\n\n"
        text += "| behaviour | page | file |\n|---|---|---|\n"
        for page, sentence, file in sorted(found):
            text += "| {} | {} | `{}` |\n".format(*(cell.replace("|", "\\|") for cell in (sentence, page or "–", file)))
    rows = ignored()
    text += IGNORED.format(count=sum(len(names) for _, _, names in rows))
    for reader, reason, names in rows:
        text += f"| {reader} | {', '.join(names)} | {reason} |\n"
    rows = accepted()
    text += KUBE.format(count=len(rows))
    for reason, places, sequences in rows:
        text += f"| {reason} | {', '.join(f'`{place}`' for place in places)} | {', '.join(sequences)} |\n"
    return text


if "--check" in sys.argv[1:]:
    present = TARGET.read_text() if TARGET.exists() else ""
    if difference := list(difflib.unified_diff(present.splitlines(), document().splitlines(), lineterm="", n=0)):
        print(*difference, sep="\n")
        sys.exit("docs/fidelity.md is out of date; run: python3 tools/fidelity.py > docs/fidelity.md")
else:
    print(document(), end="")
