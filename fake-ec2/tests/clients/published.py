"""Comparing an answer with the one that AWS publishes for the same request.

Every member that the published answer has must be there and of the same type. Its value must be the same where it is AWS's word
(a state, a kind, a default) or the request names it; an id must be one of the same kind, an instant must read as one. The rest is
somebody's name, or a choice of those days.
"""

import datetime
import re

from botocore.utils import parse_timestamp

# Members that are somebody's words, not AWS's, or a choice of those days.
NAMES = {"Arn", "AvailabilityZone", "CidrBlock", "CreatedBy", "Description", "ImageLocation", "InstanceType", "Key"}
NAMES |= {"LaunchTemplateName", "Name", "OwnerId", "RootDeviceName", "SpotPrice", "Value", "VersionDescription", "Region"}
NAMES |= {"DeviceName", "VolumeType", "InstanceProfileName", "RoleName", "AssumeRolePolicyDocument", "KeyName", "UserData"}
NAMES |= {"Account", "Groups", "ProductDescription", "RegionName", "VirtualizationType", "ZoneName", "clusters"}
NAMES |= {"CapacityReservationArn", "ClientToken", "GroupName", "MacAddress", "PrivateDnsName", "PrivateIpAddress", "SubnetArn"}
NAMES |= {"Body", "MD5OfBody", "MD5OfMessageAttributes", "ReceiptHandle", "QueueUrl", "StringValue", "SentTimestamp"}
NAMES |= {"ApproximateFirstReceiveTimestamp", "ARN", "AccessKeyId", "SecretAccessKey", "SessionToken", "Audience"}
NAMES |= {"SubjectFromWebIdentityToken", "NextToken", "PriceList", "CidrIp", "CreationDate", "Location"}
NAMES |= {"endpoint", "issuer", "arn", "roleArn", "version", "platformVersion", "data", "name", "serviceIpv4Cidr"}

# As in `subnet-0bb1c79de3EXAMPLE`: what it is, and a number.
IDENTIFIER = re.compile(r"([a-z]+(?:-[a-z]+)*)-(?=[0-9a-zA-Z-]*[0-9])[0-9a-zA-Z-]{8,} ?")
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d.*")


def differences(published, got, where, absent, echoed=frozenset()):
    """What the published answer has and the answer has not. `absent` are paths that are not expected, `echoed` the values that
    the request names."""
    if where in absent:
        return
    if got is None:
        yield f"{where} is not there"
    elif isinstance(published, dict):
        for name, value in published.items():
            yield from differences(value, got.get(name), f"{where}.{name}".strip("."), absent, echoed)
    elif isinstance(published, list):
        if not isinstance(got, list) or (published and not got):
            yield f"{where}: expected a list like {published}, and got {got}"
        elif published:
            yield from differences(published[0], got[0], where, absent, echoed)
    elif isinstance(got, datetime.datetime):
        # What is published as a time has to read as one.
        parse_timestamp(published)
    elif is_instant(published) and is_instant(got):
        # Version 1 of the command line prints instants of JSON services as seconds.
        return
    elif published == "<URL-encoded-JSON>":
        # botocore has decoded it.
        if not isinstance(got, dict):
            yield f"{where}: expected a document, and got {got!r}"
    elif type(published) is not type(got):
        yield f"{where}: expected {published!r}, and got {got!r}"
    elif isinstance(published, str) and not is_as_published(published, got, where, echoed):
        yield f"{where}: expected {published!r}, and got {got!r}"


def is_instant(value):
    """A text that reads as an instant, or seconds since 1970 of this century."""
    if isinstance(value, str):
        return bool(INSTANT.fullmatch(value))
    return isinstance(value, (int, float)) and 946_684_800 < value < 4_102_444_800


def is_as_published(published, got, where, echoed):
    if published in echoed:
        return published == got
    if INSTANT.fullmatch(published):
        return bool(INSTANT.fullmatch(got))
    if kind := IDENTIFIER.fullmatch(published):
        return bool(re.fullmatch(re.escape(kind[1]) + "-[0-9a-f-]{8,}", got))
    return not is_word(where) or published == got


def is_word(where):
    """Whether AWS chooses the text: states, kinds, paths; not ids or anybody's names."""
    name = where.rpartition(".")[2]
    return bool(name) and name not in NAMES and not name.endswith("Id")


def texts(value):
    """Every text in a request."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for member in value.values():
            yield from texts(member)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)
