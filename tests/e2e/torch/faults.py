"""Injected faults of a DDP job over gloo, by rank, cause and price: faults.py BUILD_DIR CASE"""
import json

from check import HERE, LOCKSTEP, MPIRUN, PYTHON, Case, needs_mpi, run, run_case

LATE_MS, BURST_MS = 40, 100
WORDS = ["--fault", "loader,checkpoint,item", "--rank", "1", "--late-ms", str(LATE_MS), "--burst-ms", str(BURST_MS),
         "--work-ms", "3", "--steps", "44", "--layers", "6"]


@needs_mpi
class Faults(Case):
    def job(self, name, *before):
        """What the job itself measured."""
        truth = "%s/%s.json" % (self.dir, name)
        done = run(MPIRUN + [*before, PYTHON, HERE + "/faults_job.py", "%s/%s.meeting" % (self.dir, name), "--truth",
                                  truth, *WORDS], self.dir)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(truth) as file:
            return json.load(file)

    def test_late_data_and_checkpoints(self):
        """Rank 1's data are late in each step, and rank 0 saves a checkpoint every 8 steps; the losses are the same."""
        plain = self.job("plain")
        traced = self.job("traced", LOCKSTEP, "run", "--quiet", "--after", "none", "-o", "out", "--")
        self.assertEqual(plain["losses"], traced["losses"])
        done = run([LOCKSTEP, "analyze", "-q", "out"], self.dir)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(self.dir + "/out/analysis.json") as file:
            analysis = json.load(file)
        (late,) = analysis["stragglers"]
        self.assertEqual((late["rank"], late["cause"]), (1, "input"), done.stdout)
        # What a sleep takes on a busy machine, it takes in truth as well.
        injected = sorted(traced["injected_ms"][1])[22]
        self.assertAlmostEqual(late["price_ns_per_step"] / 1e6, injected, delta=0.25 * injected)
        # Its input is its finding's: no second finding has a price for the same time.
        self.assertNotIn("idle.other", [f["id"] for f in analysis["findings"]], done.stdout)
        # Whether bursts stand out is for the machine to say; whose they are is not.
        self.assertEqual([self.file("rank-%05d.h5" % rank).count("torch.save") for rank in (0, 1)], [5, 0])
        for burst in (f for f in analysis["findings"] if f["id"] == "burst.periodic"):
            self.assertIn('Every 8 steps rank 0 is in "torch.save"', burst["headline"])
        self.assertEqual(analysis["trust"]["unmatched_collectives"], 0)


if __name__ == "__main__":
    run_case(globals())
