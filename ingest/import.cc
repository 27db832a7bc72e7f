#include "ingest/import.h"

#include <fmt/format.h>
#include <tbb/global_control.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "core/hash.h"
#include "core/hex.h"
#include "core/rank_name.h"
#include "ingest/agree_on_groups.h"
#include "ingest/decided_rank.h"
#include "ingest/formats.h"
#include "ingest/imported_run.h"
#include "ingest/map/groups.h"
#include "ingest/rank_files/rank_source.h"
#include "ingest/runs.h"
#include "merge/parallel.h"
#include "trace/file/strings.h"
#include "trace/file/table_file.h"

namespace lockstep::ingest {
namespace fs = std::filesystem;
namespace {

// Below this many bytes of JSON in work, files do not wait for one another.
constexpr std::uint64_t kFreeBytes = 256 << 20;
// A file below this many bytes of JSON stays on one thread while other files wait: oneTBB 2021.8 takes longer to share
// a few milliseconds of work than to do it (256 files of 1 MB: 10 s against 3 s on one thread).
constexpr std::uint64_t kSharedBytes = 32 << 20;

std::string FinalName(std::int32_t rank) { return RankName(rank) + ".h5"; }

// One rank's trace: a file, or a part of one.
struct Work {
  const TraceFile* file = nullptr;
  TracePart part;
  std::string name;              // Shown to users, and stored in the rank file as its source.
  std::uint64_t bytes = 0;       // The share of the file's bytes that counts for this rank.
  std::uint64_t work_bytes = 0;  // The expected number of bytes that its import processes.

  // The name from which the rank may be read; several ranks in one file share it.
  std::string NameOfRank() const { return part.shared ? "" : file->name; }
};

struct Imported {
  std::string part;  // What tells it from other ranks that were found when its work was read.
  std::optional<TraceSummary> summary;
  std::optional<Error> error;
  PlannedRank assumed;  // What its tables were written with.
  std::int64_t assumed_world = 0;
  std::string file;  // In ranks/, hidden until all files are there.
};

class Importer {
 public:
  Importer(const TraceFiles& traces, const ImportOptions& options) : traces_(traces), options_(options) {}

  Result<ImportResult> Run() {
    std::error_code error;
    ranks_dir_ = fs::path(options_.run_dir) / "ranks";
    fs::create_directories(ranks_dir_, error);
    if (error)
      return Error{ErrorCode::kIo, "cannot make the run directory: " + error.message(), ranks_dir_.string(),
                   "choose another with -o"};
    ClearRun(options_.run_dir);
    jobs_ = static_cast<unsigned>(merge::ThreadsFor(options_.jobs));
    const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, std::max(1u, jobs_));
    // Depends on names and sizes only, so that the same traces give the same run wherever they are.
    Hash64 id;
    for (const TraceFile& file : traces_.files) {
      id.Add(std::string_view(fs::path(file.name).filename().string()));
      id.Add(file.bytes);
    }
    run_id_ = "import-" + Hex(id.value());
    Divide();
    Plan();
    ReadAll();
    Expand();
    LS_CHECK(Decide());
    std::vector<ImportLoss> losses;
    for (const std::size_t i : run_losses_) losses.push_back(result_.losses[i]);
    LS_CHECK(WriteManifest(traces_, options_, run_id_, result_.world_size, losses));
    return std::move(result_);
  }

 private:
  // World size -> the files that contain it.
  using ToldWorlds = std::map<std::int64_t, std::vector<std::size_t>>;
  // The size that most files contain, the larger one on a tie; 0 if none does.
  static std::int64_t MostTold(const ToldWorlds& worlds) {
    std::int64_t told = 0;
    std::size_t most = 0;
    for (const auto& [size, files] : worlds)
      if (files.size() >= most) most = files.size(), told = size;
    return told;
  }

