// Damaged spools, segments, rank files, tables and timelines through everything
// that reads them, under a sanitizer. Whatever a file holds: no finding, no hang,
// and tables whose row numbers lead somewhere.
//
//   fuzz_readers SEEDS WORK [--seconds S] [--inputs N] [--seed R] [--only TARGET] [--jobs N]
//
// SEEDS: *.spool (a *.ring of the same name beside it is its segment) and run
// directories. WORK holds the input being read: what is there after a crash, made it.

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "analysis/analyze.h"
#include "analysis/report/json.h"
#include "analysis/report/text.h"
#include "fuzz/check_tables.h"
#include "fuzz/mutate.h"
#include "merge/merge.h"
#include "trace/decode/decode.h"
#include "trace/file/table_file.h"

namespace lockstep::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kHangSeconds = 60;

struct SpoolSeed {
  Bytes spool, segment;  // Segment: empty if there is none.
};
struct RunSeed {
  fs::path dir;
  std::vector<std::string> rank_files;  // Names.
  std::vector<Bytes> rank_bytes;
  std::vector<schema::RankTables> ranks;
  Bytes manifest, timeline;
};
struct Seeds {
  std::vector<SpoolSeed> spools;
  std::vector<RunSeed> runs;
};

Bytes ReadBytes(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::vector<char> text{std::istreambuf_iterator<char>(in), {}};
  Bytes bytes(text.size());
  if (!text.empty()) std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

void WriteBytes(const fs::path& path, const Bytes& bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const bool written = fd >= 0 && ::write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
  if (fd >= 0) ::close(fd);
  if (written) return;
  std::fprintf(stderr, "error: cannot write %s\n", path.c_str());
  std::exit(2);
}

[[noreturn]] void Wrong(const std::string& what) {
  std::fprintf(stderr, "FINDING: %s\n", what.c_str());
  std::abort();
}

void MustHold(const schema::RankTables& tables) {
  if (const std::string problem = CheckTables(tables); !problem.empty()) Wrong(problem);
}

// One place of work, one stream of damage.
class Fuzzer {
 public:
  Fuzzer(const Seeds& seeds, fs::path work) : seeds_(seeds), work_(std::move(work)) {
    fs::remove_all(work_);
    fs::create_directories(work_ / "run" / "ranks");
  }

  void Seed(std::uint64_t seed) { random_ = Random(seed); }

  void Spool() {
    const SpoolSeed& seed = Any(seeds_.spools);
    Bytes spool = seed.spool, segment = seed.segment;
    const std::uint64_t which = segment.empty() ? 0 : random_() % 3;
    if (which != 1) Damage(spool, Any(seeds_.spools).spool, random_);
    if (which != 0) Damage(segment, Any(seeds_.spools).segment, random_);
    if (random_() % 10 != 0) SealSpoolBlocks(spool);
    WriteBytes(work_ / "in.spool", spool);
    // Writing a segment costs more than reading it: mostly the spool alone.
    const bool with_segment = !segment.empty() && (which != 0 || random_() % 8 == 0);
    if (with_segment) WriteBytes(work_ / "in.ring", segment);
    const auto decoded = trace::DecodeSpool({work_ / "in.spool", with_segment ? (work_ / "in.ring").string() : ""});
    if (!decoded.ok()) return;
    for (const trace::DecodedProcess& process : decoded.value().processes) MustHold(process.tables);
  }

  void RankFile() {
    const RunSeed& run = Any(seeds_.runs);
    Bytes bytes = Any(run.rank_bytes);
    Damage(bytes, Any(run.rank_bytes), random_);
    WriteBytes(work_ / "in.h5", bytes);
    (void)trace::ReadRankFile(work_ / "in.h5");
  }

  // Values that no probe writes, in files that are sound as files: through merge,
  // analysis and reports.
  void Values() {
    const RunSeed& run = Any(seeds_.runs);
    const std::size_t victim = random_() % run.ranks.size();
    for (std::size_t i = 0; i < run.ranks.size(); ++i) {
      const fs::path path = work_ / "run" / "ranks" / run.rank_files[i];
      if (i != victim) {
        WriteBytes(path, run.rank_bytes[i]);
        continue;
      }
      schema::RankTables tables = run.ranks[i];
      DamageValues(tables);
      fs::remove(path);
      if (!trace::WriteRankFile(path, tables).ok()) Wrong("a rank file could not be written");
    }
    Bytes manifest = run.manifest;
    if (random_() % 4 == 0) Damage(manifest, {}, random_);
    WriteBytes(work_ / "run" / "manifest.json", manifest);
    MergeAndAnalyze();
    for (const std::string& name : run.rank_files) fs::remove(work_ / "run" / "ranks" / name);
  }

  void TimelineFile() {
    const RunSeed& run = Any(seeds_.runs);
    if (run.timeline.empty()) return;
    Bytes bytes = run.timeline;
    Damage(bytes, run.timeline, random_);
    WriteBytes(work_ / "run" / "timeline.h5", bytes);
    const auto timeline = merge::OpenTimeline(work_ / "run");
    if (timeline.ok()) AnalyzeAll(timeline.value());
  }

 private:
  template <typename T>
  const T& Any(const std::vector<T>& from) {
    return from[random_() % from.size()];
  }

  void DamageValues(schema::RankTables& tables) {
    // Every column has its turn: one table at a time.
    std::vector<int> filled;
    int index = 0;
    const auto each = [&](auto&& visit) {
      index = 0;
#define LS_FUZZ_TABLE(member, Type, COLUMNS, traits, text) visit(tables.member, index++);
      LS_RANK_TABLES(LS_FUZZ_TABLE)
#undef LS_FUZZ_TABLE
    };
    each([&](auto& table, int i) {
      if (table.rows() != 0) filled.push_back(i);
    });
    if (filled.empty()) return;
    for (std::size_t times = 1 + random_() % 3; times > 0; --times) {
      const int chosen = Any(filled);
      each([&](auto& table, int i) {
        if (i == chosen) DamageTable(table);
      });
    }
  }

  template <typename Table>
  void DamageTable(Table& table) {
    std::size_t columns = 0, at = 0;
    table.ForEachColumn([&](const schema::ColumnInfo&, auto&) { ++columns; });
    const std::size_t chosen = random_() % columns;
    table.ForEachColumn([&](const schema::ColumnInfo&, auto& values) {
      if (at++ != chosen || values.empty()) return;
      using Value = typename std::remove_reference_t<decltype(values)>::value_type;
      for (std::size_t times = 1 + random_() % 5; times > 0; --times) {
        const std::size_t row = random_() % values.size();
        values[row] = random_() % 4 == 0 ? values[random_() % values.size()] : static_cast<Value>(Extreme(random_));
      }
    });
  }

  void MergeAndAnalyze() {
    merge::MergeOptions options;
    options.run_dir = work_ / "run";
    options.jobs = 1;
    options.write = false;
    if (random_() % 4 == 0) options.clock = merge::ClockChoice::kOff;
    const auto timeline = merge::MergeRun(options);
    if (timeline.ok()) AnalyzeAll(timeline.value());
  }

  void AnalyzeAll(const merge::Timeline& timeline) {
    const auto analysis = analysis::Analyze(timeline, {.jobs = 1});
    if (!analysis.ok()) return;
    if (report::RenderText(analysis.value(), {}).empty() || report::RenderJson(analysis.value()).empty())
      Wrong("an empty report");
  }

  const Seeds& seeds_;
  fs::path work_;
  Random random_;
};

struct Target {
  const char* name;
  void (Fuzzer::*read)();
  unsigned share;  // Of the time.
};
constexpr Target kTargets[] = {{"spool", &Fuzzer::Spool, 3},
                               {"rank", &Fuzzer::RankFile, 2},
                               {"values", &Fuzzer::Values, 4},
                               {"timeline", &Fuzzer::TimelineFile, 1}};

Seeds LoadSeeds(const fs::path& root) {
  Seeds seeds;
  std::vector<fs::path> places;
  for (const auto& entry : fs::directory_iterator(root)) places.push_back(entry.path());
  std::sort(places.begin(), places.end());
  for (const fs::path& place : places) {
    if (place.extension() == ".spool") {
      const fs::path ring = fs::path(place).replace_extension(".ring");
      seeds.spools.push_back({ReadBytes(place), fs::exists(ring) ? ReadBytes(ring) : Bytes{}});
    } else if (fs::exists(place / "ranks")) {
      RunSeed run{.dir = place, .manifest = ReadBytes(place / "manifest.json")};
      if (fs::exists(place / "timeline.h5")) run.timeline = ReadBytes(place / "timeline.h5");
      std::vector<fs::path> files;
      for (const auto& entry : fs::directory_iterator(place / "ranks")) files.push_back(entry.path());
      std::sort(files.begin(), files.end());
      for (const fs::path& path : files) {
        auto file = trace::ReadRankFile(path);
        if (!file.ok()) continue;
        run.rank_files.push_back(path.filename());
        run.rank_bytes.push_back(ReadBytes(path));
        run.ranks.push_back(std::move(file.value().tables));
      }
      if (!run.ranks.empty()) seeds.runs.push_back(std::move(run));
    }
  }
  return seeds;
}

struct Options {
  double seconds = 10;
  std::uint64_t inputs = UINT64_MAX, seed = 1;  // Inputs: per target.
  unsigned jobs = 1;
  std::string only;
};

// Runs in a process of its own. Prints one line.
void Work(const Seeds& seeds, const fs::path& work, const Options& options, unsigned job) {
  unsigned shares = 0;
  for (const Target& target : kTargets)
    if (options.only.empty() || options.only == target.name) shares += target.share;
  Fuzzer fuzzer(seeds, work / std::to_string(job));
  std::string line;
  for (const Target& target : kTargets) {
    if (!options.only.empty() && options.only != target.name) continue;
    // Each target has a stream of its own. Spools come from real jobs and differ from run to run; the other targets'
    // seeds do not, and their inputs repeat: a change, not chance, decides whether a short run finds something.
    fuzzer.Seed((options.seed * 1000 + job) * std::size(kTargets) + static_cast<std::uint64_t>(&target - kTargets));
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::duration<double>(options.seconds * target.share / shares);
    std::uint64_t inputs = 0;
    while (inputs < options.inputs && std::chrono::steady_clock::now() < end) {
      ::alarm(kHangSeconds);
      (fuzzer.*target.read)();
      ++inputs;
    }
    line += std::string(line.empty() ? "" : ", ") + target.name + " " + std::to_string(inputs);
  }
  std::printf("%s\n", line.c_str());
}

}  // namespace
}  // namespace lockstep::fuzz

