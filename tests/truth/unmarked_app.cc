// Runs a program of unmarked.py with MPI: what make_run simulates, of which these operations: repeat, compute, barrier,
// allreduce, allgather, bcast, reduce, ring, halo. Work spins. Rank 0 prints how long it took, in seconds.
//
//   unmarked_app PROGRAM.trace

#include <mpi.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

long long Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

// "name=work" of the words of an operation; "" if it is not there.
std::string Option(const std::vector<std::string>& words, const std::string& name) {
  for (const std::string& word : words)
    if (word.starts_with(name + "=")) return word.substr(name.size() + 1);
  return {};
}
double Number(const std::string& text, double none) { return text.empty() ? none : std::strtod(text.c_str(), nullptr); }

class Program {
 public:
  explicit Program(const std::string& path) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
    std::ifstream file(path);
    bool body = false;
    for (std::string line; std::getline(file, line);) {
      std::vector<std::string> words;
      std::istringstream text(line);
      for (std::string word; text >> word;) words.push_back(word);
      if (words.empty()) continue;
      if (words[0] == "seed") random_.seed(std::stoul(words[1]) + static_cast<unsigned>(rank_));
      if (words[0] == "slow" && Number(Option(words, "rank"), -1) == rank_)
        slow_.emplace_back(Option(words, "at"), Number(Option(words, "factor"), 1));
      if (words[0] == "teardown") break;  // MPI_Finalize.
      if (body) lines_.push_back(words);
      body |= words[0] == "step";
    }
    lines_.pop_back();  // The step's end.
    in_.resize(1 << 22), out_.resize(1 << 22);
  }

  void Run() { Run(0, lines_.size()); }

 private:
  void Run(std::size_t from, std::size_t until) {
    for (std::size_t i = from; i < until; ++i) {
      if (lines_[i][0] != "repeat") {
        Do(lines_[i]);
        continue;
      }
      std::size_t end = i + 1;
      for (int open = 1; open > 0; ++end) open += lines_[end][0] == "repeat" ? 1 : lines_[end][0] == "end" ? -1 : 0;
      for (int n = std::atoi(lines_[i][1].c_str()); n > 0; --n) Run(i + 1, end - 1);
      i = end - 1;
    }
  }

  void Do(const std::vector<std::string>& words) {
    const std::string& what = words[0];
    const int bytes = words.size() > 1 ? std::atoi(words[1].c_str()) : 0;
    const int root = static_cast<int>(Number(Option(words, "root"), 0));
    if (what == "compute") {
      Spin(bytes * 1000.0, Option(words, "name"), Number(Option(words, "jitter"), 0) / 100);
    } else if (what == "barrier") {
      MPI_Barrier(MPI_COMM_WORLD);
    } else if (what == "allreduce") {
      MPI_Allreduce(out_.data(), in_.data(), bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    } else if (what == "reduce") {
      MPI_Reduce(out_.data(), in_.data(), bytes / 8, MPI_DOUBLE, MPI_SUM, root, MPI_COMM_WORLD);
    } else if (what == "bcast") {
      MPI_Bcast(out_.data(), bytes, MPI_BYTE, root, MPI_COMM_WORLD);
    } else if (what == "allgather") {
      const int part = bytes / ranks_;
      MPI_Allgather(out_.data(), part, MPI_BYTE, in_.data(), part, MPI_BYTE, MPI_COMM_WORLD);
    } else if (what == "ring") {
      MPI_Sendrecv(out_.data(), bytes, MPI_BYTE, (rank_ + 1) % ranks_, 0, in_.data(), bytes, MPI_BYTE,
                   (rank_ + ranks_ - 1) % ranks_, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (what == "halo") {
      MPI_Request requests[4];
      const int right = (rank_ + 1) % ranks_, left = (rank_ + ranks_ - 1) % ranks_;
      MPI_Irecv(in_.data(), bytes, MPI_BYTE, left, 1, MPI_COMM_WORLD, &requests[0]);
      MPI_Irecv(in_.data() + bytes, bytes, MPI_BYTE, right, 2, MPI_COMM_WORLD, &requests[1]);
      MPI_Isend(out_.data(), bytes, MPI_BYTE, right, 1, MPI_COMM_WORLD, &requests[2]);
      MPI_Isend(out_.data() + bytes, bytes, MPI_BYTE, left, 2, MPI_COMM_WORLD, &requests[3]);
      MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
    } else {
      std::fprintf(stderr, "unmarked_app: unknown operation %s\n", what.c_str());
      MPI_Abort(MPI_COMM_WORLD, 2);
    }
  }

  void Spin(double ns, const std::string& name, double jitter) {
    ns *= 1 + jitter * std::normal_distribution<>()(random_);
    for (const auto& [at, factor] : slow_)
      if (at == name) ns *= factor;
    for (const long long end = Now() + static_cast<long long>(ns); Now() < end;) {
    }
  }

  int rank_ = 0, ranks_ = 1;
  std::mt19937 random_;
  std::vector<std::pair<std::string, double>> slow_;  // Of this rank: which work, how many times as long.
  std::vector<std::vector<std::string>> lines_;       // Of the step.
  std::vector<char> in_, out_;
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 2) MPI_Abort(MPI_COMM_WORLD, 2);
  Program program(argv[1]);
  MPI_Barrier(MPI_COMM_WORLD);
  const long long begin = Now();
  program.Run();
  MPI_Barrier(MPI_COMM_WORLD);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) std::printf("%.9f\n", static_cast<double>(Now() - begin) / 1e9);
  MPI_Finalize();
  return 0;
}