  // Divides files into ranks' traces. A file that cannot be examined counts as one trace, which will fail and report
  // why.
  void Divide() {
    for (const TraceFile& file : traces_.files) {
      Result<std::vector<TracePart>> parts = file.format->parts(LookAt(file.path));
      std::vector<TracePart> list = parts.ok() ? std::move(parts).value() : std::vector<TracePart>();
      if (list.empty()) list.emplace_back();
      for (std::size_t i = 0; i < list.size(); ++i) {
        Work work;
        work.file = &file;
        work.name = PartName(file.name, list[i].name);
        work.bytes = file.bytes * (i + 1) / list.size() - file.bytes * i / list.size();
        work.work_bytes = file.work_bytes / list.size();
        list[i].bytes = work.bytes;
        work.part = std::move(list[i]);
        works_.push_back(std::move(work));
      }
    }
  }

  void Plan() {
    std::vector<Asked> asked;
    ToldWorlds worlds;
    for (std::size_t i = 0; i < works_.size(); ++i) {
      const Work& work = works_[i];
      asked.push_back({work.NameOfRank(), work.part.told_rank, -1});
      if (work.part.told_world_size > 0) worlds[work.part.told_world_size].push_back(i);
    }
    told_world_ = MostTold(worlds);
    const std::vector<PlannedRank> plan = PlanRanks(asked, told_world_);
    imported_.resize(plan.size());
    for (std::size_t i = 0; i < plan.size(); ++i) imported_[i].assumed = plan[i];
    const std::int64_t world = World(plan);
    for (Imported& one : imported_) one.assumed_world = world;
    for (const Work& work : works_) progress_.bytes += work.bytes;
    progress_.files = works_.size();
  }

  std::int64_t World(const std::vector<PlannedRank>& plan) const {
    std::int64_t world = told_world_;
    for (const PlannedRank& one : plan)
      if (!one.extra) world = std::max<std::int64_t>(world, one.rank + 1);
    return world;
  }

  // Uses threads of their own beside oneTBB's that read one file: they sleep until there is memory, which a task must
  // not do. The largest files first, so that the last ones are short; not more at once than there is memory for about
  // two of the largest. A single file uses all cores anyway.
  void ReadAll() {
    read_.resize(works_.size());
    std::vector<std::size_t> order(works_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return works_[a].work_bytes > works_[b].work_bytes; });
    const std::uint64_t budget = std::max(kFreeBytes, 2 * works_[order[0]].work_bytes);
    std::mutex mutex;
    std::condition_variable room;
    std::size_t next = 0;
    std::uint64_t in_work = 0;
    const auto work = [&] {
      std::unique_lock lock(mutex);
      while (true) {
        room.wait(lock, [&] {
          return next == order.size() || in_work == 0 || in_work + works_[order[next]].work_bytes <= budget;
        });
        if (next == order.size()) return;
        const std::size_t at = order[next++];
        const std::uint64_t bytes = works_[at].work_bytes;
        in_work += bytes;
        lock.unlock();
        ReadOne(at);
        lock.lock();
        in_work -= bytes;
        room.notify_all();
      }
    };
    std::vector<std::thread> threads;
    const std::size_t several = std::min<std::size_t>(jobs_, order.size());
    for (std::size_t i = 1; i < several; ++i) {
      try {
        threads.emplace_back(work);
      } catch (const std::system_error&) {
        break;  // There are no more threads; the existing ones do the work.
      }
    }
    work();
    for (std::thread& thread : threads) thread.join();
  }

