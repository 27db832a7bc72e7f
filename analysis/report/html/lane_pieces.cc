#include "analysis/report/html/lane_pieces.h"

#include <algorithm>
#include <array>

namespace lockstep::report {
namespace {

enum Bit : unsigned {
  kBusy = 1,
  kCertain = 2,
  kPossible = 4,
  kTransferring = 8,
  kWaiting = 16,
  kInside = 32,
  kCopying = 64,
  kLoading = 128,
  kBlockedBit = 256,
  kAwaited = 512,
  kMessage = 1024
};

// While the rank works.
PieceState OwnStateOf(unsigned bits) {
  if ((bits & (kCertain | kPossible)) == 0) return PieceState::kCompute;
  if ((bits & (kCertain | kInside)) == 0) return PieceState::kPosted;
  if (bits & kTransferring) return PieceState::kHiddenTransfer;
  return bits & kWaiting ? PieceState::kHiddenWait : PieceState::kHiddenUnsplit;
}

PieceState StateOf(unsigned bits, bool gpu) {
  if (gpu == ((bits & kBusy) != 0)) {
    constexpr int kFromCompute = static_cast<int>(PieceState::kBlocked) - static_cast<int>(PieceState::kCompute);
    const PieceState own = OwnStateOf(bits);
    return gpu || (bits & kBlockedBit) == 0 ? own : static_cast<PieceState>(static_cast<int>(own) + kFromCompute);
  }
  if (bits & (kCertain | kPossible | kMessage)) {
    if (bits & kTransferring) return PieceState::kTransfer;
    return bits & (kWaiting | kMessage) ? PieceState::kWait : PieceState::kUnsplit;
  }
  if (!gpu && (bits & kAwaited)) return PieceState::kBlocked;  // What it waits for is not in flight.
  if (bits & kCopying) return PieceState::kCopy;
  return bits & kLoading ? PieceState::kInput : PieceState::kIdle;
}

struct Edge {
  std::int64_t at;
  unsigned bit;
  int change;
};

}  // namespace

std::vector<Piece> CutIntoPieces(const RankLane& lane, Interval window) {
  std::vector<Edge> edges;
  const auto add = [&](std::int64_t begin, std::int64_t end, unsigned bit) {
    begin = std::max(begin, window.begin);
    end = std::min(end, window.end);
    if (begin >= end) return;
    edges.push_back({begin, bit, 1});
    edges.push_back({end, bit, -1});
  };
  const auto add_set = [&](const IntervalSet& set, unsigned bit) {
    auto at = std::upper_bound(set.begin(), set.end(), window.begin,
                               [](std::int64_t t, const Interval& member) { return t < member.end; });
    for (; at != set.end() && at->begin < window.end; ++at) add(at->begin, at->end, bit);
  };
  add_set(lane.comm.busy, kBusy);
  add_set(lane.comm.inside_mpi, kInside);
  add_set(lane.copy, kCopying);
  add_set(lane.input, kLoading);
  add_set(lane.blocked, kBlockedBit);
  add_set(lane.awaited, kAwaited);
  for (const tables::CommOperation& op : lane.comm.ops) {
    if (op.end_ns <= window.begin || op.begin_ns >= window.end) continue;
    add(op.begin_ns, op.end_ns, op.certain ? kCertain : kPossible);
    add(op.begin_ns, op.wait_end_ns, kWaiting);
    add(op.transfer_begin_ns, op.end_ns, kTransferring);
  }
  for (const tables::MessageWaiting& wait : lane.comm.message_waits) add(wait.at.begin, wait.at.end, kMessage);
  std::stable_sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) { return a.at < b.at; });
  std::array<int, 11> depth{};
  unsigned bits = 0;
  std::vector<Piece> pieces;
  const auto close = [&](std::int64_t end) {
    const std::int64_t begin = pieces.empty() ? window.begin : pieces.back().end_ns;
    if (end <= begin) return;
    const PieceState state = StateOf(bits, lane.comm.gpu);
    if (!pieces.empty() && pieces.back().state == state)
      pieces.back().end_ns = end;
    else
      pieces.push_back({end, state});
  };
  for (const Edge& edge : edges) {
    close(edge.at);
    int bit = 0;
    while (1u << bit != edge.bit) ++bit;
    depth[static_cast<std::size_t>(bit)] += edge.change;
    bits = depth[static_cast<std::size_t>(bit)] > 0 ? bits | edge.bit : bits & ~edge.bit;
  }
  close(window.end);
  return pieces;
}

std::vector<Piece> Coarsened(const std::vector<Piece>& pieces, Interval window, std::size_t most) {
  if (pieces.size() <= most) return pieces;
  std::vector<Piece> coarse;
  std::size_t at = 0;
  std::int64_t begin = window.begin;
  const auto length = static_cast<double>(window.end - window.begin);
  for (std::size_t part = 0; part < most; ++part) {
    const std::int64_t end = part + 1 == most
                                 ? window.end
                                 : window.begin + static_cast<std::int64_t>(length * static_cast<double>(part + 1) /
                                                                            static_cast<double>(most));
    std::array<std::int64_t, kPieceStates> filled{};
    std::int64_t from = begin;
    while (from < end && at < pieces.size()) {
      const std::int64_t until = std::min(end, pieces[at].end_ns);
      filled[static_cast<std::size_t>(pieces[at].state)] += until - from;
      from = until;
      if (pieces[at].end_ns <= end) ++at;
    }
    begin = end;
    const auto state = static_cast<PieceState>(std::max_element(filled.begin(), filled.end()) - filled.begin());
    if (!coarse.empty() && coarse.back().state == state)
      coarse.back().end_ns = end;
    else
      coarse.push_back({end, state});
  }
  return coarse;
}

}  // namespace lockstep::report
