// decode_spool RUN: finishes left spools as `lockstep analyze` does, and says how many.

#include <cstdio>

#include "runtime/agent/recover/recover.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::printf("%zu\n", lockstep::agent::FinishLeftSpools(argv[1]));
  return 0;
}
