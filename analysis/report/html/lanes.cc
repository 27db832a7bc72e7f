#include "analysis/report/html/lanes.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "analysis/report/html/inside.h"
#include "analysis/report/html/lane_pieces.h"
#include "analysis/stacks/blocked_places.h"
#include "analysis/tables/engine/view_index.h"
#include "core/collective.h"
#include "merge/parallel.h"
#include "merge/timeline/blocked_time.h"
#include "merge/timeline/rank_pass.h"
#include "merge/timeline/totals_row.h"

namespace lockstep::report {
namespace {

using schema::kNone;

struct ChosenStep {
  std::int64_t index = -1;  // Of the step, or the slice's position.
  std::string why;          // "median", "worst", "best", "asked for", "".
  std::size_t row = analysis::kNowhere;
  Interval window{0, 0};  // Cluster time; of a slice.
};

// Identifies an operation; equal ones are shared.
using OpKind =
    std::tuple<std::uint8_t, std::string, std::uint32_t, std::int64_t>;  // Kind, group, members, bytes or -1.

struct Operation {
  std::int64_t begin, wait_end, transfer_begin, end;  // Cluster time.
  OpKind kind;
  std::int64_t last_rank, charge_ns, error_ns, sharers;
  bool certain;
};
// A range, or a call in which the rank is blocked.
struct NamedRange {
  std::int64_t begin, end;
  std::string name;
  std::int64_t depth, category;
};
// One rank in one step.
struct Cell {
  bool there = false, coarse = false;
  Interval window{0, 0};
  std::vector<std::pair<std::int64_t, PieceState>> pieces;  // End in cluster time.
  std::vector<Operation> ops;
  std::vector<NamedRange> ranges, blocked;
  std::size_t ops_left_out = 0;
};

class Lanes {
 public:
  Lanes(const analysis::Context& context, const analysis::Analysis& analysis, const std::vector<std::int32_t>& named,
        const LaneLimits& limits, std::int64_t first_step, std::int64_t last_step)
      : context_(context),
        analysis_(analysis),
        named_(named),
        limits_(limits),
        first_(first_step),
        last_(last_step),
        index_(context.timeline()) {}

  PageJson Make(PageJson& inside) {
    ChooseRanks();
    ChooseSteps();
    if (steps_.empty() || ranks_.empty()) return nullptr;
    cells_.resize(ranks_.size());
    failures_.resize(ranks_.size());
    inside_.emplace(context_, ranks_, named_);
    if (context_.tables().p2p_pairs.rows() > 0)
      if (auto partners = merge::FindP2pPartners(context_.timeline(), context_.options().jobs); partners.ok())
        index_.SetPartners(std::move(partners).value());
    merge::ParallelFor(context_.options().jobs, ranks_.size(), [&](std::size_t r) { ReadRank(r); });
    inside = inside_->Json();
    return Json();
  }

 private:
  // Chooses all ranks; or those that findings name, the latest, the busiest, and some others.
  void ChooseRanks() {
    ranks_ = context_.ranks();
    if (ranks_.size() <= limits_.ranks) return;
    std::set<std::int32_t> chosen;
    const auto room = [&] { return chosen.size() < limits_.ranks; };
    for (const std::int32_t rank : named_)
      if (room()) chosen.insert(rank);
    const auto add_most = [&](auto&& value, std::size_t most) {
      std::vector<std::size_t> order(analysis_.ranks.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return value(analysis_.ranks[a]) > value(analysis_.ranks[b]);
      });
      for (std::size_t i = 0; i < std::min(most, order.size()) && room(); ++i)
        chosen.insert(analysis_.ranks[order[i]].rank);
    };
    const std::size_t each = limits_.ranks / 6;
    add_most([](const analysis::RankRow& row) { return row.late_ns_median.value_or(INT64_MIN); }, each);
    add_most([](const analysis::RankRow& row) { return row.terms.compute_ns; }, each);
    add_most([](const analysis::RankRow& row) { return -row.terms.compute_ns; }, each);
    const std::size_t n = context_.ranks().size();
    for (std::size_t i = 0; room() && i < limits_.ranks; ++i) chosen.insert(context_.ranks()[i * n / limits_.ranks]);
    ranks_.assign(chosen.begin(), chosen.end());
  }

  void ChooseSteps() {
    if (context_.units_are_steps() || !context_.steps().empty())
      Steps();
    else
      Slices();
  }

