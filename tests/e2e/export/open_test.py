"""lockstep open: serves one file to one page, whatever else comes.

usage: open_test.py BUILD_DIR [unittest arguments]
"""

import http.client
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import jobs
import runs

ORIGIN = "https://ui.perfetto.dev"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Open(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.held = tempfile.TemporaryDirectory()
        cls.made = runs.make(runs.MPI, cls.held.name)
        runs.lockstep("export", cls.made, "--no-findings")
        cls.content = (cls.made / "timeline.pftrace").read_bytes()

    @classmethod
    def tearDownClass(cls):
        cls.held.cleanup()

    def serve(self, *options):
        self.port = free_port()
        self.server = subprocess.Popen([jobs.LOCKSTEP, "open", self.made, "--port", str(self.port), *options],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=jobs.ENVIRONMENT)
        self.addCleanup(self.end)
        self.said = []
        while not self.said or "Ctrl-C" not in self.said[-1]:
            line = self.server.stdout.readline()
            self.assertTrue(line, self.server.stderr.read() if self.server.poll() is not None else self.said)
            self.said.append(line)

    def end(self):
        if self.server.poll() is None:
            self.server.kill()
        self.server.wait()
        self.server.stdout.close()
        self.server.stderr.close()

    def ask(self, method="GET", target="/timeline.pftrace", **headers):
        """(status, headers, body); None: closed without an answer."""
        headers = {"Origin": ORIGIN, "Host": f"127.0.0.1:{self.port}",
                   **{name.replace("_", "-"): value for name, value in headers.items()}}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                if value is not None:
                    connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        except (ConnectionError, http.client.BadStatusLine):
            return None
        finally:
            connection.close()

    def fetch(self):
        status, headers, body = self.ask()
        self.assertEqual((status, body == self.content), (200, True))
        self.assertEqual(headers["Access-Control-Allow-Origin"], ORIGIN)
        self.assertEqual(int(headers["Content-Length"]), len(self.content))

    def test_fetched_once(self):
        self.serve()
        said = "".join(self.said)
        self.assertIn(f"https://ui.perfetto.dev/#!/?url=http://127.0.0.1:{self.port}/timeline.pftrace", said)
        self.assertIn(f"ssh -N -L {self.port}:127.0.0.1:{self.port}", said)
        status, _, body = self.ask("HEAD")
        self.assertEqual((status, body), (200, b""))
        status, headers, _ = self.ask("OPTIONS", Access_Control_Request_Method="GET",
                                      Access_Control_Request_Private_Network="true")
        self.assertEqual(status, 204)
        self.assertEqual(headers["Access-Control-Allow-Private-Network"], "true")
        self.assertIsNone(self.server.poll())  # Neither was the file.
        self.fetch()
        self.assertEqual(self.server.wait(10), 0)
        self.assertIn("fetched: done", self.server.stdout.read())

    def test_refused(self):
        self.serve("--stay")
        refusals = [
            (404, dict(target="/")), (404, dict(target="/../timeline.h5")), (404, dict(target="/timeline.h5")),
            (404, dict(target="/%2e%2e/manifest.json")), (404, dict(target="/timeline.pftrace/../manifest.json")),
            (404, dict(target="/timeline.pftrace%00")), (404, dict(target="//timeline.pftrace")),
            (404, dict(target="/timeline.pftrace?x=1")), (404, dict(target="http://127.0.0.1/timeline.pftrace")),
            (404, dict(target="/etc/passwd")),
            (405, dict(method="POST")), (405, dict(method="PUT")), (405, dict(method="DELETE")), (405, dict(method="PATCH")),
            (403, dict(Origin="https://evil.example")), (403, dict(Origin="null")), (403, dict(Origin=None)),
            (403, dict(Origin="https://ui.perfetto.dev.evil.example")), (403, dict(Origin="http://ui.perfetto.dev")),
            (403, dict(method="OPTIONS", Origin="https://evil.example")),
            (403, dict(Host="evil.example")), (403, dict(Host=f"evil.example:{self.port}")), (403, dict(Host=None)),
            (431, dict(X_Large="x" * 20_000)),
        ]
        for status, request in refusals:
            with self.subTest(request if "X_Large" not in request else "large header"):
                answer = self.ask(**request)
                self.assertIsNotNone(answer)
                self.assertEqual(answer[0], status)
                self.assertEqual(answer[2], b"")
                self.assertNotIn("Access-Control-Allow-Origin", answer[1])
        for nonsense in (b"\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"\x00" * 100, b"A" * 100_000):
            with socket.create_connection(("127.0.0.1", self.port), timeout=10) as raw:
                try:
                    raw.sendall(nonsense)
                    raw.shutdown(socket.SHUT_WR)
                    answer = b"".join(iter(lambda: raw.recv(4096), b""))
                except ConnectionError:
                    answer = b""
                self.assertRegex(answer, rb"^(HTTP/1.1 (400|403|431) .*)?$|^HTTP/1.1 4")
                self.assertNotIn(self.content[:64], answer)
        self.fetch()
        self.assertIsNone(self.server.poll())
        self.server.send_signal(signal.SIGINT)
        self.assertEqual(self.server.wait(10), 0)
        self.assertIn("interrupted, fetched before", self.server.stdout.read())

    def test_slow_and_many(self):
        """Half-open, idle and dripping connections neither stop others nor stay for ever."""
        self.serve("--stay")
        idle = [socket.create_connection(("127.0.0.1", self.port), timeout=10) for _ in range(200)]
        for connection in idle[:100]:
            try:
                connection.sendall(b"GET /timeline.pftrace HTTP/1.1\r\nHo")
            except OSError:
                pass
        begin = time.monotonic()
        self.fetch()
        self.assertLess(time.monotonic() - begin, 3)
        # Drips a byte now and then: the whole request has its time, not each byte.
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as slow:
            begin = time.monotonic()
            closed = None
            while closed is None and time.monotonic() - begin < 15:
                try:
                    slow.sendall(b"x")
                    slow.settimeout(0.3)
                    if slow.recv(1) == b"":
                        closed = time.monotonic() - begin
                except TimeoutError:
                    continue
                except OSError:
                    closed = time.monotonic() - begin
            self.assertIsNotNone(closed, "dripping was allowed to go on")
            self.assertLess(closed, 9)
        # Asks and does not read: the others are served.
        deaf = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        deaf.sendall(f"GET /timeline.pftrace HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nOrigin: {ORIGIN}\r\n\r\n".encode())
        fetches = [threading.Thread(target=self.fetch) for _ in range(8)]
        for thread in fetches:
            thread.start()
        for thread in fetches:
            thread.join(20)
            self.assertFalse(thread.is_alive())
        for connection in [*idle, deaf]:
            connection.close()
        self.fetch()
        self.assertIsNone(self.server.poll())

    def test_only_this_machine(self):
        self.serve("--stay")
        listening = subprocess.run(["ss", "-ltn"], capture_output=True, text=True).stdout if jobs.have("ss") else ""
        if listening:
            self.assertIn(f"127.0.0.1:{self.port} ", listening)
            self.assertNotIn(f"0.0.0.0:{self.port} ", listening)
            self.assertNotIn(f"*:{self.port} ", listening)
        for address in {i[4][0] for i in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)} - {"127.0.0.1"}:
            with self.assertRaises(OSError):
                socket.create_connection((address, self.port), timeout=2).close()

    def test_taken_port(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            done = jobs.run([jobs.LOCKSTEP, "open", self.made, "--port", port], cwd="/")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"cannot listen", done.stderr)
        self.assertIn(b"try:", done.stderr)

    def test_step_and_missing_file(self):
        """The file is made when it is not there, and the URL shows the step."""
        (self.made / "timeline.pftrace").unlink()
        self.serve("--step", "3")
        url = re.search(r"visStart=(\d+)&visEnd=(\d+)", "".join(self.said))
        begin, end = int(url.group(1)), int(url.group(2))
        self.assertLess(begin, end)
        type(self).content = (self.made / "timeline.pftrace").read_bytes()
        self.fetch()
        self.assertEqual(self.server.wait(10), 0)
        import timeline as perfetto
        if perfetto.have_protoc():
            steps = [s for s in perfetto.Timeline(self.content).slices if s.name == "step 3" and s.track == "steps"]
            self.assertEqual((begin, end), (min(s.begin for s in steps), max(s.end for s in steps) + 1))
        done = jobs.run([jobs.LOCKSTEP, "open", self.made, "--step", "77"], cwd="/")
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"steps from", done.stderr)


if __name__ == "__main__":
    program = unittest.main(argv=[sys.argv[0], *sys.argv[2:]], exit=False)
    sys.exit(not program.result.wasSuccessful())
