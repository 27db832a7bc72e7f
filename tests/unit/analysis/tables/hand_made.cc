#include "hand_made.h"

#include <gtest/gtest.h>

#include "trace/file/strings.h"

namespace lockstep::test {

namespace {

std::uint32_t InternIn(auto& strings, auto& bytes, std::string_view text) {
  for (std::uint32_t id = 0; id < strings.rows(); ++id)
    if (trace::TextOf(strings, bytes, id) == text) return id;
  strings.Append({.offset_bytes = bytes.value.size(), .length_bytes = static_cast<std::uint32_t>(text.size())});
  bytes.value.insert(bytes.value.end(), text.begin(), text.end());
  return static_cast<std::uint32_t>(strings.rows()) - 1;
}

std::uint32_t Last(const auto& table) { return static_cast<std::uint32_t>(table.rows()) - 1; }

}  // namespace

HandMade::HandMade() {
  tables.processes.Append({.process = 0, .pid = 10, .world_rank = 0});
  for (std::uint32_t thread = 0; thread < 3; ++thread)
    tables.threads.Append({.thread = thread,
                           .process = 0,
                           .tid = 10 + std::int64_t{thread},
                           .name = schema::kNone,
                           .begin_ns = 0,
                           .end_ns = 1'000'000,
                           .records = 1,
                           .training = static_cast<std::uint8_t>(thread == 0)});
}

std::uint32_t HandMade::Intern(std::string_view text) { return InternIn(tables.strings, tables.string_bytes, text); }

std::uint32_t HandMade::Range(std::uint8_t source, std::uint32_t thread, std::string_view name, std::int64_t begin_ns,
                              std::int64_t end_ns, std::int64_t sequence_number) {
  tables.ranges.Append({.begin_ns = begin_ns,
                        .duration_ns = end_ns - begin_ns,
                        .thread = thread,
                        .name = Intern(name),
                        .domain = schema::kNone,
                        .source = source,
                        .payload = sequence_number >= 0 ? sequence_number : 0,
                        .payload_kind = static_cast<std::uint8_t>(sequence_number >= 0 ? 3 : 0)});
  return Last(tables.ranges);
}

void HandMade::Launch(std::uint32_t thread, std::int64_t launch_ns, std::uint8_t kind, std::string_view name) {
  ++correlation_;
  if (launch_ns < 0) return;
  tables.api.Append({.begin_ns = launch_ns,
                     .duration_ns = 1,
                     .thread = thread,
                     .name = Intern(name),
                     .kind = kind,
                     .correlation = correlation_,
                     .vendor = 1});
}

std::uint32_t HandMade::Kernel(std::string_view name, std::int64_t begin_ns, std::int64_t end_ns, std::uint32_t thread,
                               std::int64_t launch_ns, std::uint32_t stream) {
  Launch(thread, launch_ns, 1, "cudaLaunchKernel");
  tables.kernels.Append({.begin_ns = begin_ns,
                         .duration_ns = end_ns - begin_ns,
                         .stream = stream,
                         .correlation = correlation_,
                         .name = Intern(name),
                         .shape = schema::kNone,
                         .vendor = 1});
  return Last(tables.kernels);
}

std::uint32_t HandMade::Copy(std::uint8_t kind, std::int64_t begin_ns, std::int64_t end_ns, std::uint64_t bytes,
                             std::uint32_t thread, std::int64_t launch_ns, std::uint32_t stream) {
  Launch(thread, launch_ns, 2, "cudaMemcpyAsync");
  tables.copies.Append({.begin_ns = begin_ns,
                        .duration_ns = end_ns - begin_ns,
                        .stream = stream,
                        .correlation = correlation_,
                        .kind = kind,
                        .bytes = bytes,
                        .vendor = 1});
  return Last(tables.copies);
}

std::uint32_t HandMade::Shape(std::int32_t blocks, std::int32_t threads, std::int32_t occupancy_percent) {
  tables.kernel_shapes.Append({.grid_x = blocks,
                               .grid_y = 1,
                               .grid_z = 1,
                               .block_x = threads,
                               .block_y = 1,
                               .block_z = 1,
                               .occupancy_percent = occupancy_percent});
  return Last(tables.kernel_shapes);
}

std::uint32_t HandMade::Comm(std::string_view name, std::uint32_t size, std::int32_t stride, std::uint64_t global_id) {
  tables.comms.Append({.comm = static_cast<std::uint32_t>(tables.comms.rows()),
                       .global_id = global_id,
                       .size = size,
                       .stride = stride,
                       .name = name.empty() ? schema::kNone : Intern(name)});
  return Last(tables.comms);
}

std::uint32_t HandMade::Collective(std::uint32_t comm, CollectiveKind kind, std::int64_t begin_ns, std::int64_t end_ns,
                                   std::uint64_t bytes, std::uint32_t kernel) {
  tables.collectives.Append({.comm = comm,
                             .seq = tables.collectives.rows(),
                             .kind = static_cast<std::uint8_t>(kind),
                             .mode = static_cast<std::uint8_t>(kernel == schema::kNone ? 0 : 3),
                             .thread = 0,
                             .begin_ns = begin_ns,
                             .post_end_ns = end_ns,
                             .last_incomplete_ns = schema::kNoTime,
                             .wait_begin_ns = begin_ns,
                             .end_ns = end_ns,
                             .bytes = bytes,
                             .call = schema::kNone,
                             .kernel = kernel});
  return Last(tables.collectives);
}

void HandMade::MpiCall(std::int64_t begin_ns, std::int64_t end_ns, std::uint32_t thread) {
  tables.mpi_calls.Append({.begin_ns = begin_ns, .duration_ns = end_ns - begin_ns, .thread = thread, .count = 1});
}

void HandMade::Step(std::int64_t index, std::int64_t begin_ns, std::int64_t end_ns) {
  tables.steps.Append(
      {.index = index, .begin_ns = begin_ns, .end_ns = end_ns, .source = 3, .complete = 1, .thread = 0});
}

void HandMade::Memory(std::int64_t time_ns, std::uint8_t kind, std::uint16_t device, std::int64_t bytes,
                      std::uint64_t allocated_bytes, std::uint64_t reserved_bytes) {
  tables.gpu_memory.Append({.time_ns = time_ns,
                            .kind = kind,
                            .device = device,
                            .bytes = bytes,
                            .allocated_bytes = allocated_bytes,
                            .reserved_bytes = reserved_bytes,
                            .name = schema::kNone});
}

merge::Timeline TimelineOf(const std::vector<const HandMade*>& ranks, const std::vector<Interval>& windows) {
  schema::TimelineTables tables;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const auto rank = static_cast<std::int32_t>(r);
    tables.ranks.Append({.rank = rank});
    tables.clock.Append({.rank = rank});
    tables.rank_totals.Append({.rank = rank,
                               .begin_ns = windows[r].begin,
                               .end_ns = windows[r].end,
                               .span_ns = windows[r].end - windows[r].begin});
    const auto& steps = ranks[r]->tables.steps;
    for (std::size_t i = 0; i < steps.rows(); ++i)
      tables.step_ranks.Append({.index = steps.index[i],
                                .rank = rank,
                                .begin_ns = steps.begin_ns[i],
                                .end_ns = steps.end_ns[i],
                                .complete = steps.complete[i]});
  }
  return merge::MakeTimeline("", std::move(tables));
}

