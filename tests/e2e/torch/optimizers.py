"""Which optimizer's steps are the job's, under `lockstep run`: optimizers.py BUILD_DIR CASE [PYTHON]"""
import sys

from check import PYTHON, Case, run, run_case

SCRIPT = """
import sys, torch
torch.manual_seed(1)
model = torch.nn.Linear(4, 4)
first, second = (torch.optim.SGD(model.parameters(), lr=0.01) for _ in range(2))

def train(optimizer, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).square().sum().backward()
        optimizer.step()

for numbers in sys.argv[1:]:
    for optimizer, steps in zip((first, second), map(int, numbers.split(","))):
        train(optimizer, steps)
print(float(model(torch.ones(2, 4)).sum().detach()).hex())
"""


class Optimizers(Case):
    def steps(self, *numbers):
        """Steps that ended in a job that steps so often with its first optimizer, its second, and so on."""
        script = self.script(SCRIPT)
        plain, traced = run([PYTHON, script, *numbers], self.dir), self.lockstep(PYTHON, script, *numbers)
        self.assertEqual((traced.returncode, traced.stdout), (0, plain.stdout), traced.stderr)
        return sum(row["complete"] for row in self.file().rows("steps"))

    def test_one_that_trains_no_more(self):
        """A warm-up's optimizer that the program keeps: the other's steps count from its hundredth on, which ends the
        step in between."""
        self.assertEqual(self.steps("5,130"), 5 + 1 + 30)
        self.assertEqual(self.steps("5,130", "120,3"), 5 + 1 + 30 + 1 + 20)

    def test_several_that_take_turns(self):
        """The first one's, however often the other steps between two of them."""
        self.assertEqual(self.steps(*["1,1"] * 9), 9)
        self.assertEqual(self.steps(*["1,80"] * 4), 4)


if __name__ == "__main__":
    run_case(globals())
