#pragma once
// Ranks and timelines written by hand, for tests of tables: a line per event.

#include <cstdint>
#include <string_view>
#include <vector>

#include "analysis/tables/engine/table.h"
#include "core/collective.h"

namespace lockstep::test {

// Thread 0 is the training thread.
class HandMade {
 public:
  schema::RankTables tables;

  HandMade();
  std::uint32_t Intern(std::string_view text);
  // Rows of what was added.
  std::uint32_t Range(std::uint8_t source, std::uint32_t thread, std::string_view name, std::int64_t begin_ns,
                      std::int64_t end_ns, std::int64_t sequence_number = -1);
  std::uint32_t Op(std::uint32_t thread, std::string_view name, std::int64_t begin_ns, std::int64_t end_ns,
                   std::int64_t sequence_number = -1) {
    return Range(3, thread, name, begin_ns, end_ns, sequence_number);
  }
  // A launching call and what it launched.
  std::uint32_t Kernel(std::string_view name, std::int64_t begin_ns, std::int64_t end_ns, std::uint32_t thread = 0,
                       std::int64_t launch_ns = -1, std::uint32_t stream = 7);
  std::uint32_t Copy(std::uint8_t kind, std::int64_t begin_ns, std::int64_t end_ns, std::uint64_t bytes,
                     std::uint32_t thread = 0, std::int64_t launch_ns = -1, std::uint32_t stream = 7);
  std::uint32_t Shape(std::int32_t blocks, std::int32_t threads, std::int32_t occupancy_percent);
  std::uint32_t Comm(std::string_view name, std::uint32_t size, std::int32_t stride, std::uint64_t global_id);
  std::uint32_t Collective(std::uint32_t comm, CollectiveKind kind, std::int64_t begin_ns, std::int64_t end_ns,
                           std::uint64_t bytes, std::uint32_t kernel = schema::kNone);
  void MpiCall(std::int64_t begin_ns, std::int64_t end_ns, std::uint32_t thread = 0);
  void Step(std::int64_t index, std::int64_t begin_ns, std::int64_t end_ns);
  void Memory(std::int64_t time_ns, std::uint8_t kind, std::uint16_t device, std::int64_t bytes,
              std::uint64_t allocated_bytes, std::uint64_t reserved_bytes);

 private:
  void Launch(std::uint32_t thread, std::int64_t launch_ns, std::uint8_t kind, std::string_view name);
  std::uint64_t correlation_ = 100;
};

// Ranks 0, 1, ... with these windows and the steps that the ranks mark.
merge::Timeline TimelineOf(const std::vector<const HandMade*>& ranks, const std::vector<Interval>& windows);
void Meta(merge::Timeline& timeline, std::string_view key, std::string_view value);

// The table of these ranks; fails the test on an error.
tables::Table Make(std::string_view name, const merge::Timeline& timeline, const std::vector<const HandMade*>& ranks,
                   const tables::TableOptions& options = {});

// The row whose cells in these columns have these values; -1 none.
std::int64_t FindRow(const tables::Table& table, std::string_view column, const tables::Cell& value,
                     const tables::Cell& rank = {});
tables::Cell At(const tables::Table& table, std::int64_t row, std::string_view column);

}  // namespace lockstep::test
