"""An exporter that lies, chosen at random for each request; the seed is the second argument.

Of its series `power` each line has the label `identity`, which a change of identity changes.
"""

import random
import socket
import sys
import threading
import time

PORT = int(sys.argv[1])
RANDOM = random.Random(int(sys.argv[2]))
LOCK = threading.Lock()
STATE = {"energy": 0, "identity": 0, "away_until": 0.0}


def page():
    STATE["energy"] += RANDOM.randrange(1000)
    lines = [f'power{{outlet="{outlet}"}} {RANDOM.randrange(500)}' for outlet in range(8)]
    lines.append(f'identity{{of="{STATE["identity"]}"}} 1')
    lines.append(f'energy_joules_total {STATE["energy"]}')
    return lines


def answer():
    """Head and body of an answer, the time between two bytes, and whether the body has an end."""
    with LOCK:
        lines = page()
        lie = RANDOM.randrange(16)
        if lie == 0:  # A wrapped counter, as after a restart.
            STATE["energy"] = 0
        elif lie == 1:  # Values of 1970 and of tomorrow.
            lines = [f"{line} {RANDOM.choice([0, 1, int(time.time() + 86400) * 1000])}" for line in lines]
        elif lie == 2:  # Each line twice.
            lines += lines
        elif lie == 3:
            STATE["identity"] += 1
        elif lie == 4:
            STATE["away_until"] = time.monotonic() + 0.5
        elif lie == 5:  # No numbers, and names that are none.
            lines = ["power NaN", "power +Inf", "po\x00wer 1", 'power{outlet="8', "power 1e999", "\xff\xfe"]
    body = ("\n".join(lines) + "\n").encode("latin-1")
    head = f"HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {len(body)}\r\n\r\n"
    if lie == 6:
        head = f"HTTP/1.1 302 Found\r\nlocation: http://10.0.0.2:{PORT}/metrics\r\ncontent-length: 0\r\n\r\n"
        return head.encode(), b"", 0, True
    if lie == 7:  # Gigabytes.
        return b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n", b"power 1\n" * 8192, 0, False
    if lie == 8:  # Slow bytes.
        return head.encode(), body, 0.05, True
    if lie == 9:  # Cut off.
        return head.encode(), body[: len(body) // 2], 0, True
    return head.encode(), body, 0, True


def serve(connection):
    try:
        request = connection.makefile("rb")
        while line := request.readline():
            while line not in (b"\r\n", b""):
                line = request.readline()
            if time.monotonic() < STATE["away_until"]:
                return
            head, body, pause, ends = answer()
            connection.sendall(head)
            if pause:
                for byte in body:
                    connection.sendall(bytes([byte]))
                    time.sleep(pause)
            else:
                connection.sendall(body)
            while not ends:
                connection.sendall(body)
            if len(body) == 0 or f"content-length: {len(body)}\r\n".encode() not in head:
                return
    except OSError:
        pass
    finally:
        connection.close()


listener = socket.create_server(("10.0.0.1", PORT))
print("ready", flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
