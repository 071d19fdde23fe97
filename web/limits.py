"""Limits of one request: sizes, seconds, GPUs. One place, so that the page, the API and its
documentation say the same."""

from __future__ import annotations

MAX_GPUS = 65_536  # larger clusters are for the command line: one request must not hold the server
MAX_BODY_BYTES = 512_000  # of a posted request
MAX_UPLOAD_BYTES = 32_000_000  # of one with files; larger recordings are for the command line
MOST_UPLOADS = 2  # that are received at once: each is held in memory
MOST_FILES = 20  # of one request
MAX_QUERY_BYTES = 48_000  # of an address; servers and browsers cut longer ones
MAX_CONFIG_BYTES = 24_000  # of a pasted config.json or model, without its spaces
MAX_CALIBRATION_BYTES = 24_000
MAX_SCENARIO_BYTES = 400_000  # an answer as JSON is a scenario, too, and such have 80,000
MAX_TOP = 50  # layouts listed in full by one search
MAX_ANSWER_BYTES = 24_000_000  # of one answer of a worker
MAX_READ_BYTES = 4_000_000  # of one that the server makes a page of, at 15 ms per million

LIGHT_S = 10.0  # seconds that one estimate may take; and that it may wait before
HEAVY_S = (
    30.0  # seconds that a search, a sweep or an explanation may take; and that it may wait before
)
PARTS_S = 120.0  # of one that sends parts of its answer meanwhile
MOST_WORKERS = 4  # processes of each kind, one per core: more would only make each other wait
MOST_WAITING = 64  # requests that wait for a worker; more are refused with status 429
WORKER_BYTES = 2 * 2**30  # address space of a worker process

MOST_PAIRS = 300  # options in one address: three times all there are
LINGER_S = 5.0  # for which advice is still worked out when its page was sent: its script asks next

CONNECTIONS = 512  # at once; the one that has owed something longest makes room for the next
ADDRESS_CONNECTIONS = 256  # of one address (IPv6: of one /64 network), likewise
HEAD_BYTES = 65_536  # of a request line and its headers: a pasted model travels in the address
HEAD_S = 10.0  # for the first byte of a connection, and from the first byte of a head for its rest
IDLE_S = 15  # that a connection may stay open between two requests
BODY_S = 20.0  # for the body of a request
SEND_S = 20.0  # in which, while an answer waits to be read,
SEND_BYTES = 200_000  # so much of it, or its rest, must be taken
UNSENT_BYTES = 256_000_000  # of answers that wait to be read, over all connections
CLOSING_S = 5  # for requests under way after the server received a signal to end