int main(int argc, char** argv) {
  using namespace lockstep::fuzz;
  Options options;
  std::vector<std::string> plain;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string("0"); };
    if (word == "--seconds")
      options.seconds = std::stod(value());
    else if (word == "--inputs")
      options.inputs = std::stoull(value());
    else if (word == "--seed")
      options.seed = std::stoull(value());
    else if (word == "--jobs")
      options.jobs = static_cast<unsigned>(std::stoul(value()));
    else if (word == "--only")
      options.only = value();
    else
      plain.push_back(word);
  }
  if (plain.size() != 2) {
    std::fprintf(stderr,
                 "usage: fuzz_readers SEEDS WORK [--seconds S] [--inputs N] [--seed R] [--only TARGET] [--jobs N]\n");
    return 2;
  }
  const Seeds seeds = LoadSeeds(plain[0]);
  if (seeds.spools.empty() || seeds.runs.empty()) {
    std::fprintf(stderr, "error: no spool or no run directory\n  %s\n", plain[0].c_str());
    return 2;
  }
  std::fflush(nullptr);
  for (unsigned job = 0; job < options.jobs; ++job) {
    if (::fork() != 0) continue;
    Work(seeds, plain[1], options, job);
    std::fflush(nullptr);
    std::_Exit(0);
  }
  int bad = 0, status = 0;
  while (::wait(&status) > 0) {
    if (status == 0) continue;
    ++bad;
    // A sanitizer says what it found; a signal, of which SIGALRM is a hang, says nothing.
    if (WIFSIGNALED(status)) std::fprintf(stderr, "FINDING: signal %d\n", WTERMSIG(status));
  }
  if (bad != 0)
    std::fprintf(stderr, "FINDING: the input is in %s, the seed was %lu\n", plain[1].c_str(),
                 static_cast<unsigned long>(options.seed));
  return bad != 0 ? 1 : 0;
}
