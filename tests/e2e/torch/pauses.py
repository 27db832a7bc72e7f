"""Garbage collections and torch.save under `lockstep run` become ranges, and change nothing: pauses.py BUILD_DIR"""
import os, subprocess, sys, tempfile

BUILD = os.path.abspath(sys.argv[1])
PYTHON = "/usr/bin/python3"
try:
    import h5py  # noqa: F401
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    import rank_tables  # noqa: E402
    import torch  # noqa: F401
except ImportError as error:
    print("skipped: %s" % error)
    sys.exit(77)
if not os.path.exists(BUILD + "/lockstep"):
    print("skipped: lockstep is not built")
    sys.exit(77)

SCRIPT = """
import gc, torch
torch.manual_seed(1)
gc.disable()
gc.collect()  # Before training: no range.
torch.save({}, "before.pt")
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
seen = []
gc.callbacks.append(lambda phase, info: seen.append((phase, info["generation"])))
for step in range(6):
    optimizer.zero_grad()
    model(torch.full((2, 8), float(step))).sum().backward()
    optimizer.step()
    if step in (2, 4):
        torch.save(model.state_dict(), "step%d.pt" % step)
    if step == 3:
        gc.collect(0), gc.collect(1), gc.collect()
print(seen, torch.save.__name__, torch.save.__module__)
print([float(p.sum()) for p in torch.load("step4.pt").values()])
try:
    torch.save(model, "/no/such/directory/x.pt")
except Exception as error:
    print(type(error).__name__)
"""
COLLECTION, SAVE, CHECKPOINT = "Python garbage collection", "torch.save", 6


def main():
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("LOCKSTEP_", "OMPI_", "PMIX_", "PYTHON"))}
    failed = []
    with tempfile.TemporaryDirectory() as directory:
        with open(directory + "/script.py", "w") as file:
            file.write(SCRIPT)
        run = lambda words: subprocess.run(words, cwd=directory, env=environment, capture_output=True, text=True, timeout=200)
        plain = run([PYTHON, "script.py"])
        traced = run([BUILD + "/lockstep", "run", "--quiet", "--after", "none", "-o", "out", "--", PYTHON, "script.py"])
        if (plain.stdout, plain.returncode) != (traced.stdout, traced.returncode):
            failed.append(f"with Lockstep:\n{traced.stdout}{traced.stderr}without:\n{plain.stdout}{plain.stderr}")
        with rank_tables.open_file(directory + "/out/ranks/rank-00000.h5") as f:
            data = bytes(f["string_bytes/value"][:])
            texts = [data[o:o + n].decode() for o, n in zip(f["strings/offset_bytes"][:], f["strings/length_bytes"][:])]
            ranges = [(texts[n], int(c)) for n, c in zip(f["ranges/name"][:], f["ranges/category"][:])]
    if ranges.count((COLLECTION, 0)) != 1:
        failed.append(f"one full collection, recorded: {ranges}")
    if ranges.count((SAVE, CHECKPOINT)) != 3:
        failed.append(f"three saves, recorded: {ranges}")
    print("\n".join(failed) or "ok")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
