#pragma once
// The command line of ddp_nccl.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace example {

struct Options {
  int steps = 60, layers = 8, width = 1024, batch = 256;
  int sync_every = 10, pause_ms = 0;
  double bucket_cap_mb = 4, learning_rate = 0.05;
  bool overlap = true, graph = false, check = false, mix = false;
  int slow_rank = -1;
  double slow_factor = 1;
  std::uint64_t seed = 1;
  std::string end = "return";  // return, throw, _exit, abort, wait (until a signal comes)
};

inline void Usage() {
  std::puts(
      "Data-parallel training step on NCCL: matrix products forward and backward, gradient buckets reduced on\n"
      "a stream of their own while the backward pass goes on.\n"
      "\n"
      "  mpirun -np 2 lockstep run -- ./ddp_nccl --slow-rank 1:1.3\n"
      "\n"
      "  --steps N --layers N --width N --batch N    the work: LAYERS matrices of WIDTH x WIDTH, BATCH rows a rank\n"
      "  --bucket-cap-mb X     as DDP's; the first bucket is 1 MiB at most\n"
      "  --overlap on|off      off: reduce after the backward pass\n"
      "  --slow-rank R:F       rank R does F times the matrix products\n"
      "  --cuda-graph          steps after the third are replays of a captured one\n"
      "  --mix                 every other kind of NCCL call once a step, too\n"
      "  --check               train on the CPU as well and compare (small sizes); all ranks must agree to the bit\n"
      "  --sync-every N        steps between two reads of the loss, for which the program waits (default 10); until "
      "then\n"
      "                        it runs ahead of the GPU\n"
      "  --pause-ms N          the program sleeps after each step\n"
      "  --learning-rate X --seed N\n"
      "  --end return|throw|_exit|abort|wait         how the program ends");
}

inline Options ParseOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto next = [&]() -> std::string {
      if (i + 1 >= argc) {
        std::fprintf(stderr, "ddp_nccl: %s needs a value\n", name.c_str());
        std::exit(2);
      }
      return argv[++i];
    };
    if (name == "--steps")
      options.steps = std::stoi(next());
    else if (name == "--layers")
      options.layers = std::stoi(next());
    else if (name == "--width")
      options.width = std::stoi(next());
    else if (name == "--batch")
      options.batch = std::stoi(next());
    else if (name == "--sync-every")
      options.sync_every = std::max(1, std::stoi(next()));
    else if (name == "--pause-ms")
      options.pause_ms = std::stoi(next());
    else if (name == "--bucket-cap-mb")
      options.bucket_cap_mb = std::stod(next());
    else if (name == "--learning-rate")
      options.learning_rate = std::stod(next());
    else if (name == "--overlap")
      options.overlap = next() != "off";
    else if (name == "--cuda-graph")
      options.graph = true;
    else if (name == "--mix")
      options.mix = true;
    else if (name == "--check")
      options.check = true;
    else if (name == "--seed")
      options.seed = std::stoull(next());
    else if (name == "--end")
      options.end = next();
    else if (name == "--slow-rank") {
      const std::string value = next();
      const std::size_t colon = value.find(':');
      options.slow_rank = std::stoi(value);
      options.slow_factor = colon == std::string::npos ? 1.5 : std::stod(value.substr(colon + 1));
    } else {
      Usage();
      std::exit(name == "--help" || name == "-h" ? 0 : 2);
    }
  }
  return options;
}

}  // namespace example
