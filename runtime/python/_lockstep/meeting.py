"""Tells the agents of a job's other hosts where rank 0's agent is, over the store at which the ranks of torchrun met.

They need it where they share no directory. The store gives everybody who can reach its port everything that is in it, so the
run's key does not go there as it is: rank 0 and the first rank of each other host agree on a secret by X25519 (RFC 7748),
with numbers made for this once, and the key travels under it. docs/decisions/reference-by-launcher.md has the reasons.

Nobody is waited for longer than _LIMIT_S, once per process. Whatever fails, the job goes on, and files stay on their hosts.
"""

import ctypes
import hashlib
import hmac
import os
import time

from . import probe

_LIMIT_S = 2.0
_NAP_S = 0.005
_KEY_DIGITS = 64  # core/reference.h: of the text, what is secret.
_TEXT_BYTES = 2048
_PREFIX = "lockstep/1/"  # The number is the version of what follows.
_NOTHING = "-"

_P, _A24 = 2**255 - 19, 121665

_done = False


def x25519(secret, point):
    """RFC 7748, section 5. Both are 32 bytes, little-endian, as is what is returned: a point on Curve25519."""
    k = int.from_bytes(secret, "little") & ~7 & ((1 << 254) - 1) | 1 << 254
    x1 = int.from_bytes(point, "little") & ((1 << 255) - 1)
    x2, z2, x3, z3, swapped = 1, 0, x1, 1, 0
    for t in range(254, -1, -1):
        bit = k >> t & 1
        if swapped != bit:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swapped = bit
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        da, cb = d * a % _P, c * b % _P
        aa, bb = a * a % _P, b * b % _P
        e = aa - bb
        x3, z3 = (da + cb) ** 2 % _P, x1 * (da - cb) ** 2 % _P
        x2, z2 = aa * bb % _P, e * (aa + _A24 * e) % _P
    if swapped:
        x2, z2 = x3, z3
    return (x2 * pow(z2, _P - 2, _P) % _P).to_bytes(32, "little")


_BASE = (9).to_bytes(32, "little")


class Pair:
    """One side of an agreement: a secret number and what is said of it."""

    def __init__(self):
        self._secret = os.urandom(32)
        self.public = x25519(self._secret, _BASE)

    def keys(self, other, rank_0, asking):
        """For what goes from rank 0 to the one that asks: the bytes that hide it, and the key of the proof."""
        shared = x25519(self._secret, other)
        if not any(shared):
            raise ValueError("a point of small order")
        base = hmac.new(b"lockstep reference 1", shared + rank_0 + asking, hashlib.sha256).digest()
        return tuple(hmac.new(base, what, hashlib.sha256).digest() for what in (b"hide", b"prove"))


def wrapped(reference, pair, asking):
    """What rank 0 says to the one with this public number: the hidden key, the proof, the rest of the text."""
    hide, prove = pair.keys(asking, pair.public, asking)
    key, rest = bytes.fromhex(reference[:_KEY_DIGITS].decode()), reference[_KEY_DIGITS:]
    hidden = bytes(a ^ b for a, b in zip(key, hide))
    return hidden.hex().encode() + hmac.new(prove, hidden + rest, hashlib.sha256).hexdigest().encode() + rest


def unwrapped(text, pair, rank_0):
    """The text of core/reference.h; ValueError if it is not from the owner of this public number, or not for this pair."""
    hide, prove = pair.keys(rank_0, rank_0, pair.public)
    hidden, proof, rest = bytes.fromhex(text[:64].decode()), bytes.fromhex(text[64:128].decode()), text[128:]
    if not hmac.compare_digest(hmac.new(prove, hidden + rest, hashlib.sha256).digest(), proof):
        raise ValueError("rank 0's answer is not from whom it says")
    return bytes(a ^ b for a, b in zip(hidden, hide)).hex().encode() + rest


class _Board:
    """The store: each text is set once, and its counter after it, as to ask for what is not there waits for it."""

    def __init__(self, store):
        self._store = store

    def say(self, name, text):
        self._store.set(_PREFIX + name, text)
        self._store.add(_PREFIX + name + "/set", 1)

    def heard(self, name):
        """None: nothing yet."""
        if self._store.add(_PREFIX + name + "/set", 0) == 0:
            return None
        return bytes(self._store.get(_PREFIX + name))


def answer(board, reference, nodes, limit_s=_LIMIT_S):
    """Rank 0: to those who ask, as they come. `reference`: b"", there is nothing to say."""
    if not reference:
        board.say("rank_0", _NOTHING)
        return
    pair = Pair()
    board.say("rank_0", pair.public.hex())
    waiting, end = set(range(1, nodes)), time.monotonic() + limit_s
    while waiting:
        for node in sorted(waiting):
            asking = board.heard("asks/%d" % node)
            if asking is not None:
                waiting.discard(node)
                board.say("told/%d" % node, wrapped(reference, pair, bytes.fromhex(asking.decode())))
        if not waiting or time.monotonic() > end:
            return
        time.sleep(_NAP_S)


def ask(board, node, limit_s=_LIMIT_S):
    """The first rank of another host; b"" if nothing is told."""
    pair = Pair()
    board.say("asks/%d" % node, pair.public.hex())
    end = time.monotonic() + limit_s
    rank_0 = told = None
    while told is None:
        rank_0 = rank_0 or board.heard("rank_0")
        if rank_0 == _NOTHING.encode():
            return b""
        told = board.heard("told/%d" % node)
        if told is None:
            if time.monotonic() > end:
                return b""
            time.sleep(_NAP_S)
    return unwrapped(told, pair, bytes.fromhex((rank_0 or board.heard("rank_0")).decode()))


def _number(name):
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else -1


def meet(dist, rank):
    """After init_process_group, in a worker that torchrun has started on one of several hosts."""
    global _done
    nodes, node, local = _number("GROUP_WORLD_SIZE"), _number("GROUP_RANK"), _number("LOCAL_RANK")
    if _done or nodes < 2 or "TORCHELASTIC_RUN_ID" not in os.environ or rank != _number("RANK"):
        return
    _done = True
    if rank != 0 and (local != 0 or node <= 0):
        return
    board = _Board(dist.distributed_c10d._get_default_store())
    if rank == 0:
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        length = probe.own_reference(rank, text, _TEXT_BYTES)
        answer(board, text.raw[:length], nodes)
    else:
        told = ask(board, node)
        if told:
            probe.reference(rank, told)
