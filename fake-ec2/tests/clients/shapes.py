"""Answers against the shapes that AWS publishes with botocore.

botocore passes over what it does not know, so that a misspelt element is an absent one. `check` refuses it: every element or
member of an answer has to be in the output shape, in its place and of its type. Every client of conftest.py has it on.
"""

import json
import xml.etree.ElementTree

from botocore.utils import parse_timestamp

# Enumerations that EC2 does not keep to: new instance types are named every week, and the platform of an image is `windows`,
# as the API Reference of DescribeImages says.
OPEN_ENUMERATIONS = {"InstanceType", "PlatformValues"}


class Wrong(AssertionError):
    """An answer is not as its shape says."""


def check(response_dict, operation, protocol):
    """Raises Wrong if a successful answer has anything that the operation's output shape does not have."""
    if response_dict["status_code"] != 200 or operation.output_shape is None:
        return
    shape, body = operation.output_shape, response_dict["body"]
    if protocol in ("ec2", "query"):
        root = xml.etree.ElementTree.fromstring(body)
        expect(local(root), f"{operation.name}Response", operation.name)
        if protocol == "ec2":
            # The API Reference has a `return` in some answers that no SDK reads.
            children = [child for child in root if local(child) not in ("requestId", "return")]
        else:
            children = [child for child in root if local(child) != "ResponseMetadata"]
            if wrapper := shape.serialization.get("resultWrapper"):
                expect([local(child) for child in children], [wrapper], operation.name)
                children = list(children[0])
        of_structure(shape, children, operation.name)
    elif body:
        of_json(shape, json.loads(body), operation.name)


def register(client):
    """Checks every answer that this client gets."""
    protocol = client.meta.service_model.protocol

    # The event that carries the answer carries the context of the call, but not its operation.
    def before(model, context, **_):
        context["operation"] = model

    def received(response_dict, context, exception, **_):
        if response_dict and exception is None:
            check(response_dict, context["operation"], protocol)

    client.meta.events.register("before-call", before)
    client.meta.events.register("response-received", received)


def local(element):
    return element.tag.rpartition("}")[2]


def expect(got, wanted, where):
    if got != wanted:
        raise Wrong(f"{where}: expected {wanted}, and got {got}")


def of_xml(shape, element, where):
    kind = shape.type_name
    if kind == "structure":
        of_structure(shape, list(element), where)
    elif kind == "list":
        name = shape.member.serialization.get("name", "member")
        for child in element:
            expect(local(child), name, where)
            of_xml(shape.member, child, where)
    elif kind == "map":
        for entry in element:
            expect(local(entry), "entry", where)
            expect([local(child) for child in entry], ["key", "value"], where)
            of_xml(shape.value, entry[1], where)
    else:
        expect([local(child) for child in element], [], where)
        of_scalar(shape, element.text or "", where)


def of_structure(shape, children, where):
    members = {}
    for name, member in shape.members.items():
        flat = member.type_name in ("list", "map") and member.serialization.get("flattened")
        inner = member.member.serialization.get("name") if flat and member.type_name == "list" else None
        members[inner or member.serialization.get("name", name)] = (member, flat)
    seen = set()
    for child in children:
        name = local(child)
        if name not in members:
            raise Wrong(f"{where}: there is no <{name}> in {shape.name}; there are {', '.join(sorted(members))}")
        member, flat = members[name]
        if name in seen and not flat:
            raise Wrong(f"{where}: <{name}> is there twice")
        seen.add(name)
        below = f"{where}.{name}"
        if not flat:
            of_xml(member, child, below)
        elif member.type_name == "list":
            of_xml(member.member, child, below)
        else:
            expect(len(child), 2, below)
            of_xml(member.value, child[1], below)


def of_scalar(shape, text, where):
    kind = shape.type_name
    try:
        if kind in ("integer", "long"):
            int(text)
        elif kind in ("float", "double"):
            float(text)
        elif kind == "timestamp":
            parse_timestamp(text)
        elif kind == "boolean":
            expect(text in ("true", "false"), True, f"{where}: {text}")
    except ValueError as error:
        raise Wrong(f"{where}: {text!r} is not of type {kind}") from error
    of_enumeration(shape, text, where)


def of_enumeration(shape, text, where):
    values = getattr(shape, "enum", None)
    if values and text not in values and shape.name not in OPEN_ENUMERATIONS:
        raise Wrong(f"{where}: {text!r} is none of {', '.join(values)}")


JSON_TYPES = {
    "string": str,
    "boolean": bool,
    "integer": int,
    "long": int,
    "float": (int, float),
    "double": (int, float),
    "timestamp": (int, float, str),
    "blob": str,
}


def of_json(shape, value, where):
    kind = shape.type_name
    if kind == "structure":
        if not isinstance(value, dict):
            raise Wrong(f"{where}: expected an object, and got {value!r}")
        if shape.is_document_type:
            return
        members = {member.serialization.get("name", name): member for name, member in shape.members.items()}
        for name, member in value.items():
            if name not in members:
                raise Wrong(f"{where}: there is no {name} in {shape.name}; there are {', '.join(sorted(members))}")
            of_json(members[name], member, f"{where}.{name}")
    elif kind == "list":
        expect(type(value), list, where)
        for item in value:
            of_json(shape.member, item, where)
    elif kind == "map":
        expect(type(value), dict, where)
        for item in value.values():
            of_json(shape.value, item, where)
    else:
        if not isinstance(value, JSON_TYPES[kind]) or (kind != "boolean" and isinstance(value, bool)):
            raise Wrong(f"{where}: {value!r} is not of type {kind}")
        if kind == "string":
            of_enumeration(shape, value, where)