  void ReadOne(std::size_t at) {
    const Work& work = works_[at];
    const TraceFile& file = *work.file;
    Imported& one = imported_[at];  // As planned.
    std::vector<Imported>& found = read_[at];
    std::uint64_t read_bytes = 0;
    TraceOptions options;
    options.jobs = JobsFor(at);
    options.python_functions = options_.python_functions;
    options.step_range = options_.step_range;
    options.rank = one.assumed.rank;
    options.world_size = one.assumed_world;
    options.rank_from = one.assumed.from;
    options.rank_guessed = one.assumed.guessed;
    options.source = work.name;
    options.run_id = run_id_;
    std::uint64_t counted = 0;
    options.progress = [&](std::uint64_t done, std::uint64_t) {
      Progress(std::min(done, work.bytes), counted, 0, false);
    };
    try {
      Result<std::vector<ImportedTrace>> traces = file.format->read(file.path, work.part, options);
      if (!traces.ok()) one.error = traces.error();
      for (std::size_t i = 0; traces.ok() && i < traces.value().size(); ++i) {
        ImportedTrace& trace = traces.value()[i];
        // Nothing was assumed of a rank that was only found now.
        Imported& rank = found.emplace_back(trace.name.empty() ? one : Imported());
        rank.part = std::move(trace.name);
        rank.file = fmt::format(".import-{:06d}-{}.h5", at, i);
        const Status written = Write((ranks_dir_ / rank.file).string(), trace.tables, JobsFor(at));
        trace.tables = {};
        read_bytes += trace.summary.read_bytes;
        if (written.ok())
          rank.summary = std::move(trace.summary);
        else
          rank.error = written.error();
      }
    } catch (const std::bad_alloc&) {
      one.error =
          Error{ErrorCode::kUnsupported, "more events than memory", work.name, "import on a machine with more memory"};
    } catch (const std::exception& bug) {  // One file must not end the import of the others.
      one.error = Error{ErrorCode::kInternal, bug.what(), work.name, "report it with the trace's first lines"};
    }
    if (one.error) found.assign(1, one);
    Progress(work.bytes, counted, read_bytes, true);
  }

  // From here on, each rank that was found in a file is a work of its own.
  void Expand() {
    std::vector<Work> works;
    imported_.clear();
    for (std::size_t i = 0; i < works_.size(); ++i)
      for (Imported& one : read_[i]) {
        Work& work = works.emplace_back(works_[i]);
        work.part.shared |= !one.part.empty();
        work.name = PartName(work.name, one.part);
        imported_.push_back(std::move(one));
      }
    works_ = std::move(works);
  }

  unsigned JobsFor(std::size_t at) const {
    return imported_.size() >= jobs_ && works_[at].work_bytes < kSharedBytes ? 1 : jobs_;
  }

  static Status Write(const std::string& path, const schema::RankTables& tables, unsigned jobs) {
    return trace::WriteRankFile(path, tables, [jobs](std::size_t n, const std::function<void(std::size_t)>& f) {
      merge::ParallelFor(jobs, n, f);
    });
  }

  void Progress(std::uint64_t done, std::uint64_t& counted, std::uint64_t read_bytes, bool finished) {
    const std::lock_guard lock(progress_mutex_);
    if (done > counted) {
      progress_.bytes_done += done - counted;
      counted = done;
    }
    progress_.read_bytes += read_bytes;
    progress_.files_done += finished;
    if (options_.progress) options_.progress(progress_);
  }

  void Lose(std::int32_t rank, Loss loss, std::uint64_t count, std::string detail) {
    result_.losses.push_back({rank, loss, count, std::move(detail)});
    run_losses_.push_back(result_.losses.size() - 1);
  }

  // Files with data that was understood. Others are reported, with the kinds of their contents.
  Result<std::vector<std::size_t>> Readable() {
    std::vector<std::size_t> readable;
    std::optional<Error> first;
    for (std::size_t i = 0; i < imported_.size(); ++i) {
      Imported& one = imported_[i];
      // A rank's own file may have no rows if it contains its rank, or if it was cut before its first event.
      if (one.summary && (one.summary->rows > 0 || one.summary->told_rank >= 0 || CutShort(*one.summary))) {
        readable.push_back(i);
        continue;
      }
      if (one.summary) one.error = NothingIn(works_[i].name, *one.summary);
      const Error& error = *one.error;
      if (error.code == ErrorCode::kIo && error.where.find(ranks_dir_.string()) != std::string::npos) return error;
      Lose(-1, Loss::kFileUnreadable, 1, works_[i].name + ": " + error.what);
      if (!first) first = error;
      Remove(one);
    }
    if (!readable.empty()) return readable;
    if (imported_.size() > 1) first->what = "none of the files could be read: " + first->what;
    if (first->where.empty()) first->where = works_.front().name;
    return *first;
  }

