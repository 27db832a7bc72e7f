#pragma once
// Field numbers of Perfetto's public protocol buffers (protos/perfetto/trace/**.proto, v58 of August 2026): those that
// are written here. Numbers of released fields never change; who does not know one passes over it.

#include <cstdint>

namespace lockstep::exporters::perfetto {

enum class Trace : std::uint32_t { kPacket = 1 };

enum class Packet : std::uint32_t {
  kTimestamp = 8,
  kSequence = 10,  // trusted_packet_sequence_id
  kTrackEvent = 11,
  kInternedData = 12,
  kSequenceFlags = 13,
  kDefaults = 59,  // trace_packet_defaults
  kTrackDescriptor = 60,
  kFirstOnSequence = 87,
};
inline constexpr std::uint32_t kStateCleared = 1, kNeedsState = 2;  // SequenceFlags

enum class Defaults : std::uint32_t { kTrackEvent = 11 };
enum class EventDefaults : std::uint32_t { kTrack = 11 };

enum class TrackEvent : std::uint32_t {
  kAnnotation = 4,
  kType = 9,
  kNameIid = 10,
  kCounterValue = 30,
  kFlow = 47,
  kFlowEnd = 48,  // terminating_flow_ids
  kCorrelation = 52,
};
enum class EventType : std::uint32_t { kSliceBegin = 1, kSliceEnd = 2, kInstant = 3, kCounter = 4 };

enum class Annotation : std::uint32_t { kNameIid = 1, kUint = 3, kInt = 4, kString = 6, kStringIid = 17 };

enum class Interned : std::uint32_t { kEventNames = 2, kAnnotationNames = 3, kStringValues = 29 };
enum class InternedText : std::uint32_t { kIid = 1, kText = 2 };

enum class Track : std::uint32_t {
  kUuid = 1,
  kName = 2,
  kProcess = 3,
  kParent = 5,
  kCounter = 8,
  kChildOrdering = 11,
  kRank = 12,  // sibling_order_rank
  kDescription = 14,
  kProcessOrdering = 19,
};
inline constexpr std::uint32_t kOrderExplicit = 3;         // ChildTracksOrdering
inline constexpr std::uint32_t kProcessOrderExplicit = 1;  // ProcessOrdering; honoured on the root (uuid 0) only
enum class Process : std::uint32_t { kPid = 1, kName = 6 };
enum class CounterTrack : std::uint32_t { kUnit = 3, kUnitName = 6 };
inline constexpr std::uint32_t kUnitCount = 2, kUnitBytes = 3;

}  // namespace lockstep::exporters::perfetto
