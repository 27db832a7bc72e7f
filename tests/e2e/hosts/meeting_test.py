"""What rank 0's hook and those of other hosts say to each other over a store that everybody can read.

usage: meeting_test.py
"""
import pathlib
import sys
import threading
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "runtime/python"))
sys.dont_write_bytecode = True
sys.modules["_lockstep.probe"] = types.ModuleType("_lockstep.probe")  # There is none in this process.
from _lockstep import meeting  # noqa: E402

KEY = bytes(range(32)).hex().encode()
TEXT = KEY + b"0123456789abcdef" + b"10.0.0.1:4000,[fd00::1]:4000"


class Store:
    """As those of c10d: what is asked for and not there is waited for, which must not happen."""

    def __init__(self):
        self.texts, self.counts, self.lock = {}, {}, threading.Lock()

    def set(self, name, text):
        with self.lock:
            self.texts[name] = text.encode() if isinstance(text, str) else bytes(text)

    def get(self, name):
        return self.texts[name]

    def add(self, name, number):
        with self.lock:
            self.counts[name] = self.counts.get(name, 0) + number
            return self.counts[name]


class Secret(unittest.TestCase):
    def test_x25519(self):
        """Vectors of RFC 7748, section 5.2."""
        of = bytes.fromhex
        self.assertEqual(meeting.x25519(of("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4"),
                                        of("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c")).hex(),
                         "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552")
        self.assertEqual(meeting.x25519(of("4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d"),
                                        of("e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493")).hex(),
                         "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957")
        self.assertEqual(meeting.x25519(meeting._BASE, meeting._BASE).hex(), "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079")

    def test_only_the_pair_reads_it(self):
        rank_0, asking, other = meeting.Pair(), meeting.Pair(), meeting.Pair()
        text = meeting.wrapped(TEXT, rank_0, asking.public)
        self.assertEqual(meeting.unwrapped(text, asking, rank_0.public), TEXT)
        self.assertNotIn(KEY, text)
        self.assertTrue(text.endswith(TEXT[64:]))
        for pair, public in ((other, rank_0.public), (asking, other.public), (rank_0, asking.public)):
            with self.assertRaises(ValueError):
                meeting.unwrapped(text, pair, public)
        for at in (0, 63, 64, 127, 128, len(text) - 1):
            changed = text[:at] + (b"0" if text[at:at + 1] != b"0" else b"1") + text[at + 1:]
            with self.assertRaises(ValueError):
                meeting.unwrapped(changed, asking, rank_0.public)
        for odd in (b"", b"-", text[:100], b"x" * 200):
            with self.assertRaises(ValueError):
                meeting.unwrapped(odd, asking, rank_0.public)

    def test_points_of_small_order_are_refused(self):
        pair = meeting.Pair()
        for point in (bytes(32), (1).to_bytes(32, "little"), (meeting._P - 1).to_bytes(32, "little"), meeting._P.to_bytes(32, "little")):
            with self.assertRaises(ValueError):
                pair.keys(point, point, pair.public)


class Meeting(unittest.TestCase):
    def meet(self, nodes, reference=TEXT, absent=(), limit_s=100.0):
        store, told, first = Store(), {}, threading.Event()

        def ask(node):
            if node > 1:  # Rank 0 waits for those who come late.
                first.wait(100)
            told[node] = meeting.ask(meeting._Board(store), node, limit_s)
            first.set()
        threads = [threading.Thread(daemon=True, target=meeting.answer, args=(meeting._Board(store), reference, nodes, limit_s))]
        for node in range(1, nodes):
            if node not in absent:
                threads.append(threading.Thread(daemon=True, target=ask, args=(node,)))
        for thread in reversed(threads):
            thread.start()
        for thread in threads:
            thread.join(120)
            self.assertFalse(thread.is_alive(), "it waits for ever")
        return store, told

    def test_all_are_told_and_no_reader_of_the_store(self):
        store, told = self.meet(5)
        self.assertEqual(told, {node: TEXT for node in range(1, 5)})
        everything = b"".join(store.texts.values())
        self.assertNotIn(KEY, everything)
        self.assertNotIn(bytes(range(32)), everything)
        hidden = [text[:64] for name, text in store.texts.items() if "/told/" in name]
        self.assertEqual(len(set(hidden)), 4)

    def test_nobody_is_waited_for_long(self):
        _, told = self.meet(3, absent=(2,), limit_s=3)
        self.assertEqual(told, {1: TEXT})
        self.assertEqual(meeting.ask(meeting._Board(Store()), 1, 0.2), b"")

    def test_where_there_is_nothing_to_say_nobody_waits(self):
        """A wait would take longer than the threads are given."""
        _, told = self.meet(3, reference=b"", limit_s=1000)
        self.assertEqual(told, {1: b"", 2: b""})


if __name__ == "__main__":
    unittest.main()
