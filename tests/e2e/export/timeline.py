"""What a .pftrace holds, as protoc and a schema of our own read it, with Perfetto's rules: tracks are stacks, an end
closes what was opened last, names are numbers of their sequence."""

import collections
import pathlib
import re
import shutil
import subprocess

PROTO = pathlib.Path(__file__).with_name("perfetto.proto")
Slice = collections.namedtuple("Slice", "pid process track name begin end args correlation flows flow_ends depth")
ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", '"': b'"', "'": b"'", "\\": b"\\"}


def have_protoc():
    return shutil.which("protoc") is not None


def unescape(text):
    """A string of protobuf's text format -> bytes."""
    out = bytearray()
    at = 0
    while at < len(text):
        if text[at] != "\\":
            out += text[at].encode()
            at += 1
        elif text[at + 1] in ESCAPES:
            out += ESCAPES[text[at + 1]]
            at += 2
        else:
            octal = re.match(r"[0-7]{1,3}", text[at + 1:]).group()
            out.append(int(octal, 8))
            at += 1 + len(octal)
    return bytes(out)


def decode(data):
    """Packets as dicts of lists. Fields that the schema does not know are an error."""
    done = subprocess.run(["protoc", f"--proto_path={PROTO.parent}", "--decode=lockstep.test.Trace", PROTO.name],
                          input=data, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    root = collections.defaultdict(list)
    stack = [root]
    for line in done.stdout.decode().splitlines():
        line = line.strip()
        if line == "}":
            stack.pop()
        elif line.endswith("{"):
            name = line[:-2]
            assert not name.isdigit(), f"unknown field {name}"
            inner = collections.defaultdict(list)
            stack[-1][name].append(inner)
            stack.append(inner)
        else:
            name, _, value = line.partition(": ")
            assert not name.isdigit(), f"unknown field {line}"
            if value.startswith('"'):
                value = unescape(value[1:-1]).decode()  # Not UTF-8 is an error.
            elif value.lstrip("-").isdigit():
                value = int(value)
            stack[-1][name].append(value)
    return root["packet"]


def one(message, name, default=None):
    return message[name][0] if name in message and message[name] else default


class Timeline:
    """Slices, instants and counter values, with everything that Perfetto would refuse raised as an error."""

    def __init__(self, data):
        self.slices, self.instants, self.counters = [], [], collections.defaultdict(list)
        self.processes, self.tracks, self.ordered = {}, {}, False
        sequences, stacks, last = {}, collections.defaultdict(list), {}
        for packet in decode(data):
            number = one(packet, "trusted_packet_sequence_id")
            assert number, "a packet without sequence"
            flags = one(packet, "sequence_flags", 0)
            if flags & 1:
                sequences[number] = {"track": None, "names": {}, "arguments": {}, "values": {}}
            state = sequences.get(number)
            assert not flags & 2 or state is not None, "a packet that needs state before there is any"
            for defaults in packet["trace_packet_defaults"]:
                state["track"] = one(one(defaults, "track_event_defaults"), "track_uuid")
            for descriptor in packet["track_descriptor"]:
                self.describe(descriptor)
            for interned in packet["interned_data"]:
                for field, names in (("event_names", "names"), ("debug_annotation_names", "arguments"),
                                     ("debug_annotation_string_values", "values")):
                    for entry in interned[field]:
                        assert one(entry, "iid") not in state[names], "a number given twice"
                        state[names][one(entry, "iid")] = one(entry, "text", "")
            for event in packet["track_event"]:
                self.event(event, packet, state, stacks, last)
        assert not any(stacks.values()), "slices that never end"

    def describe(self, descriptor):
        uuid = one(descriptor, "uuid")
        if uuid == 0:
            self.ordered = one(descriptor, "process_ordering") == "PROCESS_ORDERING_EXPLICIT"
        elif descriptor["process"]:
            process = descriptor["process"][0]
            self.processes[uuid] = {"pid": one(process, "pid"), "name": one(process, "process_name"),
                                    "order": one(descriptor, "sibling_order_rank"),
                                    "children": one(descriptor, "child_ordering"),
                                    "description": one(descriptor, "description", "")}
        else:
            assert uuid not in self.tracks, "a track described twice"
            assert one(descriptor, "parent_uuid") in self.processes, "a track of no process"
            self.tracks[uuid] = {"name": one(descriptor, "name"), "process": one(descriptor, "parent_uuid"),
                                 "order": one(descriptor, "sibling_order_rank"), "counter": bool(descriptor["counter"])}

    def event(self, event, packet, state, stacks, last):
        uuid = state["track"]
        track = self.tracks[uuid]
        process = self.processes[track["process"]]
        ts = one(packet, "timestamp")
        assert ts is not None and ts >= last.get(uuid, 0), f"time goes back on {track}"
        last[uuid] = ts
        kind = one(event, "type")
        if kind == "TYPE_COUNTER":
            assert track["counter"], track
            self.counters[process["pid"], track["name"]].append((ts, one(event, "counter_value")))
            return
        assert not track["counter"], track
        if kind == "TYPE_SLICE_END":
            begun = stacks[uuid].pop()  # IndexError: an end of nothing.
            self.slices.append(begun._replace(end=ts))
            return
        args = {}
        for annotation in event["debug_annotations"]:
            name = state["arguments"][one(annotation, "name_iid")]
            if annotation["string_value_iid"]:
                args[name] = state["values"][one(annotation, "string_value_iid")]
            else:
                args[name] = one(annotation, "uint_value", one(annotation, "int_value"))
        found = Slice(process["pid"], process["name"], track["name"], state["names"][one(event, "name_iid")], ts, ts, args,
                      one(event, "correlation_id"), tuple(event["flow_ids"]), tuple(event["terminating_flow_ids"]),
                      len(stacks[uuid]))
        if kind == "TYPE_INSTANT":
            self.instants.append(found)
        else:
            assert kind == "TYPE_SLICE_BEGIN", kind
            stacks[uuid].append(found)

    def of(self, rank, *prefixes):
        """Slices and instants of a rank (-1: the cluster) on tracks whose names begin so."""
        return [s for s in self.slices + self.instants
                if s.pid == rank + 2 and (not prefixes or s.track.startswith(prefixes))]