void Meta(merge::Timeline& timeline, std::string_view key, std::string_view value) {
  auto& t = timeline.tables;
  t.meta.Append({.key = InternIn(t.strings, t.string_bytes, key), .value = InternIn(t.strings, t.string_bytes, value)});
}

tables::Table Make(std::string_view name, const merge::Timeline& timeline, const std::vector<const HandMade*>& ranks,
                   const tables::TableOptions& options) {
  Result<tables::Table> table =
      tables::MakeTable(name, timeline, options, [&](std::int32_t rank) -> Result<schema::RankTables> {
        return ranks.at(static_cast<std::size_t>(rank))->tables;
      });
  EXPECT_TRUE(table.ok()) << (table.ok() ? "" : table.error().what);
  return table.ok() ? std::move(table).value() : tables::Table{};
}

namespace {
std::size_t PlaceOf(const tables::Table& table, std::string_view name) {
  for (std::size_t c = 0; c < table.columns.size(); ++c)
    if (table.columns[c].name == name) return c;
  ADD_FAILURE() << "no column " << name;
  return 0;
}
}  // namespace

std::int64_t FindRow(const tables::Table& table, std::string_view column, const tables::Cell& value,
                     const tables::Cell& rank) {
  const std::size_t c = PlaceOf(table, column);
  for (std::size_t r = 0; r < table.rows.size(); ++r)
    if (table.rows[r][c] == value && (rank == tables::Cell{} || table.rows[r][0] == rank))
      return static_cast<std::int64_t>(r);
  return -1;
}

tables::Cell At(const tables::Table& table, std::int64_t row, std::string_view column) {
  if (row < 0 || static_cast<std::size_t>(row) >= table.rows.size()) {
    ADD_FAILURE() << "no such row for " << column;
    return {};
  }
  return table.rows[static_cast<std::size_t>(row)][PlaceOf(table, column)];
}

}  // namespace lockstep::test