  // Estimates the pieces of a rank's step from what was recorded.
  double PiecesPerStep(std::size_t steps) const {
    double events = 0;
    for (const std::int32_t rank : ranks_)
      events += static_cast<double>(context_.tables().ranks.events[context_.RankRow(context_.Position(rank))]);
    const double of_step = events / static_cast<double>(std::max<std::size_t>(1, steps * ranks_.size()));
    return std::clamp(of_step, 8.0, static_cast<double>(limits_.pieces_per_step));
  }
  std::size_t Room(std::size_t steps) const {
    const double each = PiecesPerStep(steps) * static_cast<double>(ranks_.size());
    return static_cast<std::size_t>(std::clamp(static_cast<double>(limits_.pieces) / each, 3.0, 400.0));
  }

  void Steps() {
    const auto& table = context_.tables().steps;
    std::vector<std::size_t> usable = context_.usable_steps();
    if (usable.empty())
      for (const std::size_t row : context_.steps())
        if (table.complete[row]) usable.push_back(row);
    if (usable.empty()) usable = context_.steps();
    std::map<std::size_t, std::string> chosen;
    std::vector<std::size_t> by_length = usable;
    std::stable_sort(by_length.begin(), by_length.end(),
                     [&](std::size_t a, std::size_t b) { return table.step_ns[a] < table.step_ns[b]; });
    chosen.emplace(by_length[(by_length.size() - 1) / 2], "median");
    chosen.emplace(by_length.back(), "worst");
    chosen.emplace(by_length.front(), "best");
    const std::size_t room = Room(table.rows());
    for (const std::size_t row : context_.steps())
      if (first_ >= 0 && table.index[row] >= first_ && table.index[row] <= last_ && chosen.size() < room + 3)
        chosen.emplace(row, "asked for");
    const auto& all = context_.steps();
    for (std::size_t i = 0; i < room && chosen.size() < room; ++i)
      chosen.emplace(all[all.size() <= room ? std::min(i, all.size() - 1) : i * all.size() / room], "");
    for (const std::size_t row : all)
      if (const auto at = chosen.find(row); at != chosen.end())
        steps_.push_back({table.index[row], at->second, row, {0, 0}});
    all_steps_ = all.size();
  }

  void Slices() {
    const auto& units = context_.units();
    std::vector<std::size_t> order(units.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return units[a].length_ns() < units[b].length_ns(); });
    const std::size_t room = Room(units.size());
    std::map<std::size_t, std::string> chosen;
    if (!order.empty()) {
      chosen.emplace(order[(order.size() - 1) / 2], "median");
      chosen.emplace(order.back(), "worst");
      chosen.emplace(order.front(), "best");
    }
    for (std::size_t i = 0; i < units.size() && chosen.size() < room; ++i) chosen.emplace(i, "");
    for (const auto& [unit, why] : chosen)
      steps_.push_back({static_cast<std::int64_t>(unit), why, analysis::kNowhere, units[unit].window});
    all_steps_ = units.size();
    slices_ = true;
    if (!steps_.empty()) return;
    // There are no steps or slices: everything that was recorded is one.
    Interval whole{INT64_MAX, INT64_MIN};
    const auto& totals = context_.tables().rank_totals;
    for (std::size_t i = 0; i < totals.rows(); ++i) {
      const merge::ClockMap clock(context_.tables().clock, totals.rank[i]);
      whole.begin = std::min(whole.begin, clock.ToCluster(totals.begin_ns[i]));
      whole.end = std::max(whole.end, clock.ToCluster(totals.end_ns[i]));
    }
    if (whole.begin < whole.end) steps_.push_back({0, "all", analysis::kNowhere, whole});
    all_steps_ = steps_.size();
  }

