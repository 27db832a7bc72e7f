#pragma once
// Converts one process of a report to a rank's tables: rows with their times and threads; counts what could not be
// used.

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ingest/map/mapped.h"
#include "ingest/nsys/read/report.h"

namespace lockstep::nsys {

struct Span {
  std::int64_t begin_ns = 0, duration_ns = 0;
  bool open = false;  // Without an end.
};

class Context {
 public:
  Context(const Report& report, std::uint64_t process, ingest::MappedTrace& trace)
      : report_(report), process_(process), trace_(trace) {
    if (report.start_utc_ns() > 0) base_ns_ = report.start_utc_ns();
  }

  const Report& report() const { return report_; }
  std::int64_t pid() const { return PidOf(process_); }
  auto& trace() { return trace_; }
  schema::RankTables& tables() { return trace_.tables; }

  // Calls `use` for the process's rows; the first column identifies their process.
  template <typename F>
  void ForRows(std::string_view table, std::initializer_list<std::string_view> columns, F&& use) {
    Rows rows = report_.database().Select(table, columns);
    while (rows.Next()) {
      if (rows.Int(0) != kAbsent && ProcessOf(rows.Int(0)) != process_ && ProcessOf(rows.Int(0)) != 0) continue;
      ++events_;
      use(rows);
    }
    if (!rows.trouble().empty())
      troubles_.push_back(std::string(table) + " after row " + std::to_string(rows.read()) + ": " + rows.trouble());
  }

  // Returns false if no event can be made of it, which is counted. `may_be_open`: without an end the event still goes
  // on.
  bool Times(std::int64_t start, std::int64_t end, bool may_be_open, Span& span);
  // The row of threads; rows without a thread share one of their own.
  std::uint32_t Thread(std::int64_t global_tid, const Span& span);
  // The row of a thread that has events already, whose times stay as they are; kNone: it has none.
  std::uint32_t KnownThread(std::int64_t global_tid) const;
  std::uint32_t Text(std::int64_t string_id);  // kNone if there is no such string.
  std::uint32_t Intern(std::string_view text) { return text.empty() ? schema::kNone : trace_.strings->Intern(text); }
  void Unreadable() { ++unreadable_; }

  // Sets names of threads and processes, the training thread, and lifetimes.
  void NameThreads();

  std::uint64_t events() const { return events_; }
  std::uint64_t unreadable() const { return unreadable_; }
  std::uint64_t times_invalid() const { return times_invalid_; }
  std::uint64_t negative() const { return negative_; }
  const std::vector<std::string>& troubles() const { return troubles_; }

 private:
  const Report& report_;
  const std::uint64_t process_;
  ingest::MappedTrace& trace_;
  std::int64_t base_ns_ = 0;
  std::unordered_map<std::int64_t, std::uint32_t> threads_;  // By tid.
  std::unordered_map<std::int64_t, std::uint32_t> texts_;
  std::uint64_t events_ = 0, unreadable_ = 0, times_invalid_ = 0, negative_ = 0;
  std::vector<std::string> troubles_;
};

// Ids of other tools that do not fit count as absent.
constexpr std::uint32_t Id32(std::int64_t value, std::uint32_t absent) {
  return value < 0 || value >= schema::kNone ? absent : static_cast<std::uint32_t>(value);
}
constexpr std::uint64_t Positive(std::int64_t value) { return value < 0 ? 0 : static_cast<std::uint64_t>(value); }
constexpr std::uint16_t DeviceOf(std::int64_t value) {
  return value < 0 || value > 65534 ? std::uint16_t{0} : static_cast<std::uint16_t>(value);
}

// GPU activity and the calls that launched it. Returns CUDA graphs that were recorded as a whole.
std::uint64_t MapGpu(Context& context);

}  // namespace lockstep::nsys
