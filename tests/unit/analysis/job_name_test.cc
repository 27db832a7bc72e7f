#include "analysis/run/job_name.h"

#include <gtest/gtest.h>

namespace lockstep::analysis {
namespace {

TEST(JobName, IsTheScriptAndNoSwitchesWord) {
  const std::pair<const char*, const char*> rows[] = {
      {"./build/ddp_mpi --steps 9", "ddp_mpi"},
      {"python3 -u train.py --lr 1", "train.py"},
      {"/usr/bin/python3.11 -W ignore /a/train.py", "train.py"},
      {"python3 -Wignore -X dev train.py", "train.py"},
      {"python3 -uW ignore train.py -m x", "train.py"},
      {"python3 -um pack.train -x", "pack.train"},
      {"python3 -mpack.train", "pack.train"},
      {"python3 --check-hash-based-pycs never train.py", "train.py"},
      {"python3 -c 'print(1)' train.py", "python3"},
      {"python3 -uc 'print(1)'", "python3"},
      {"python3 - train.py", "python3"},
      {"python3 -m", "python3"},
      {"python3 -W", "python3"},
      {"python3", "python3"},
      {"bash -o pipefail ./run.sh 3", "run.sh"},
      {"bash -eo pipefail run.sh", "run.sh"},
      {"bash --rcfile x run.sh", "run.sh"},
      {"sh -c 'a b'", "sh"},
      {"shower -o x", "shower"},
      {"perl -w job.pl", "job.pl"},
      {"", ""},
      {"python3 ''", ""},
  };
  for (const auto& [command, name] : rows) EXPECT_EQ(JobName(command), name) << command;
}

}  // namespace
}  // namespace lockstep::analysis
