// groups and breakdown on random ranks, against a look at every single nanosecond.

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>

#include "analysis/tables/engine/cells.h"
#include "hand_made.h"

namespace lockstep::tables {
namespace {

using test::HandMade;
using test::Make;
using test::TimelineOf;

struct Op {
  std::int64_t begin, wait_end, transfer_begin, end;
  std::uint32_t comm;
  CollectiveKind kind;
};

struct Case {
  HandMade rank;
  std::vector<Interval> compute, copies;
  std::vector<Op> ops;
  Interval window;
  merge::Timeline timeline;

  explicit Case(std::mt19937& random) {
    const auto upto = [&](std::int64_t n) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(n)); };
    const std::string_view names[] = {"dp", "tp", "pp"};
    for (std::uint32_t c = 0; c < 3; ++c) rank.Comm(names[c], 4, 1, 100 + c);
    for (std::int64_t i = upto(9); i >= 0; --i) {
      const std::int64_t begin = upto(300), end = begin + upto(60);
      compute.push_back({begin, end});
      rank.Kernel("gemm", begin, end);
    }
    for (std::int64_t i = upto(4); i > 0; --i) {
      const std::int64_t begin = upto(300), end = begin + upto(30);
      copies.push_back({begin, end});
      rank.Copy(1, begin, end, 8);
    }
    for (std::int64_t i = upto(9); i >= 0; --i) {
      Op op;
      op.begin = upto(300);
      op.end = op.begin + upto(90);
      op.wait_end = op.transfer_begin = op.begin;
      op.comm = static_cast<std::uint32_t>(upto(3));
      op.kind = upto(2) == 0 ? CollectiveKind::kAllReduce : CollectiveKind::kAllGather;
      const bool split = upto(3) > 0, censored = upto(4) == 0;
      op.wait_end = split ? op.begin + upto(op.end - op.begin + 1) : op.begin;
      op.transfer_begin = split && !censored ? op.wait_end : op.end;
      rank.Collective(op.comm, op.kind, op.begin, op.end, 64, rank.Kernel("ncclDevKernel_X", op.begin, op.end));
      ops.push_back(op);
    }
    window.begin = upto(100);
    window.end = window.begin + 1 + upto(300);
    merge::Timeline plain = TimelineOf({&rank}, {window});
    test::Meta(plain, "window", "steps");
    for (std::uint32_t i = 0; i < ops.size(); ++i) {
      const bool split = ops[i].wait_end > ops[i].begin || ops[i].transfer_begin < ops[i].end;
      plain.tables.collectives.Append({.transfer_ns = -1});
      plain.tables.collective_ranks.Append(
          {.collective = i,
           .rank = 0,
           .row = i,
           .arrival_ns = ops[i].begin,
           .end_low_ns = ops[i].end,
           .end_high_ns = ops[i].end,
           .wait_ns = split ? ops[i].wait_end - ops[i].begin : -1,
           .transfer_ns = split && ops[i].transfer_begin < ops[i].end ? ops[i].end - ops[i].transfer_begin : -1});
    }
    timeline = merge::MakeTimeline("", std::move(plain.tables));
  }

  static bool Covers(const std::vector<Interval>& intervals, std::int64_t at) {
    for (const Interval& i : intervals)
      if (i.begin <= at && at < i.end) return true;
    return false;
  }
};

using Key = std::pair<std::string, std::string>;
using Sums = std::map<Key, std::array<std::int64_t, 6>>;  // Total, hidden, wait, transfer, unsplit, shared.

Sums BruteForce(const Case& c) {
  const std::string names[] = {"dp", "tp", "pp"};
  Sums sums;
  for (std::int64_t t = c.window.begin; t < c.window.end; ++t) {
    std::map<Key, int> in_flight;
    bool waiting = false, transferring = false;
    for (const Op& op : c.ops) {
      if (t < op.begin || t >= op.end) continue;
      ++in_flight[{names[op.comm], std::string(Name(op.kind))}];
      waiting |= t < op.wait_end;
      transferring |= t >= op.transfer_begin;
    }
    if (in_flight.empty()) continue;
    const std::size_t state = transferring ? 3 : waiting ? 2 : 4;
    for (const auto& [key, n] : in_flight) {
      ++sums[key][0];
      if (Case::Covers(c.compute, t))
        ++sums[key][1];
      else if (in_flight.size() == 1)
        ++sums[key][state];
      else
        ++sums[key][5];
    }
    if (in_flight.size() > 1 && !Case::Covers(c.compute, t)) ++sums[{"(several at once)", ""}][state];
  }
  return sums;
}

TEST(RandomRanks, GroupsCountEachNanosecondOnce) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const Case c(random);
    const Table table = Make("groups", c.timeline, {&c.rank});
    Sums sums;
    for (const auto& row : table.rows) {
      const auto cell = [&](std::string_view name) {
        for (std::size_t i = 0; i < table.columns.size(); ++i)
          if (table.columns[i].name == name) return row[i];
        return Cell();
      };
      const std::array<std::int64_t, 6> values = {IntOf(cell("total_ns")),           IntOf(cell("hidden_ns")),
                                                  IntOf(cell("exposed_wait_ns")),    IntOf(cell("exposed_transfer_ns")),
                                                  IntOf(cell("exposed_unsplit_ns")), IntOf(cell("shared_ns"))};
      // Rows may be there for their count alone.
      if (values != std::array<std::int64_t, 6>{})
        sums[{std::string(TextOfCell(cell("group"))), std::string(TextOfCell(cell("kind")))}] = values;
    }
    ASSERT_EQ(sums, BruteForce(c)) << "round " << round;
  }
}

TEST(RandomRanks, BreakdownCountsEachNanosecondOnce) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    const Case c(random);
    std::map<std::string, std::int64_t> expected, found;
    std::vector<Interval> in_flight;
    for (const Op& op : c.ops) in_flight.push_back({op.begin, op.end});
    const std::vector<Interval>& comm = in_flight;
    for (std::int64_t t = c.window.begin; t < c.window.end; ++t) {
      std::string activity;
      for (const auto& [name, set] :
           {std::pair("compute", &c.compute), std::pair("communication", &comm), std::pair("memory", &c.copies)})
        if (Case::Covers(*set, t)) activity += (activity.empty() ? "" : " + ") + std::string(name);
      if (!activity.empty()) ++expected[activity];
    }
    const Table table = Make("breakdown", c.timeline, {&c.rank});
    for (const auto& row : table.rows) found[std::string(TextOfCell(row[1]))] = IntOf(row[2]);
    ASSERT_EQ(found, expected) << "round " << round;
  }
}

}  // namespace
}  // namespace lockstep::tables