  void ReadRank(std::size_t r) {
    cells_[r].resize(steps_.size());
    const std::int32_t rank = ranks_[r];
    Result<schema::RankTables> tables = context_.ReadRank(rank);
    if (!tables.ok()) {
      failures_[r] = tables.error().what;
      return;
    }
    const gpu::RankView view = tables::MakeRankView(index_, rank, std::move(tables).value(), {});
    const merge::BlockedTime blocked = merge::FindBlockedTime(view.tables, merge::TrainingThread(view.tables));
    const RankLane lane = LaneOf(view, blocked);
    inside_->Add(r, view);
    const merge::ClockMap clock(context_.tables().clock, rank);
    std::vector<std::uint32_t> member_of(view.tables.collectives.rows(), kNone);
    for (const std::uint32_t member : view.members)
      if (const std::uint32_t row = context_.tables().collective_ranks.row[member]; row < member_of.size())
        member_of[row] = member;
    const std::uint32_t training = merge::TrainingThread(view.tables);
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      Cell& cell = cells_[r][s];
      if (!Locate(steps_[s], rank, clock, cell)) continue;
      cell.there = true;
      std::vector<Piece> pieces = CutIntoPieces(lane, cell.window);
      cell.coarse = pieces.size() > limits_.pieces_per_step;
      pieces = Coarsened(pieces, cell.window, limits_.pieces_per_step);
      for (const Piece& piece : pieces) cell.pieces.emplace_back(clock.ToCluster(piece.end_ns), piece.state);
      AddOperations(view, lane, member_of, clock, cell);
      AddRanges(view, training, clock, cell);
      AddBlocked(view, blocked, clock, cell);
      cell.window = {clock.ToCluster(cell.window.begin), clock.ToCluster(cell.window.end)};
    }
  }

  bool Locate(const ChosenStep& step, std::int32_t rank, const merge::ClockMap& clock, Cell& cell) const {
    if (step.row == analysis::kNowhere) {
      cell.window = {clock.ToLocal(step.window.begin), clock.ToLocal(step.window.end)};
      const auto& totals = context_.tables().rank_totals;
      if (const std::size_t row = merge::TotalsRow(totals, rank); row < totals.rows())
        cell.window = {std::max(cell.window.begin, totals.begin_ns[row]),
                       std::min(cell.window.end, totals.end_ns[row])};
      return cell.window.begin < cell.window.end;
    }
    const auto& table = context_.tables().step_ranks;
    const std::size_t row = context_.Cell(step.row, context_.Position(rank));
    if (row == analysis::kNowhere || table.end_ns[row] <= table.begin_ns[row]) return false;
    cell.window = {table.begin_ns[row], table.end_ns[row]};
    return true;
  }

  static RankLane LaneOf(const gpu::RankView& view, const merge::BlockedTime& of_thread) {
    RankLane lane;
    lane.comm = tables::CommOf(view);
    std::vector<Interval> copy, input, blocked;
    for (const merge::BlockedTime::Own& own : of_thread.own) blocked.push_back(own.at);
    const auto& copies = view.tables.copies;
    for (std::size_t i = 0; i < copies.rows(); ++i)
      copy.push_back({copies.begin_ns[i], copies.begin_ns[i] + copies.duration_ns[i]});
    const auto& ranges = view.tables.ranges;
    const std::uint32_t training = merge::TrainingThread(view.tables);
    for (std::size_t i = 0; i < ranges.rows(); ++i)
      if (ranges.category[i] == schema::Category::kInput && ranges.thread[i] == training)
        input.push_back({ranges.begin_ns[i], ranges.begin_ns[i] + ranges.duration_ns[i]});
    lane.copy = Normalize(std::move(copy));
    lane.input = Normalize(std::move(input));
    lane.blocked = Normalize(std::move(blocked));
    lane.awaited = of_thread.awaited;
    return lane;
  }

  void AddOperations(const gpu::RankView& view, const RankLane& lane, const std::vector<std::uint32_t>& member_of,
                     const merge::ClockMap& clock, Cell& cell) const {
    const auto& t = context_.tables().collectives;
    std::vector<const tables::CommOperation*> inside;
    for (const tables::CommOperation& op : lane.comm.ops)
      if (op.end_ns > cell.window.begin && op.begin_ns < cell.window.end) inside.push_back(&op);
    if (inside.size() > limits_.operations_per_step) {
      cell.ops_left_out = inside.size() - limits_.operations_per_step;
      std::stable_sort(inside.begin(), inside.end(),
                       [](const tables::CommOperation* a, const tables::CommOperation* b) {
                         return a->end_ns - a->begin_ns > b->end_ns - b->begin_ns;
                       });
      inside.resize(limits_.operations_per_step);
    }
    std::stable_sort(inside.begin(), inside.end(), [](const tables::CommOperation* a, const tables::CommOperation* b) {
      return a->begin_ns < b->begin_ns;
    });
    for (const tables::CommOperation* op : inside) {
      const tables::GroupOfOps& group = lane.comm.groups[op->group];
      Operation out{clock.ToCluster(op->begin_ns),
                    clock.ToCluster(op->wait_end_ns),
                    clock.ToCluster(op->transfer_begin_ns),
                    clock.ToCluster(op->end_ns),
                    {static_cast<std::uint8_t>(group.kind), group.name, group.size, -1},
                    kUnknownCell,
                    kUnknownCell,
                    kUnknownCell,
                    1,
                    op->certain};
      if (op->row < view.tables.collectives.rows()) {
        std::get<3>(out.kind) =
            static_cast<std::int64_t>(std::min<std::uint64_t>(view.tables.collectives.bytes[op->row], INT64_MAX));
        if (const std::uint32_t member = member_of[op->row]; member != kNone) {
          const std::uint32_t c = context_.tables().collective_ranks.collective[member];
          if (t.last_rank[c] >= 0) out.last_rank = t.last_rank[c];
          out.charge_ns = t.charge_ns[c];
          out.error_ns = t.error_ns[c];
          out.sharers = t.operations[c];
        }
      }
      cell.ops.push_back(std::move(out));
    }
  }

  // The ranges that the program marked; not operators and functions, of which there are thousands.
  void AddRanges(const gpu::RankView& view, std::uint32_t training, const merge::ClockMap& clock, Cell& cell) const {
    const auto& ranges = view.tables.ranges;
    std::vector<std::size_t> inside;
    for (std::size_t i = 0; i < ranges.rows(); ++i)
      if (ranges.thread[i] == training && ranges.source[i] <= schema::RangeSource::kTorch &&
          ranges.kind[i] == schema::RangeKind::kPushPop && ranges.depth[i] <= 2 && ranges.duration_ns[i] > 0 &&
          ranges.begin_ns[i] < cell.window.end && ranges.begin_ns[i] + ranges.duration_ns[i] > cell.window.begin)
        inside.push_back(i);
    if (inside.size() > limits_.ranges_per_step) {
      std::stable_sort(inside.begin(), inside.end(),
                       [&](std::size_t a, std::size_t b) { return ranges.duration_ns[a] > ranges.duration_ns[b]; });
      inside.resize(limits_.ranges_per_step);
      std::sort(inside.begin(), inside.end());
    }
    for (const std::size_t i : inside)
      cell.ranges.push_back({clock.ToCluster(std::max(ranges.begin_ns[i], cell.window.begin)),
                             clock.ToCluster(std::min(ranges.begin_ns[i] + ranges.duration_ns[i], cell.window.end)),
                             Harmless(view.Text(ranges.name[i]), 120), ranges.depth[i], ranges.category[i]});
  }

  void AddBlocked(const gpu::RankView& view, const merge::BlockedTime& blocked, const merge::ClockMap& clock,
                  Cell& cell) const {
    std::vector<const merge::BlockedTime::Own*> inside;
    for (const merge::BlockedTime::Own& own : blocked.own)
      if (!view.tables.kernels.rows() && own.at.end > cell.window.begin && own.at.begin < cell.window.end)
        inside.push_back(&own);
    if (inside.size() > limits_.ranges_per_step) {
      std::stable_sort(inside.begin(), inside.end(),
                       [](const auto* a, const auto* b) { return a->at.end - a->at.begin > b->at.end - b->at.begin; });
      inside.resize(limits_.ranges_per_step);
    }
    for (const merge::BlockedTime::Own* own : inside)
      cell.blocked.push_back({clock.ToCluster(std::max(own->at.begin, cell.window.begin)),
                              clock.ToCluster(std::min(own->at.end, cell.window.end)),
                              Harmless(analysis::TextOfRow(view.tables, own->row), 120), 0, 0});
  }

  PageJson Json() {
    std::map<OpKind, std::int64_t> kinds;
    std::map<std::string, std::int64_t> names;
    for (const auto& of_rank : cells_)
      for (const Cell& cell : of_rank) {
        for (const Operation& op : cell.ops) kinds.emplace(op.kind, 0);
        for (const auto* named : {&cell.ranges, &cell.blocked})
          for (const NamedRange& range : *named) names.emplace(range.name, 0);
      }
    PageJson json{{"slices", slices_},
                  {"all_steps", all_steps_},
                  {"ranks", ranks_},
                  {"all_ranks", context_.ranks().size()},
                  {"steps", PageJson::array()},
                  {"kinds", PageJson::array()},
                  {"names", PageJson::array()},
                  {"unread", PageJson::array()}};
    for (auto& [kind, number] : kinds) {
      number = static_cast<std::int64_t>(json["kinds"].size());
      const auto what = static_cast<CollectiveKind>(std::get<0>(kind));
      json["kinds"].push_back({{"op", what == CollectiveKind::kNone ? "communication kernel" : std::string(Name(what))},
                               {"group", std::get<1>(kind)},
                               {"members", std::get<2>(kind)},
                               {"bytes", std::get<3>(kind) < 0 ? PageJson(nullptr) : PageJson(std::get<3>(kind))},
                               {"bus_factor", BusFactor(what, std::get<2>(kind))}});
    }
    for (auto& [name, number] : names) {
      number = static_cast<std::int64_t>(json["names"].size());
      json["names"].push_back(name);
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      if (!failures_[r].empty()) json["unread"].push_back({{"rank", ranks_[r]}, {"why", failures_[r]}});

    std::map<std::string, std::vector<std::int64_t>> columns;
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      Interval extent{INT64_MAX, INT64_MIN};
      for (const auto& of_rank : cells_)
        if (of_rank[s].there) {
          extent.begin = std::min(extent.begin, of_rank[s].window.begin);
          extent.end = std::max(extent.end, of_rank[s].window.end);
        }
      if (extent.begin > extent.end) extent = {0, 0};
      json["steps"].push_back({{"index", steps_[s].index},
                               {"why", steps_[s].why},
                               {"length_ns", extent.end - extent.begin},
                               {"step_ns", StepLength(steps_[s])},
                               {"flags", Flags(steps_[s])}});
      for (std::size_t r = 0; r < ranks_.size(); ++r) AddCell(cells_[r][s], extent.begin, kinds, names, columns);
    }
    for (auto& [name, values] : columns) json["columns"][name] = Packed(values);
    return json;
  }

  PageJson StepLength(const ChosenStep& step) const {
    if (step.row == analysis::kNowhere) return nullptr;
    const std::int64_t ns = context_.tables().steps.step_ns[step.row];
    return ns < 0 ? PageJson(nullptr) : PageJson(ns);
  }
  int Flags(const ChosenStep& step) const {
    if (step.row == analysis::kNowhere) return 0;
    const auto& table = context_.tables().steps;
    return (table.warmup[step.row] ? 1 : 0) | (table.complete[step.row] ? 0 : 2);
  }

  static void AddCell(const Cell& cell, std::int64_t base, const std::map<OpKind, std::int64_t>& kinds,
                      const std::map<std::string, std::int64_t>& names,
                      std::map<std::string, std::vector<std::int64_t>>& columns) {
    const auto put = [&](const char* name, std::int64_t value) { columns[name].push_back(value); };
    put("cell_begin", cell.there ? cell.window.begin - base : kUnknownCell);
    put("cell_end", cell.there ? cell.window.end - base : kUnknownCell);
    put("cell_coarse", cell.coarse);
    put("cell_pieces", static_cast<std::int64_t>(cell.pieces.size()));
    put("cell_ops", static_cast<std::int64_t>(cell.ops.size()));
    put("cell_ops_left_out", static_cast<std::int64_t>(cell.ops_left_out));
    put("cell_ranges", static_cast<std::int64_t>(cell.ranges.size()));
    put("cell_blocked", static_cast<std::int64_t>(cell.blocked.size()));
    std::int64_t begin = cell.window.begin;
    for (const auto& [end, state] : cell.pieces) {
      put("piece_ns", end - begin);
      put("piece_state", static_cast<std::int64_t>(state));
      begin = end;
    }
    for (const Operation& op : cell.ops) {
      put("op_begin", op.begin - base);
      put("op_wait_ns", op.wait_end - op.begin);
      put("op_transfer_ns", op.end - op.transfer_begin);
      put("op_ns", op.end - op.begin);
      put("op_kind", kinds.at(op.kind));
      put("op_last_rank", op.last_rank);
      put("op_charge_ns", op.charge_ns);
      put("op_error_ns", op.error_ns);
      put("op_sharers", op.sharers);
      put("op_certain", op.certain);
    }
    for (const NamedRange& range : cell.ranges) {
      put("range_begin", range.begin - base);
      put("range_ns", range.end - range.begin);
      put("range_name", names.at(range.name));
      put("range_depth", range.depth);
      put("range_category", range.category);
    }
    for (const NamedRange& call : cell.blocked) {
      put("blocked_begin", call.begin - base);
      put("blocked_ns", call.end - call.begin);
      put("blocked_name", names.at(call.name));
    }
  }

  const analysis::Context& context_;
  const analysis::Analysis& analysis_;
  const std::vector<std::int32_t>& named_;
  const LaneLimits& limits_;
  const std::int64_t first_, last_;
  tables::ViewIndex index_;
  std::vector<std::int32_t> ranks_;
  std::vector<ChosenStep> steps_;
  std::size_t all_steps_ = 0;
  bool slices_ = false;
  std::vector<std::vector<Cell>> cells_;  // By rank, step.
  std::vector<std::string> failures_;
  std::optional<Inside> inside_;
};

}  // namespace

PageJson LanesOf(const analysis::Context& context, const analysis::Analysis& analysis,
                 const std::vector<std::int32_t>& named, const LaneLimits& limits, std::int64_t first_step,
                 std::int64_t last_step, PageJson& inside) {
  return Lanes(context, analysis, named, limits, first_step, last_step).Make(inside);
}

}  // namespace lockstep::report
