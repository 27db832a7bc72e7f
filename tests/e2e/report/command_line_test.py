"""lockstep report: errors, and files where they are asked for; no browser. command_line_test.py BUILD_DIR"""
import pathlib
import tempfile

from report_test import check, equal, jobs, synthetic


def command_line(place):
    run = synthetic(place, "healthy")
    out = place / "page.html"
    done = jobs.run([jobs.LOCKSTEP, "report", run, "-o", out, "-q"], place)
    equal((done.returncode, done.stdout), (0, b""), done.stderr.decode())
    check(out.exists() and not (run / "report.html").exists(), "-o FILE")
    done = jobs.run([jobs.LOCKSTEP, "report", run, "-o", "-"], place)
    equal(done.stdout, out.read_bytes(), "-o -")
    one = jobs.run([jobs.LOCKSTEP, "report", run, "-o", "-", "-j", "1"], place)
    equal(one.stdout, done.stdout, "the number of threads changes nothing")
    for wrong, code in (([place / "nowhere"], 2), ([run, "--steps", "x"], 2), ([run, "--timeline-steps", "9:3"], 2), ([run, "-o", place / "no/such/file"], 1)):
        done = jobs.run([jobs.LOCKSTEP, "report", *wrong], place)
        equal(done.returncode, code, str(wrong))
        lines = done.stderr.decode().splitlines()
        check(lines[0].startswith("error: ") and lines[-1].strip().startswith("try: "), str(lines))
    done = jobs.run([jobs.LOCKSTEP, "report", run, "--steps", "2:6", "--timeline-steps", "3:5", "-o", out], place)
    check(done.returncode in (0, 3), done.stderr.decode())
    check(b"http://" not in out.read_bytes().replace(b"http://www.w3.org", b""), "no address that is not encrypted, let alone fetched")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        command_line(pathlib.Path(directory))
