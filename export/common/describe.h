#pragma once
// What a timeline viewer shows of an event: its name, its track within the rank, and its details. Unknown values are
// left out and never shown as 0.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "export/common/event.h"
#include "export/common/writer.h"

namespace lockstep::exporters {

// Tracks of a rank are shown in this order.
enum class Section : std::uint8_t {
  kJobSteps,
  kFindings,
  kInstances,
  kSteps,
  kHostSteps,
  kPhases,
  kCollectives,
  kMessages,
  kMpi,
  kRequests,
  kRanges,
  kStartEndRanges,
  kApi,
  kBlocked,
  kStream,
  kSync,
  kOverheads,
  kCounters,
};

struct TrackKey {
  Section section = Section::kSteps;
  std::uint64_t of = 0;  // Thread, communicator, device and stream, counter.
  friend auto operator<=>(const TrackKey&, const TrackKey&) = default;
};

struct Argument {
  std::string_view key;
  std::variant<std::int64_t, std::uint64_t, std::string_view> value;
};

// The value of a counter track at a moment.
struct CounterValue {
  TrackKey track;
  std::string_view unit;
  std::int64_t value;
};

// Of one rank or the cluster; views are valid until the next call. Thread: one at a time.
class Describer {
 public:
  Describer(const ExportRun& run, const ExportRank& rank) : run_(run), rank_(rank) {}

  TrackKey TrackOf(const Event& event) const;
  std::string TrackName(const TrackKey& track) const;
  std::string_view NameOf(const Event& event);
  // A number that is equal for events of equal names on one track: cheaper to compare than the name.
  std::uint64_t NameKey(const Event& event) const;
  const std::vector<Argument>& ArgumentsOf(const Event& event);
  // Of counters, memory events and sensor readings.
  const std::vector<CounterValue>& ValuesOf(const Event& event);

 private:
  std::string ThreadName(std::uint64_t thread) const;

  const ExportRun& run_;
  const ExportRank& rank_;
  std::string name_, comm_name_;
  std::vector<Argument> arguments_;
  std::vector<CounterValue> values_;
};

// The name of a row of comms that the application gave it, else its identity.
std::string CommTitle(const schema::RankTables& head, std::uint32_t comm);

}  // namespace lockstep::exporters
