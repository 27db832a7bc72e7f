// Writes an example rank file and timeline for the tests in Python.
// make_example RANK_FILE TIMELINE SMALL_RANK_FILE

#include <cstdio>
#include <cstdlib>

#include "trace/file/strings.h"
#include "trace/file/table_file.h"

namespace {

lockstep::schema::RankTables RankOf(std::int64_t calls) {
  using namespace lockstep;
  schema::RankTables rank;
  trace::StringInterner strings(rank.strings, rank.string_bytes);
  rank.meta.Append({.key = strings.Intern("rank"), .value = strings.Intern("3")});
  rank.meta.Append({.key = strings.Intern("command"), .value = strings.Intern("./app 'größer'")});
  for (std::int64_t i = 0; i < calls; ++i)
    rank.mpi_calls.Append({.begin_ns = 1'000'000'000'000'000 + i * 1000,
                           .duration_ns = i % 977,
                           .op = static_cast<std::uint16_t>(i % 200),
                           .comm = i % 2 == 0 ? 0 : schema::kNone,
                           .bytes = static_cast<std::uint64_t>(i) << 40,
                           .peer = static_cast<std::int32_t>(-(i % 3)),
                           .count = 1,
                           .outcome = static_cast<std::uint8_t>(i % 4)});
  for (std::int64_t i = 0; i < 10; ++i) rank.steps.Append({.index = i, .begin_ns = i * 100, .end_ns = i * 100 + 100});
  return rank;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep;
  if (argc != 4) return 2;
  const Status written = trace::WriteRankFile(argv[1], RankOf(150'000));
  const Status small_written = trace::WriteRankFile(argv[3], RankOf(100));

  schema::TimelineTables timeline;
  for (std::int32_t r = 0; r < 4; ++r)
    for (std::int64_t k = 0; k < (r == 2 ? 1 : 5); ++k)
      timeline.clock.Append({.rank = r,
                             .local_ns = 9'100'000'000'000'000 + k * 1'000'000'007 + r,
                             .offset_ns = -1'000'000'000'000 + r * 1'000'003 + k * k * 4321 * (r % 2 == 0 ? 1 : -1),
                             .base_error_ns = 500,
                             .slew_ppb = 100,
                             .method = 2});
  const Status timeline_written = trace::WriteTimelineFile(argv[2], timeline);
  for (const Status* status : {&written, &timeline_written, &small_written})
    if (!status->ok()) {
      std::fprintf(stderr, "%s\n", status->error().what.c_str());
      return 1;
    }
  return 0;
}
