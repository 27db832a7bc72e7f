// Ranges, marks and their domains.

#include <algorithm>
#include <string>

#include "trace/process_decoder.h"

namespace lockstep {

using schema::kNone;

void ProcessDecoder::OnRange(Thread& thread, std::span<const std::byte> bytes) {
  const auto record = LoadRecord<RangeRecord>(bytes);
  const std::int64_t begin = thread.clock.Ns(record.begin_ticks);
  const std::int64_t end = std::max(begin, thread.clock.Ns(record.end_ticks));
  Touch(thread, begin, end);
  const std::uint8_t kind = record.head.kind == RecordKind::kRange ? 0 : record.head.kind == RecordKind::kMark ? 2 : 1;
  std::int64_t payload = record.payload;
  std::uint8_t payload_kind = payload != 0 ? 1 : 0;
  if (record.head.slots >= 2) {
    const auto extra = LoadRecord<RangeExtra>(bytes.subspan(kSlotBytes));
    payload = extra.payload;
    payload_kind = extra.payload_kind;
  }
  tables_.ranges.Append({.begin_ns = begin,
                         .duration_ns = DurationNs(begin, end),
                         .thread = thread.row,
                         .name = TextOfThread(thread, record.name),
                         .domain = record.domain,
                         .source = static_cast<std::uint8_t>(record.head.flags & 15),
                         .kind = kind,
                         .category = static_cast<std::uint8_t>(record.head.flags >> 4),
                         .depth = record.depth,
                         .open = 0,
                         .payload = payload,
                         .payload_kind = payload_kind});
}

void ProcessDecoder::OnDomain(Thread& thread, std::span<const std::byte> bytes) {
  const auto record = LoadRecord<StringRecord>(bytes);
  if ((record.head.flags & 1) != 0) ++thread.cut_texts;
  domains_[record.id] = Intern(RecordText(bytes));
}

// Threads name domains in their own rings, so a range may be read before its domain's name.
void ProcessDecoder::NameDomains() {
  for (std::uint32_t& domain : tables_.ranges.domain) {
    if (domain == 0) {
      domain = kNone;
      continue;
    }
    const auto [at, lost] = domains_.try_emplace(domain, kNone);
    if (lost) at->second = Intern("domain " + std::to_string(domain));
    domain = at->second;
  }
}

}  // namespace lockstep