  static bool CutShort(const TraceSummary& summary) {
    return std::any_of(summary.losses.begin(), summary.losses.end(), [](const CountedLoss& loss) {
      return loss.loss == Loss::kImportCutShort || loss.loss == Loss::kImportGarbage ||
             loss.loss == Loss::kImportDamaged;
    });
  }

  static Error NothingIn(const std::string& name, const TraceSummary& summary) {
    std::string kinds;
    for (const CountedLoss& loss : summary.losses)
      if ((loss.loss == Loss::kImportCategorySkipped || loss.loss == Loss::kImportPythonSkipped) &&
          !loss.detail.empty())
        kinds += (kinds.empty() ? " (" : "; ") + loss.detail;
    if (!kinds.empty()) kinds += ")";
    return Error{ErrorCode::kMalformed,
                 summary.events == 0 ? "there is no event in it"
                 : summary.events == 1
                     ? "its only event is of no kind that is understood" + kinds
                     : fmt::format("none of its {} events is of a kind that is understood{}", summary.events, kinds),
                 name, "name traces that a profiler of docs/importing.md wrote while the job ran"};
  }

  void Remove(const Imported& one) const {
    std::error_code ignored;
    if (!one.file.empty()) fs::remove(ranks_dir_ / one.file, ignored);
  }

  // One run is imported; files of other runs are reported and left out.
  std::vector<std::size_t> OfOneRun(const std::vector<std::size_t>& readable) {
    std::vector<RunClue> clues;
    for (const std::size_t i : readable) {
      const TraceSummary& s = *imported_[i].summary;
      const RankInName named = RankOfName(works_[i].NameOfRank());
      const std::int32_t rank = s.told_rank < 0 && named.certain ? named.rank : s.told_rank;
      clues.push_back({s.told_world_size, rank, s.begin_ns, s.end_ns, s.backend, s.nccl_version, s.told_groups,
                       std::string(works_[i].file->format->name), s.host, works_[i].file->name});
    }
    std::vector<RunOfFiles> runs = TellRunsApart(clues);
    for (RunOfFiles& run : runs)
      for (std::size_t& file : run.files) file = readable[file];
    constexpr std::size_t kNamed = 3;
    for (std::size_t r = 1; r < runs.size(); ++r) {
      const std::vector<std::size_t>& files = runs[r].files;
      std::string names;
      for (std::size_t k = 0; k < std::min(files.size(), kNamed); ++k)
        names += (k == 0 ? "" : ", ") + works_[files[k]].name;
      if (files.size() > kNamed) names += fmt::format(" and {} more", files.size() - kNamed);
      Lose(-1, Loss::kRunMixed, files.size(),
           fmt::format("{}: {}{}{} of the run that was imported; left out, analyse {} by {}", names, runs[r].apart,
                       runs[r].apart.empty() ? "beside the " : ", beside the ",
                       fmt::format("{} {}", runs[0].files.size(), runs[0].files.size() == 1 ? "file" : "files"),
                       files.size() == 1 ? "it" : "them", files.size() == 1 ? "itself" : "themselves"));
      for (const std::size_t i : files) Remove(imported_[i]);
    }
    return runs[0].files;
  }

