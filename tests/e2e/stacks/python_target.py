"""Stands in known functions: python_target.py MODE. Prints "ready" when it does; the tests find lines by their marks."""
import ctypes
import os
import sys
import threading
import time


def ready():
    print("ready", flush=True)


def collate(item):
    time.sleep(60)  # mark: collate
    return item


class Loader:
    def fetch(self, items):
        return list(map(collate, items))  # mark: fetch


def generator(fd):
    yield os.read(fd, 1)  # mark: generator


def consume(fd):
    for _ in generator(fd):  # mark: consume
        pass


def spin():
    number = 0
    while True:
        number = (number + 1) % 1000  # mark: spin


def callback(left, right):
    if left == 0:
        time.sleep(60)  # mark: callback
    return left < right


class Key:
    def __init__(self, value):
        self.value = value

    def __lt__(self, other):
        return callback(self.value, other.value)  # mark: lt


def 作業():
    time.sleep(60)  # mark: unicode


def deep(depth):
    if depth == 0:
        time.sleep(60)  # mark: deep_end
    return deep(depth - 1) + 1  # mark: deep


def main():
    mode = sys.argv[1]
    read, _ = os.pipe()
    if mode == "thread":
        lock = threading.Lock()
        lock.acquire()

        def locked():
            with lock:  # mark: locked
                pass
        thread = threading.Thread(target=locked)
        thread.start()
        time.sleep(0.1)
        ready()
        thread.join()  # mark: join
    ready()
    if mode == "sleep":
        Loader().fetch([1])
    if mode == "generator":
        consume(read)
    if mode == "gil":
        def hold():
            ctypes.PyDLL(None).sleep(60)  # mark: hold

        threading.Thread(target=hold).start()
        spin()
    if mode == "spin":
        spin()
    if mode == "callback":
        sorted([Key(2), Key(0), Key(1)])  # mark: sorted
    if mode == "unicode":
        作業()
    if mode == "deep":
        sys.setrecursionlimit(5000)
        deep(800)


main()
