#pragma once
// Facts that every import records of a rank in the same way: its identity, its first and last time, its losses.

#include <cstdint>
#include <string>
#include <string_view>

#include "ingest/foreign.h"
#include "ingest/map/mapped.h"

namespace lockstep::ingest {

// The loss for a trace that does not state its rank. `from`: what else did, "" where nothing was asked; `guessed`:
// nothing does.
CountedLoss RankNotTold(const std::string& source, std::int32_t rank, const std::string& from, bool guessed);

class RankFinish {
 public:
  RankFinish(MappedTrace& trace, TraceSummary& summary, const TraceOptions& options)
      : trace_(trace), t_(trace.tables), s_(summary), options_(options) {}

  // The rank and size that are used: as decided for the run, else the trace's own values in the summary.
  std::int32_t rank() const { return options_.rank >= 0 ? options_.rank : s_.told_rank; }
  std::int64_t world_size() const { return options_.world_size > 0 ? options_.world_size : s_.told_world_size; }

  std::uint32_t Intern(std::string_view text) { return text.empty() ? schema::kNone : trace_.strings->Intern(text); }
  void Add(std::string_view key, std::string_view value);  // Adds a fact; none if the value is empty.
  void Lose(Loss loss, std::uint64_t count, std::string detail);

  // Finds steps in ranges (steps.h), as the options say.
  void Steps();
  // Adds rows of processes, and the facts of the rank. `format`: its name in the registry.
  void Identify(std::string_view format);
  // Losses that every trace can have: rank, size, groups, launches, and after those of the format itself GPUs.
  void LoseUnknowns(std::uint64_t without_group);
  // First and last sign of life, and a thread for a trace of the GPU alone.
  void Span();
  // Adds wall-clock times, which are sufficient for --clock wall. Times since boot are not, and a trace that does not
  // contain its creation time has none.
  void Snapshots();
  void Count();

 private:
  void LoseDeviceWork();
  bool Told() const { return rank() >= 0 && rank() == s_.told_rank; }

  MappedTrace& trace_;
  schema::RankTables& t_;
  TraceSummary& s_;
  const TraceOptions& options_;
};

}  // namespace lockstep::ingest
