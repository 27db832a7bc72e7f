"""What runs a fuzzer of libFuzzer's on a corpus: the scripts beside the fuzzers say which and make the corpus.

usage of these: fuzz.py BUILD_DIR [--seconds 20] [--jobs 1] [--seed 1] [--keep DIR]
                fuzz.py BUILD_DIR --replay INPUTS    without a search: the corpus and so many damaged copies (fuzz_replay)
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import tempfile


def run(name, make_corpus, longest, words=()):
    """The program tests/NAME of the build, on what make_corpus(directory) writes. `longest`: bytes of an input. `words`: of
    the fuzzer's dictionary, in its syntax. The exit code: 77 if it is not built, 1 with a finding."""
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=pathlib.Path, help="work here and keep what is there: the corpus grows")
    parser.add_argument("--replay", type=int)
    options = parser.parse_args()
    if options.replay is not None:
        where = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-fuzz-"))
        make_corpus(where / "seeds")
        failed = subprocess.run([options.build.resolve() / "tests/fuzz_replay", name.removeprefix("fuzz_"), where / "seeds",
                                 str(options.replay), str(options.seed), where / "finding"]).returncode != 0
        if failed:
            print(f"FINDING: the input is {where}/finding")
        else:
            shutil.rmtree(where)
        return int(failed)
    program = options.build.resolve() / "tests" / name
    if not program.exists():
        print(f"skipped: {name} is not built (cmake --build BUILD --target fuzzers; it needs clang++ with libFuzzer)")
        return 77
    where = options.keep or pathlib.Path(tempfile.mkdtemp(prefix="lockstep-fuzz-"))
    seeds, grown = where / "seeds", where / "corpus"
    grown.mkdir(parents=True, exist_ok=True)
    make_corpus(seeds)
    command = [program, grown, seeds, f"-max_total_time={options.seconds}", f"-max_len={longest}", "-timeout=30",
               "-rss_limit_mb=4096", "-print_final_stats=1", f"-artifact_prefix={where}/finding-"]
    if words:
        dictionary = where / "words"
        dictionary.write_text("".join(f'"{word}"\n' for word in words))
        command.append(f"-dict={dictionary}")
    environment = dict(os.environ, UBSAN_OPTIONS="print_stacktrace=1", ASAN_OPTIONS="allocator_may_return_null=1")
    running = [subprocess.Popen([*command, f"-seed={options.seed + job}"], stderr=subprocess.PIPE, text=True,
                                errors="replace", env=environment) for job in range(options.jobs)]
    failed = False
    for process in running:
        lines = process.communicate()[1].splitlines()
        failed |= process.returncode != 0
        wanted = lines[-60:] if process.returncode else [line for line in lines if "number_of_executed" in line or " DONE " in line]
        print("\n".join(wanted))
    if failed:
        print(f"FINDING: the input is in {where}")
    elif not options.keep:
        shutil.rmtree(where)
    return 1 if failed else 0
