"""lockstep open: serves one file to one page, whatever else comes.

usage: open_test.py BUILD_DIR [unittest arguments]
"""

import http.client
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import jobs
import runs

ORIGIN = "https://ui.perfetto.dev"


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
        self.addCleanup(self.end)
        self.server = subprocess.Popen([jobs.LOCKSTEP, "open", self.made, "--port", "0", *options],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=jobs.ENVIRONMENT)
        self.said = []
        while not self.said or "Ctrl-C" not in self.said[-1]:
            self.said.append(self.server.stdout.readline())
            if not self.said[-1]:
                self.fail(self.server.communicate())
        port, self.path = re.search(r"url=http://127.0.0.1:(\d+)(/[0-9a-f]{32}/timeline\.pftrace)", "".join(self.said)).groups()
        self.port = int(port)

    def end(self):
        if self.server.poll() is None:
            self.server.kill()
        self.server.wait()
        self.server.stdout.close()
        self.server.stderr.close()

    def ask(self, method="GET", target=None, **headers):
        """(status, headers, body); None: closed without an answer."""
        headers = {"Origin": ORIGIN, "Host": f"127.0.0.1:{self.port}",
                   **{name.replace("_", "-"): value for name, value in headers.items()}}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=100)
        try:
            connection.putrequest(method, target or self.path, skip_host=True, skip_accept_encoding=True)
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
        self.assertIn(f"https://ui.perfetto.dev/#!/?url=http://127.0.0.1:{self.port}{self.path}", said)
        self.assertIn(f"ssh -N -L {self.port}:127.0.0.1:{self.port}", said)
        status, _, body = self.ask("HEAD")
        self.assertEqual((status, body), (200, b""))
        status, headers, _ = self.ask("OPTIONS", Access_Control_Request_Method="GET",
                                      Access_Control_Request_Private_Network="true")
        self.assertEqual(status, 204)
        self.assertEqual(headers["Access-Control-Allow-Private-Network"], "true")
        self.assertIsNone(self.server.poll())  # Neither was the file.
        self.fetch()
        self.assertEqual(self.server.wait(100), 0)
        self.assertIn("fetched: done", self.server.stdout.read())

    def test_refused(self):
        self.serve("--stay")
        path, other = self.path, "0123456789abcdef" * 2
        refusals = [(404, request) for request in [
            dict(target="/"), dict(target="/timeline.pftrace"), dict(target="/../timeline.h5"), dict(target="/timeline.h5"),
            dict(target="/%2e%2e/manifest.json"), dict(target=path + "/../manifest.json"), dict(target=path + "%00"),
            dict(target="/" + path), dict(target=path + "?x=1"), dict(target="http://127.0.0.1" + path),
            dict(target="/etc/passwd"), dict(target=path[:33]), dict(target=path[:34]), dict(target=path[:-1]),
            dict(target=path + "x"), dict(target=f"/{other}/timeline.pftrace"), dict(target=path[:32] + "/timeline.pftrace"),
            dict(target=path.upper()), dict(target="/" + "/timeline.pftrace"), dict(target="//timeline.pftrace"),
            dict(method="POST"), dict(method="PUT"), dict(method="DELETE"), dict(method="PATCH"),
            dict(Origin="https://evil.example"), dict(Origin="null"), dict(Origin=None),
            dict(Origin="https://ui.perfetto.dev.evil.example"), dict(Origin="http://ui.perfetto.dev"),
            dict(method="OPTIONS", Origin="https://evil.example"),
            dict(Host="evil.example"), dict(Host=f"evil.example:{self.port}"), dict(Host=None)]]
        refusals.append((431, dict(X_Large="x" * 20_000)))
        # Who has guessed a part of it right is told no more than who has not.
        self.assertEqual(self.ask(target="/")[1], self.ask(method="POST", Origin="https://evil.example")[1])
        for status, request in refusals:
            with self.subTest(request if "X_Large" not in request else "large header"):
                answer = self.ask(**request)
                self.assertIsNotNone(answer)
                self.assertEqual(answer[0], status)
                self.assertEqual(answer[2], b"")
                self.assertNotIn("Access-Control-Allow-Origin", answer[1])
        for nonsense in (b"\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"\x00" * 100, b"A" * 100_000):
            with socket.create_connection(("127.0.0.1", self.port), timeout=100) as raw:
                try:
                    raw.sendall(nonsense)
                    raw.shutdown(socket.SHUT_WR)
                    answer = b"".join(iter(lambda: raw.recv(4096), b""))
                except OSError:  # Reset while it was still talking.
                    answer = b""
                self.assertRegex(answer, rb"^(HTTP/1.1 (400|403|431) .*)?$|^HTTP/1.1 4")
                self.assertNotIn(self.content[:64], answer)
        self.fetch()
        self.assertIsNone(self.server.poll())
        self.server.send_signal(signal.SIGINT)
        self.assertEqual(self.server.wait(100), 0)
        self.assertIn("interrupted, fetched before", self.server.stdout.read())

    def test_slow_and_many(self):
        """Half-open, idle and dripping connections neither stop others nor stay for ever."""
        self.serve("--stay")
        idle = [socket.create_connection(("127.0.0.1", self.port), timeout=100) for _ in range(200)]
        for connection in idle[:100]:
            try:
                connection.sendall(f"GET {self.path} HTTP/1.1\r\nHo".encode())
            except OSError:
                pass
        self.fetch()
        # Drips a byte now and then: the whole request has its time, not each byte.
        with socket.create_connection(("127.0.0.1", self.port), timeout=100) as slow:
            slow.settimeout(0.3)

            def closed():
                try:
                    slow.sendall(b"x")
                    return slow.recv(1) == b""
                except TimeoutError:
                    return False
                except OSError:
                    return True
            self.assertTrue(jobs.wait_until(closed), "dripping was allowed to go on")
        # Asks and does not read: the others are served.
        deaf = socket.create_connection(("127.0.0.1", self.port), timeout=100)
        deaf.sendall(f"GET {self.path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nOrigin: {ORIGIN}\r\n\r\n".encode())
        fetches = [threading.Thread(target=self.fetch) for _ in range(8)]
        for thread in fetches:
            thread.start()
        for thread in fetches:
            thread.join(100)
            self.assertFalse(thread.is_alive())
        for connection in [*idle, deaf]:
            connection.close()
        self.fetch()
        self.assertIsNone(self.server.poll())

    def test_crowd(self):
        """A thousand strangers with garbage, guesses and silence: few descriptors, and the page gets its file."""
        self.serve("--stay")
        held = []
        for i in range(1000):
            try:
                stranger = socket.create_connection(("127.0.0.1", self.port), timeout=100)
                if i % 4 == 1:
                    stranger.sendall(os.urandom(100))
                elif i % 4 == 2:
                    stranger.sendall(f"GET /{os.urandom(16).hex()}/timeline.pftrace HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nOrigin: {ORIGIN}\r\n\r\n".encode())
                elif i % 4 == 3:
                    stranger.sendall(b"GET /")
                held.append(stranger)
            except OSError:
                pass
            if len(held) > 150:
                held.pop(0).close()
            if i % 250 == 249:
                self.fetch()
                self.assertLess(len(os.listdir(f"/proc/{self.server.pid}/fd")), 32 + 24)
        for stranger in held:
            stranger.close()
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

    def test_secret(self):
        """Another token each time, and no way to the file without it: curl as any local user, with all headers right."""
        paths = set()
        for _ in range(3):
            self.serve("--stay")
            paths.add(self.path)
            for guess in ("/timeline.pftrace", "/", *(paths - {self.path})):
                self.assertEqual(self.ask(target=guess)[0], 404)
            self.fetch()
            self.end()
        self.assertEqual(len(paths), 3)

    def test_swapped_file(self):
        """What was there when it was opened is served, and nothing that is no plain file is opened."""
        file = self.made / "timeline.pftrace"
        self.serve("--stay")
        replaced = file.with_suffix(".new")
        replaced.write_bytes(b"something else")
        replaced.rename(file)
        try:
            self.fetch()
            self.end()
            other = file.with_suffix(".other")
            other.write_bytes(b"somebody else's")
            for make in (lambda: file.symlink_to(other), lambda: os.mkfifo(file)):
                file.unlink()
                make()
                os.utime(file, (4e9, 4e9))  # Newer than the timeline: taken as it is.
                done = jobs.run([jobs.LOCKSTEP, "open", self.made, "--port", "0"], cwd="/", timeout=60)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(b"cannot", done.stderr)
        finally:
            file.unlink(missing_ok=True)
            file.write_bytes(self.content)

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
        self.assertEqual(self.server.wait(100), 0)
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
