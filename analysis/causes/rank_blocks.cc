#include "analysis/causes/rank_blocks.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "analysis/rules/causes.h"
#include "merge/timeline/event_windows.h"

namespace lockstep::analysis {
namespace {

// Windows that begin before this have no known begin (analysis/tables/engine/view_index.cc).
constexpr std::int64_t kUnknownBegin = -(std::int64_t{1} << 61);

Result<merge::EventWindows> OpenEvents(const Context& context, std::int32_t rank) {
  if (!context.options().read_rank) return merge::EventWindows::Open(context.timeline(), rank);
  LS_TRY(schema::RankTables tables, context.options().read_rank(rank));
  return merge::EventWindows(std::move(tables));
}

// How many rows of each kind of merge::EventWindows::Seen begin in a stretch.
using SeenCounts = std::array<std::uint64_t, merge::EventWindows::kSeenKinds>;

class BlockDivider {
 public:
  // `frame`: the rank without its events. `seen`: for each stretch. `all`: of the rank, in stretches or not.
  BlockDivider(const RankEvents& frame, std::vector<SeenCounts> seen, const SeenCounts& all, std::uint64_t rows,
               std::uint64_t block_rows)
      : frame_(frame), seen_(std::move(seen)), all_(all) {
    const auto& steps = frame.view().tables.steps;
    for (std::size_t i = 0; i < steps.rows(); ++i)
      if (steps.complete[i]) host_[steps.index[i]] = {steps.begin_ns[i], steps.end_ns[i]};
    Divide((rows + block_rows - 1) / block_rows);
  }
  const std::vector<StretchBlock>& all() const { return blocks_; }

 private:
  // Into about equally many kernels, or steps of CPU ranks. A block that lacks what the rank has elsewhere is joined
  // with the one before: without kernels it would be one gap, and without operators more would be unexplained.
  void Divide(std::uint64_t count) {
    const std::size_t n = frame_.stretches().size();
    std::uint64_t total = 0, done = 0;
    for (const SeenCounts& seen : seen_) total += seen[merge::EventWindows::kKernel];
    const bool gpu = total > 0;
    if (!gpu) total = n;
    StretchBlock block;
    SeenCounts in_block{};
    const auto whole = [&] {
      for (std::size_t k = 0; k < all_.size(); ++k)
        if (all_[k] > 0 && in_block[k] == 0) return false;
      return true;
    };
    for (std::size_t i = 0; i < n; ++i) {
      ++block.count;
      for (std::size_t k = 0; k < all_.size(); ++k) in_block[k] += seen_[i][k];
      done += gpu ? seen_[i][merge::EventWindows::kKernel] : 1;
      if (!whole() || done * count < total * (blocks_.size() + 1)) continue;
      blocks_.push_back(block);
      block = {};
      block.first = i + 1;
      in_block = {};
    }
    if (block.count > 0 && whole())
      blocks_.push_back(block);
    else if (block.count > 0 && !blocks_.empty())
      blocks_.back().count += block.count;
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      blocks_[b].gpu = gpu;
      if (b > 0) blocks_[b].lowest = blocks_[b - 1].highest + 1;
      if (b + 1 < blocks_.size())
        blocks_[b].highest = frame_.stretches()[blocks_[b].first + blocks_[b].count - 1].index;
      blocks_[b].held = HeldFor(blocks_[b]);
    }
  }

  Interval HeldFor(const StretchBlock& block) const {
    Interval core = frame_.stretches()[block.first].window;
    std::int64_t longest = 0;
    for (std::size_t i = block.first; i < block.first + block.count; ++i) {
      const gpu::RankView::Step& step = frame_.stretches()[i];
      Add(step.window, core, longest);
      // The host runs ahead.
      if (const auto marked = host_.find(step.index); marked != host_.end()) Add(marked->second, core, longest);
    }
    const std::int64_t beside = (core.end - core.begin) / rules::kBlockBesideOneIn + rules::kBlockBesideSteps * longest;
    return {core.begin - beside, core.end + beside};
  }
  static void Add(const Interval& step, Interval& core, std::int64_t& longest) {
    core = {std::min(core.begin, step.begin), std::max(core.end, step.end)};
    longest = std::max(longest, step.end - step.begin);
  }

  const RankEvents& frame_;
  std::vector<SeenCounts> seen_;
  SeenCounts all_;
  std::map<std::int64_t, Interval> host_;
  std::vector<StretchBlock> blocks_;
};

bool OneAfterTheOther(const std::vector<gpu::RankView::Step>& stretches) {
  for (std::size_t i = 1; i < stretches.size(); ++i)
    if (stretches[i].window.begin < stretches[i - 1].window.end || stretches[i].index <= stretches[i - 1].index)
      return false;
  return true;
}

}  // namespace

void ExamineRank(const Context& context, const tables::ViewIndex& index, std::int32_t rank, std::uint64_t block_rows,
                 const RankExaminer& examiner) {
  Result<merge::EventWindows> opened = OpenEvents(context, rank);
  if (!opened.ok()) return;  // The loss is counted and reported where files are read.
  merge::EventWindows& events = opened.value();
  const std::uint64_t rows = events.rows();
  const auto as_a_whole = [&] {
    const RankEvents all(context, index, rank, std::move(events).ReadAll());
    examiner.events(all);
    examiner.memory(all, all.gpu() ? all.device() : std::uint16_t{0});
  };
  if (rows <= block_rows) return as_a_whole();

  const RankEvents frame(context, index, rank, events.Head());
  const std::vector<gpu::RankView::Step>& stretches = frame.stretches();
  std::vector<SeenCounts> seen(stretches.size(), SeenCounts{});
  SeenCounts all{};
  std::set<std::uint16_t> devices;
  std::size_t last = kNowhere;
  events.Scan([&](merge::EventWindows::Seen what, std::int64_t begin_ns, std::uint16_t device) {
    ++all[what];
    if (what == merge::EventWindows::kKernel && (devices.empty() || *devices.rbegin() != device))
      devices.insert(device);
    // Mostly the same as before.
    if (last == kNowhere || begin_ns < stretches[last].window.begin || begin_ns >= stretches[last].window.end)
      last = frame.StretchAt(begin_ns);
    if (last != kNowhere) ++seen[last][what];
  });
  const auto& windows = frame.view().windows;
  const bool usable = frame.per_step() && devices.size() <= 1 && OneAfterTheOther(stretches) && !windows.empty() &&
                      windows.front().begin > kUnknownBegin;
  if (!usable) return as_a_whole();
  const BlockDivider blocks(frame, std::move(seen), all, rows, block_rows);
  if (blocks.all().size() <= 1) return as_a_whole();
  for (StretchBlock block : blocks.all()) {
    if (block.gpu) block.device = *devices.begin();
    examiner.events(RankEvents(context, index, rank, events.Read(block.held), &block));
  }
  examiner.memory(frame, devices.empty() ? std::uint16_t{0} : *devices.begin());
}

}  // namespace lockstep::analysis
