"""A headless Chromium, driven over the DevTools protocol through a pair of pipes: standard library only."""

import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time


def chromium():
    """Its path, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page:
    def __init__(self, browser, session):
        self.browser, self.session = browser, session
        self.console, self.requests = [], []

    def call(self, method, **parameters):
        return self.browser.call(method, parameters, self.session)

    def eval(self, expression):
        """The value of a JavaScript expression; promises are awaited."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise AssertionError(f"{expression[:200]}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, expression, seconds=30):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            value = self.eval(expression)
            if value:
                return value
            time.sleep(0.05)
        raise AssertionError(f"never true: {expression}; console: {self.console}")

    def key(self, key):
        named = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, " ": 32}
        more = {"windowsVirtualKeyCode": named[key]} if key in named else {}
        text = {"text": "\r" if key == "Enter" else key} if key == "Enter" or len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", key=key, **more, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, **more)

    def hover(self, selector, x, y):
        """Moves the pointer to a place within an element, in CSS pixels; returns the tip's lines."""
        box = self.eval(f"(e => {{ e.scrollIntoView({{block: 'center'}}); const r = e.getBoundingClientRect(); "
                        f"return [r.left, r.top]; }})(document.querySelector({json.dumps(selector)}))")
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0] + x, y=box[1] + y)
        return self.tip()

    def tip(self):
        return self.eval("document.getElementById('tip').hidden ? [] : [...document.querySelectorAll('#tip > div')].map(e => e.textContent)")

    def screenshot(self, path, width=1240):
        height = self.eval("Math.ceil(document.documentElement.scrollHeight)")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        time.sleep(0.3)
        data = self.call("Page.captureScreenshot", format="png")["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))
        self.call("Emulation.clearDeviceMetricsOverride")


class Browser:
    def __init__(self, width=1240, height=900, language="en_US.UTF-8"):
        self.home = tempfile.mkdtemp(prefix="lockstep-chromium-")
        self.downloads = pathlib.Path(self.home) / "downloads"
        self.downloads.mkdir()
        command_read, self.write_fd = os.pipe()
        self.read_fd, answer_write = os.pipe()
        words = [chromium(), "--headless=new", "--no-sandbox", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run",
                 "--disable-dev-shm-usage", "--disable-extensions", "--disable-background-networking", f"--user-data-dir={self.home}/profile",
                 f"--window-size={width},{height}", "about:blank"]
        # Chromium reads commands from descriptor 3 and answers on 4.
        self.process = subprocess.Popen(["bash", "-c", f'exec "$@" 3<&{command_read} 4>&{answer_write}', "chromium", *words],
                                        pass_fds=(command_read, answer_write), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        env={**os.environ, "LANG": language, "LC_ALL": language, "HOME": self.home})
        os.close(command_read)
        os.close(answer_write)
        self.next_id, self.answers, self.pages, self.buffer = 0, {}, {}, b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        try:
            self.call("Browser.close", {}, seconds=5)
        except (AssertionError, OSError):
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.write_fd)
        os.close(self.read_fd)
        shutil.rmtree(self.home, ignore_errors=True)

    def call(self, method, parameters, session=None, seconds=60):
        self.next_id += 1
        number = self.next_id
        message = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.write_fd, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + seconds
        while number not in self.answers:
            self.pump(end)
        answer = self.answers.pop(number)
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        return answer["result"]

    def pump(self, end):
        ready, _, _ = select.select([self.read_fd], [], [], max(0, end - time.monotonic()))
        if not ready:
            raise AssertionError("the browser does not answer")
        data = os.read(self.read_fd, 1 << 20)
        if not data:
            raise AssertionError("the browser has ended")
        self.buffer += data
        *messages, self.buffer = self.buffer.split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self.answers[message["id"]] = message
            elif (page := self.pages.get(message.get("sessionId"))) is not None:
                self.event(page, message["method"], message["params"])

    @staticmethod
    def event(page, method, parameters):
        if method == "Runtime.consoleAPICalled":
            page.console.append([argument.get("value", argument.get("description")) for argument in parameters["args"]])
        elif method == "Runtime.exceptionThrown":
            page.console.append(parameters["exceptionDetails"].get("exception", {}).get("description", parameters))
        elif method == "Log.entryAdded":
            # What the tests themselves do to see whether a plot is blank.
            if "willReadFrequently" not in parameters["entry"]["text"]:
                page.console.append(parameters["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            page.requests.append(parameters["request"]["url"])

    def open(self, path, dark=False, downloads=True):
        """A page of a file, its scripts done."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = self.pages[session] = Page(self, session)
        for domain in ("Runtime", "Log", "Network", "Page"):
            page.call(f"{domain}.enable")
        if downloads:
            self.call("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(self.downloads)})
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        page.call("Page.navigate", url=pathlib.Path(path).resolve().as_uri())
        page.wait("document.readyState === 'complete' && document.body.dataset.ready", 60)
        return page

    def downloaded(self, name, seconds=20):
        """The text of a file that the page saved, and removes it."""
        path, end = self.downloads / name, time.monotonic() + seconds
        while time.monotonic() < end:
            # Chromium 156 reserves the name with an empty file first; ours are never empty.
            if path.exists() and path.stat().st_size > 0:
                text = path.read_bytes().decode()
                path.unlink()
                return text
            # Downloads are written beside and renamed.
            self.call("Browser.getVersion", {})
            time.sleep(0.05)
        raise AssertionError(f"{name} was not saved; there are {list(self.downloads.iterdir())}")
