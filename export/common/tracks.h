#pragma once
// Assigns slices to the tracks of one rank. In viewers a track is a stack: slices that overlap without nesting would
// close each other, and wrong durations would be shown. So a track has as many lanes as it needs, and the slices of
// each lane nest.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "export/common/describe.h"

namespace lockstep::exporters {

// `Extra` is the state that a format keeps per lane.
template <typename Extra>
class Tracks {
 public:
  struct Lane {
    TrackKey track;
    std::size_t index;                  // Within its track, from 0.
    std::size_t number;                 // Within the rank, from 0, in order of making.
    std::vector<std::int64_t> open_ns;  // Ends of the slices that are open, outermost first.
    Extra extra;
  };

  // The lane for a slice that begins no earlier than any before it on its track. `close(lane, end_ns)` is called for
  // each slice that has ended by then, innermost first. The parts of a collective of the cluster stay within it, and
  // other collectives get other lanes. Null: more than kMostLanes are needed.
  template <typename Close>
  Lane* Open(EventKind kind, const TrackKey& key, std::int64_t begin_ns, std::int64_t end_ns, Close&& close) {
    if (kind == EventKind::kWait || kind == EventKind::kTransfer) {
      if (instance_ == nullptr) return nullptr;
      CloseUntil(*instance_, begin_ns, close);
      if (instance_->open_ns.empty() || instance_->open_ns.back() < end_ns) return nullptr;
      instance_->open_ns.push_back(end_ns);
      return instance_;
    }
    std::vector<std::unique_ptr<Lane>>& lanes = tracks_[key];
    for (std::size_t i = 0;; ++i) {
      if (i == lanes.size()) {
        if (kind == EventKind::kInstance) instance_ = nullptr;
        if (i == kMostLanes) return nullptr;
        lanes.push_back(std::make_unique<Lane>(Lane{key, i, lanes_++, {}, {}}));
      }
      Lane& lane = *lanes[i];
      CloseUntil(lane, begin_ns, close);
      if (!lane.open_ns.empty() && (lane.open_ns.back() < end_ns || kind == EventKind::kInstance)) continue;
      lane.open_ns.push_back(end_ns);
      if (kind == EventKind::kInstance) instance_ = &lane;
      return &lane;
    }
  }
  // The lane for counters.
  Lane& First(const TrackKey& key) {
    std::vector<std::unique_ptr<Lane>>& lanes = tracks_[key];
    if (lanes.empty()) lanes.push_back(std::make_unique<Lane>(Lane{key, 0, lanes_++, {}, {}}));
    return *lanes[0];
  }
  // The lane for an instant: slices that have ended by then are closed.
  template <typename Close>
  Lane& Mark(const TrackKey& key, std::int64_t ns, Close&& close) {
    Lane& lane = First(key);
    CloseUntil(lane, ns, close);
    return lane;
  }
  template <typename Close>
  void CloseAll(Close&& close) {
    for (auto& [key, lanes] : tracks_)
      for (auto& lane : lanes)
        for (; !lane->open_ns.empty(); lane->open_ns.pop_back()) close(*lane, lane->open_ns.back());
  }
  template <typename F>
  void ForEach(F&& f) {
    for (auto& [key, lanes] : tracks_)
      for (auto& lane : lanes) f(*lane);
  }

 private:
  template <typename Close>
  static void CloseUntil(Lane& lane, std::int64_t ns, Close&& close) {
    for (; !lane.open_ns.empty() && lane.open_ns.back() <= ns; lane.open_ns.pop_back())
      close(lane, lane.open_ns.back());
  }

  static constexpr std::size_t kMostLanes = 256;
  std::map<TrackKey, std::vector<std::unique_ptr<Lane>>> tracks_;
  Lane* instance_ = nullptr;  // Of the last collective of the cluster.
  std::size_t lanes_ = 0;
};

}  // namespace lockstep::exporters
