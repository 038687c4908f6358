#!/usr/bin/env python3
"""Says as JSON what a frame or message of Polymeter's protocol, version 1, holds.

    decoder.py FILE              a frame, or a message to the collector; `-` reads the standard input
    decoder.py --to-agent FILE   a message to an agent

Written from docs/reference/protocol.md alone, with nothing but the standard library: it is the proof of that document. Values are
their 64 bits, unsigned; the `number` of their metric says what they mean. The rules for names and periods are left out.
"""
import json
import sys
import zlib

U64, MIB = 2**64 - 1, 1 << 20


class Refused(Exception):
    """The bytes are no frame and no message."""


def need(is_so, why):
    if not is_so:
        raise Refused(why)


def unzigzag(z):
    return (z >> 1) ^ -(z & 1)


class Cursor:
    """A position in bytes, which never goes beyond their end."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        need(self.at + count <= len(self.data), "the bytes end too early")
        self.at += count
        return self.data[self.at - count:self.at]

    def byte(self):
        return self.take(1)[0]

    def varint(self, limit=U64):
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            need(value <= limit and shift <= 63, f"{value} where at most {limit} is allowed")
            if byte < 0x80:
                return value
            shift += 7


# Frames.

def frame(data):
    need(len(data) <= 4 * MIB, "a frame is too long")
    need(len(data) >= 8 and zlib.crc32(data[:-4]) == int.from_bytes(data[-4:], "little"), "the checksum is wrong")
    c = Cursor(data[4:-4])
    session, sequence, base = int.from_bytes(c.take(8), "little"), c.varint(), unzigzag(c.varint())
    sections, blocks, is_kept = {1: [], 3: [], 4: [], 8: [], 10: []}, [], False
    while c.at < len(c.data):
        kind = c.byte()
        if kind & ~16 in (2, 5, 6, 7):
            parts, of = 5 if kind & 16 else 1, kind & ~16
            blocks.append(get_block(c, of in (5, 7), of in (6, 7), parts, base, MIB - sum(map(weight, blocks))))
            need(len(blocks) <= 65536, "a frame has too many blocks")
        elif kind == 9:
            is_kept = True
        elif kind == 10:
            sections[10] += get_shape_tallies(c, 65536 - len(sections[10]))
        else:
            need(kind in sections, f"{kind} is no kind of section")
            of = {1: ENTRY, 3: TALLY, 4: EVENT, 8: STACKS}[kind]
            entries = whole(c.take(c.varint(MIB)), some(of))
            sections[kind] += entries if kind != 3 else unpacked(entries, sections[3][-1:])
            need(len(sections[kind]) <= 65536, "too many entries")
    counts = [len(interval["counts"]) for interval in sections[8]]
    need(max(counts, default=0) <= 8192 and sum(counts) <= 65536, "too many counts of stacks")
    return {"is": "frame", "session": f"{session:016x}", "sequence": sequence, "dictionary": sections[1],
            "blocks": blocks, "ledger": sections[3], "shape_tallies": sections[10],
            "events": sections[4], "stacks": sections[8],
            "is_kept": int(is_kept)}


def unpacked(entries, before):
    """Each entry tells what differs from the one before it."""
    tallies = list(before)
    for entry in entries:
        before = tallies[-1] if tallies else {"source": "", **dict.fromkeys(COUNTS, 0)}
        name = before["source"].encode()
        need(entry["shared"] <= len(name), "a name shares more than there is")
        differences = entry["differences"]
        positions = [position for position in range(8) if entry["differing"] >> position & 1]
        need(max(positions, default=0) < 7 and len(positions) == len(differences), "not a difference for each count")
        taken = (before["due"] - before["missed"] - before["absent"] - before["taken"]) % 2**64
        counts = [before[of] if of != "taken" else taken for of in COUNTS]
        for position, difference in zip(positions, differences):
            counts[position] = (counts[position] + difference) % 2**64
        source = (name[:entry["shared"]] + entry["rest"].encode()).decode()
        tallies.append({"job": entry["job"], "source": source} | tally_of(counts))
    return tallies[len(tallies) - len(entries):]


def tally_of(counts):
    due, missed, absent, left, late, dropped, not_kept = counts
    return {"due": due, "taken": (due - missed - absent - left) % 2**64, "late": late, "missed": missed,
            "absent": absent, "dropped": dropped, "not_kept": not_kept}


def get_shape_tallies(c, limit):
    tallies, divided = [], [0] * 7
    for _ in range(c.varint(limit)):
        shape, divisor, changed = c.varint(2**32 - 1), c.varint(), c.byte()
        need(changed < 128, "more than seven counts")
        divided = [(count + unzigzag(c.varint())) % 2**64 if changed >> position & 1 else count
                   for position, count in enumerate(divided)]
        tallies.append({"shape": shape} | tally_of([count * divisor % 2**64 for count in divided]))
    return tallies


def weight(block):
    return ((5 if block["windows"] else 1) * len(block["columns"]) + 1) * len(block["times_us"])


def get_block(c, is_partial, is_lone, parts, base, values_left):
    shape, width = c.varint(2**32 - 1), c.varint(4096)
    columns = list(range(width))
    if is_partial:
        columns = get_bitmap(c, width)
    ticks = 1 if is_lone else c.varint(65536)
    need(ticks > 0 and (parts * len(columns) + 1) * ticks <= values_left, "no ticks, or too many values")
    times, windows = get_times(c, ticks, base), None
    if parts > 1:
        values, windows = get_windows(c, len(columns), ticks)
    else:
        values = get_columns(c, len(columns), ticks)
    return {"shape": shape, "shape_columns": width, "columns": columns, "times_us": times, "values": values,
            "windows": windows}


def get_bitmap(c, width):
    bitmap = c.take((width + 7) // 8)
    return [column for column in range(width) if bitmap[column // 8] >> column % 8 & 1]


def get_windows(c, series, ticks):
    head = c.varint()
    count = head >> 1
    changed = get_bitmap(c, series) if ticks > 1 else []
    columns = get_columns(c, (0 if count else series) + (series + 3 * len(changed) if ticks > 1 else 0), ticks)
    counts = [[count] * ticks] * series if count else [columns.pop(0) for _ in range(series)]
    need(all(count <= 36_000_000 for of in counts for count in of), "too many samples in a window")
    values, windows = [], {"counts": counts, "min": [], "max": [], "sum": []}
    items = get_summaries(c, series) if ticks == 1 else []
    for position in range(series):
        parts = [[part] for part in items[position]] if items else [columns.pop(0)] + [
            columns.pop(0) if position in changed else [0] * ticks for _ in range(3)]
        for into, part in zip((values, windows["max"], windows["min"], windows["sum"]), parts):
            into.append(part)
    histograms, window = [], -1
    for _ in range(c.varint(series * ticks) if head & 1 else 0):
        window += 1 + c.varint(series * ticks)
        need(window < series * ticks, "a histogram has no window")
        tick, position = divmod(window, series)
        buckets, bucket = [], -1
        for _ in range(c.varint(976)):
            bucket += 1 + c.varint()
            need(bucket < 976, "a histogram has a bucket beyond its last")
            buckets.append([bucket, c.varint()])
        samples = [count for _, count in buckets]
        need(0 not in samples and sum(samples) <= counts[position][tick], "other samples than its window")
        histograms.append({"tick": tick, "position": position, "counts": buckets})
    return values, windows | {"histograms": histograms}


def get_summaries(c, series):
    items = []
    while len(items) < series:
        tag = c.byte()
        present, low = tag >> 4, tag & 15
        if present:
            parts = [c.varint() if present >> bit & 1 else 0 for bit in range(4)]
            items.append([int.from_bytes(part.to_bytes(8, "little"), "big") if low == 15 else part << low & U64
                          for part in parts])
        elif low < 15:
            items += [[0] * 4] * (low + 1)
        else:
            distance, same = c.varint(series), c.varint(series) + 1
            need(0 < distance <= len(items), "a repetition from before the block")
            for _ in range(same):
                items.append(items[-distance])
    need(len(items) == series, "a run has more series than its block")
    return items


def get_times(c, ticks, base):
    at, gaps, offsets = base + unzigzag(c.varint()), [], [0]
    if ticks > 1:
        period = c.varint()
        gaps = [gap * period for gap in get_columns(c, 1, ticks - 1)[0]] if period else [0] * (ticks - 1)
        offsets = get_columns(c, 1, ticks)[0]
    times = []
    for gap, offset in zip([0] + gaps, offsets):
        at += gap
        times.append((at + offset + 2**63 & U64) - 2**63)
    return times


def get_columns(c, count, ticks):
    columns = []
    while len(columns) < count:
        tag = c.byte()
        mode, argument = tag & 7, tag >> 3
        if mode == 0:
            columns += [[0] * ticks] * (argument + 1)
        elif mode == 2:
            distance, run = argument or c.varint(count), c.varint(count) + 1
            need(0 < distance <= len(columns), "a copy from before the block")
            for _ in range(run):
                columns.append(columns[-distance])
        elif mode == 5:
            columns.append(get_xor(c, ticks))
        else:
            column = [c.varint() << argument & U64]
            for difference in {1: get_nothing, 3: get_runs, 4: get_packs, 6: get_runs, 7: get_packs}[mode](c, ticks - 1):
                column.append(column[0 if mode >= 6 else -1] + (difference << argument) & U64)
            columns.append(column)
    need(len(columns) == count, "a run has more columns than its block")
    return columns


def get_nothing(_, count):
    return [0] * count


def get_runs(c, count):
    differences = []
    while len(differences) < count:
        token = c.varint()
        need(token & 1 or (token >> 1) < count - len(differences), "a run is longer than its column")
        differences += [unzigzag(token >> 1)] if token & 1 else [0] * ((token >> 1) + 1)
    return differences


def get_packs(c, count):
    differences = []
    for pack in [128] * (count // 128) + [count % 128] * (count % 128 > 0):
        least, width = unzigzag(c.varint()), c.byte()
        need(width <= 64, f"{width} is no width of a pack")
        bits = int.from_bytes(c.take((pack * width + 7) // 8), "little")
        differences += [least + (bits >> k * width & (1 << width) - 1) for k in range(pack)]
    return differences


def get_xor(c, ticks):
    column = [int.from_bytes(c.take(8), "little")]
    while len(column) < ticks:
        token = c.varint()
        run = 1 if token else c.varint() + 1
        need(run <= ticks - len(column), "a run is longer than its column")
        column += [column[-1] ^ int.from_bytes(token.to_bytes(8, "little"), "big")] * run
    return column


# Serialised parts: each type is a function that reads it from a cursor.

def u64(c, limit=U64):
    value = c.byte()
    need(value <= 0xFD, "a marker without a meaning")
    value = value if value <= 250 else int.from_bytes(c.take({0xFB: 2, 0xFC: 4, 0xFD: 8}[value]), "little")
    need(value <= limit, "a number is beyond its type")
    return value


def u32(c):
    return u64(c, 2**32 - 1)


def i64(c):
    return unzigzag(u64(c))


def text(c):
    return c.take(u64(c)).decode()


def line(c):
    value = c.take(u64(c))
    need(len(value) <= MIB // 4 and b"\n" not in value, "no line of the control socket's language")
    return value.decode()


def session_id(c):
    return f"{u64(c):016x}"


def one_of(*names):
    def read(c):
        variant = u32(c)
        need(variant < len(names), f"{variant} is no variant")
        return names[variant]
    return read


def boolean(c):
    flag = c.byte()
    need(flag < 2, "neither true nor false")
    return flag


def option(of):
    def read(c):
        need(c.data[c.at:c.at + 1] in (b"", b"\0", b"\1"), "neither none nor some")
        return of(c) if c.byte() else None
    return read


def some(of):
    return lambda c: [of(c) for _ in range(u64(c))]


def pair(of):
    return lambda c: [of(c), of(c)]


def record(**fields):
    return lambda c: {name: of(c) for name, of in fields.items()}


def enum(**variants):
    def read(c):
        name = one_of(*variants)(c)
        return {"is": name} | variants[name](c)
    return read


ENTRY = enum(
    session=record(node=text, agent_version=text, started_us=i64, cpus=option(u32), cores=option(u32),
                   roofs=option(record(memory_bytes_per_s=u64, double_flop_per_s=u64, single_flop_per_s=u64))),
    metric=record(id=u32, name=text,
                  unit=one_of("bytes", "nanoseconds", "percent", "pages", "sectors", "cycles", "count",
                              "labelled", "celsius", "joules", "watts", "hertz", "volts", "amperes", "rpm", "bytes/s"),
                  kind=one_of("counter", "gauge"), number=one_of("unsigned", "signed", "float")),
    job=record(handle=u32, job_id=text, cluster=option(text), owner_uid=option(u32), owner=option(text), started_us=i64),
    series=record(id=u32, metric=u32, job=option(u32), labels=some(pair(text))),
    shape=record(id=u32, source=text, inner_period_us=option(u64), series=some(u32)),
    function=record(id=u32, job=u32, name=option(text), module=option(text)),
    stack=record(id=u32, parent=option(u32), function=u32))
STACKS = record(metric=u32, job=u32, begin_us=i64, end_us=i64, period_us=u64,
                counts=some(record(process=u32, stack=u32, count=u64)), lost=u64, throttled=u64, cut=u64,
                unresolved=u64)
TALLY = record(job=option(u32), shared=u32, rest=text, differing=Cursor.byte, differences=some(i64))
# The counts of a tally in the order of their differences; instead of those taken, those that are neither taken,
# missed nor absent.
COUNTS = ("due", "missed", "absent", "taken", "late", "dropped", "not_kept")
SAMPLING = record(period_us=u64, window_us=option(u64))
PLAN_CHANGE = record(at_us=i64, job=option(u32), level=option(one_of("step", "task")), metric=text,
                     old=option(SAMPLING), new=option(SAMPLING),
                     cause=one_of("baseline", "registration", "job_end", "reload",
                                  "lease", "lease_end", "governor", "refresh_interval"), by=option(text),
                     until_us=option(i64))
EVENT = enum(
    plan_change=PLAN_CHANGE,
    job_ended=record(job=u32, at_us=i64),
    mark=record(at_us=i64, job=option(u32), name=text, kind=one_of("instant", "begin", "end"), by=option(text)),
    job_facts=record(job=u32, is_over=boolean, account=option(text), queue=option(text), nodes=option(text),
                    cores=option(u32), state=option(text), exit_code=option(u32), exit_signal=option(u32),
                    unread=option(text)),
    job_owner=record(job=u32, uid=option(u32), name=option(text)),
    request_refused=record(at_us=i64, job=u32, request=text, period=option(SAMPLING), by=option(text), reason=text),
    session_ended=record(at_us=i64),
    job_details=record(job=u32, name=option(text), display_id=option(text), time_limit_s=option(u64),
                       memory_bytes=option(u64), gpus=option(u32), restarts=option(u32),
                       run=option(record(command=some(text), is_cut=boolean, directory=option(text), host=option(text),
                                         environment=some(pair(text)))), scheduler=option(text), node_cores=option(u32),
                       node_gpus=option(u32)),
    kept=record(job=u32, begin_us=i64, end_us=i64, trigger=u64, reason=text, samples=u64),
    fired=record(job=u32, trigger=u64, rule=text, by=option(text), at_us=i64, keeps_us=option(pair(i64)),
                 notice=boolean, why=text, actions=text))
TO_COLLECTOR = enum(
    dictionary=record(session=session_id, entries=some(ENTRY)),
    skipped=record(session=session_id, first=u64, last=u64,
                   reason=one_of("outbox_full", "already_acknowledged", "refused", "damaged"), span_us=pair(i64),
                   lost=some(record(job=option(u32), source=text, samples=u64))),
    answer=record(session=session_id, request=u64, line=line))
TO_AGENT = enum(
    ack=record(session=session_id, through=u64), resend=record(**{"session": session_id, "from": u64}),
    need_dictionary=record(session=session_id),
    refused=record(reason=text, frame=option(record(session=session_id, sequence=u64))),
    request=record(session=session_id, request=u64, uid=u32, at_us=i64, line=line))


def whole(data, of):
    c = Cursor(data)
    value = of(c)
    need(c.at == len(data), "bytes behind the end")
    return value


def decode(data, is_to_agent):
    need(data[:3] in (b"PLM", b"PLC"), "these are no bytes of this protocol")
    need(data[3:4] == b"\x01", "another version of the protocol")
    if data[:3] == b"PLM":
        return frame(data)
    need(len(data) <= MIB, "a message is too long")
    return whole(data[4:], TO_AGENT if is_to_agent else TO_COLLECTOR)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[1:-1] not in ([], ["--to-agent"]):
        sys.exit(__doc__)
    given = sys.stdin.buffer.read() if sys.argv[-1] == "-" else open(sys.argv[-1], "rb").read()
    try:
        print(json.dumps(decode(given, len(sys.argv) == 3), indent=1, ensure_ascii=False))
    except (Refused, UnicodeDecodeError) as error:
        sys.exit(f"refused: {error}")
