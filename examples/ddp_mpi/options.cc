#include "examples/ddp_mpi/options.h"

#include <charconv>
#include <iostream>
#include <sstream>
#include <string>

namespace lockstep::example {

const char* Name(Overlap overlap) {
  return overlap == Overlap::kOn ? "on" : overlap == Overlap::kLate ? "late" : "off";
}

std::string Changed(const std::string& text, int ranks, Options& options) {
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t equals = part.find('=');
    const std::string key = part.substr(0, equals), value = equals == std::string::npos ? "" : part.substr(equals + 1);
    const auto number = [&](double& to) {
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), to);
      return error == std::errc() && end == value.data() + value.size() && to > 0;
    };
    bool good = false;
    if (key == "cap") {
      good = number(options.bucket_cap_mb);
    } else if (key == "first") {
      good = number(options.first_bucket_mb);
    } else if (key == "overlap") {
      good = true;
      if (value == "on")
        options.overlap = Overlap::kOn;
      else if (value == "late")
        options.overlap = Overlap::kLate;
      else if (value == "off")
        options.overlap = Overlap::kOff;
      else
        good = false;
    } else if (key == "slow") {
      FaultTexts texts;
      texts.slow_rank = {value};
      if (const std::string wrong = ParseFaults(texts, ranks, options.faults); !wrong.empty()) return wrong;
      good = true;
    }
    if (!good)
      return "--compare " + text + ": '" + part +
             "' is none of cap=MIB, first=MIB, overlap=on|late|off, slow=RANK:FACTOR";
  }
  return {};
}

int ParseOptions(int argc, char** argv, int rank, int ranks, Options& options) {
  const auto add_own = [&](Arguments& arguments) {
    arguments.Number("--bucket-cap-mb", options.bucket_cap_mb, Arguments::kPositive,
                     "Bucket limit in MiB, fractions allowed");
    arguments.Number("--first-bucket-mb", options.first_bucket_mb, Arguments::kPositive,
                     "Limit of the first bucket in MiB");
    arguments.Choice<Overlap>(
        "--overlap", options.overlap, {{"on", Overlap::kOn}, {"late", Overlap::kLate}, {"off", Overlap::kOff}},
        "on: MPI_Iallreduce during backward; late: the same after it; off: MPI_Allreduce after it");
    arguments.Flag("--reduce-thread", options.queue,
                   "A thread reduces the buckets by MPI_Allreduce, one after the other, as PyTorch's MPI backend does; "
                   "instead of MPI_Iallreduce and --progress");
    arguments.Texts("--compare", options.compare, 0,
                    "Train in each of these ways in turn, --block-steps each, for --steps rounds; the times go to "
                    "--report. \"cap=MIB,first=MIB,overlap=on|late|off,slow=RANK:FACTOR\", each part optional");
    arguments.Number("--block-steps", options.block_steps, Arguments::kPositive, "Steps of one way before the next");
    arguments.Flag("--print-buckets", options.print_buckets, "Print each bucket's tensors and bytes");
  };
  const int code = ParseTrainingOptions(
      argc, argv, rank, ranks, "Data-parallel training of a multi-layer network over MPI, the way DDP does it.",
      "ddp_mpi", add_own, options);
  if (code >= 0) return code;
  for (const std::string& text : options.compare) {
    Options other = options;
    if (const std::string wrong = Changed(text, ranks, other); !wrong.empty()) {
      if (rank == 0) std::cerr << wrong << "\n";
      return 2;
    }
  }
  return code;
}

}  // namespace lockstep::example