  // When all files are read: decides which rank each is, which groups are the same, and which facts the files contain
  // about each other; files that were written with other assumptions are written again.
  Status Decide() {
    LS_TRY(const std::vector<std::size_t> understood, Readable());
    const std::vector<std::size_t> readable = OfOneRun(understood);
    LS_CHECK(HaveSteps(readable));
    std::vector<Asked> asked;
    ToldWorlds worlds;
    for (const std::size_t i : readable) {
      const TraceSummary& s = *imported_[i].summary;
      asked.push_back({works_[i].NameOfRank(), s.told_rank, s.operations_rank});
      if (s.told_world_size > 0) worlds[s.told_world_size].push_back(i);
    }
    told_world_ = MostTold(worlds);
    const std::vector<PlannedRank> plan = PlanRanks(asked, told_world_);
    const std::int64_t world = World(plan);

    std::vector<std::size_t> kept;
    for (std::size_t k = 0; k < readable.size(); ++k) {
      Imported& one = imported_[readable[k]];
      if (plan[k].extra) {
        Lose(-1, Loss::kImportNoRank, 1, works_[readable[k]].name);
        Remove(one);
        continue;
      }
      if (plan[k].loser_to < 0) {
        kept.push_back(k);
        continue;
      }
      Lose(plan[k].rank, Loss::kRankDuplicated, 1,
           fmt::format("{}: rank {} was read from {} instead", works_[readable[k]].name, plan[k].rank,
                       works_[readable[static_cast<std::size_t>(plan[k].loser_to)]].name));
      Remove(one);
    }
    std::vector<std::pair<std::int32_t, TraceSummary*>> ranks;
    for (const std::size_t k : kept) ranks.emplace_back(plan[k].rank, &*imported_[readable[k]].summary);
    const std::set<std::int32_t> renamed = AgreeOnGroups(ranks);

    for (const std::size_t k : kept) {
      Imported& one = imported_[readable[k]];
      const bool as_written = one.assumed.rank == plan[k].rank && one.assumed.told == plan[k].told &&
                              one.assumed.guessed == plan[k].guessed && one.assumed_world == world &&
                              !renamed.contains(plan[k].rank);
      if (!as_written) LS_CHECK(Rewrite(one, plan[k], world, works_[readable[k]].name));
      std::error_code error;
      fs::rename(ranks_dir_ / one.file, ranks_dir_ / FinalName(plan[k].rank), error);
      if (error)
        return Error{ErrorCode::kIo, "cannot rename a rank file: " + error.message(), ranks_dir_.string(),
                     "free space on that file system, or choose another with -o"};
      const TraceSummary& s = *one.summary;
      result_.events += s.events, result_.rows += s.rows, result_.kernels += s.kernels;
      result_.collectives += s.collectives, result_.read_bytes += s.read_bytes;
      result_.steps = std::max(result_.steps, s.steps);
      for (const CountedLoss& loss : s.losses)
        result_.losses.push_back({plan[k].rank, loss.loss, loss.count, loss.detail});
    }
    result_.ranks = kept.size();
    result_.world_size = world;
    for (const ImportLoss& loss : result_.losses) result_.incomplete |= Info(loss.loss).severity == Severity::kDataLoss;
    return Ok();
  }

  // Fails if no file has a range of the name that was asked for.
  Status HaveSteps(const std::vector<std::size_t>& readable) const {
    if (options_.step_range.empty()) return Ok();
    const auto summary = [&](std::size_t i) -> const TraceSummary& { return *imported_[i].summary; };
    if (std::any_of(readable.begin(), readable.end(), [&](std::size_t i) { return summary(i).steps > 0; })) return Ok();
    const auto named =
        std::find_if(readable.begin(), readable.end(), [&](std::size_t i) { return !summary(i).range_names.empty(); });
    return Error{ErrorCode::kUsage, fmt::format("no range is named '{}'", options_.step_range),
                 works_[named == readable.end() ? readable.front() : *named].name,
                 named == readable.end() ? "leave --step-range out: there are no ranges of NVTX or record_function()"
                                         : "--step-range with one of " + summary(*named).range_names};
  }

  Status Rewrite(Imported& one, const PlannedRank& planned, std::int64_t world, const std::string& name) {
    const std::string path = (ranks_dir_ / one.file).string();
    LS_TRY(const schema::RankTables tables, AsDecided(path, planned, world, name, *one.summary));
    return Write(path, tables, jobs_);
  }

  const TraceFiles& traces_;
  const ImportOptions& options_;
  fs::path ranks_dir_;
  unsigned jobs_ = 1;
  std::string run_id_;
  std::int64_t told_world_ = 0;
  std::vector<Work> works_;
  std::vector<Imported> imported_;           // As works_.
  std::vector<std::vector<Imported>> read_;  // Likewise, until all are read.
  ImportProgress progress_;
  std::mutex progress_mutex_;
  ImportResult result_;
  std::vector<std::size_t> run_losses_;  // Indices of result_.losses that are in no rank file.
};

}  // namespace

Result<ImportResult> Import(const TraceFiles& traces, const ImportOptions& options) {
  return Importer(traces, options).Run();
}

}  // namespace lockstep::ingest
