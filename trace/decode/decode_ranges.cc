// Ranges, marks and their domains.

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trace/decode/process_decoder.h"
#include "trace/decode/sort_rows.h"

namespace lockstep::trace {

using schema::kNone;

namespace {

using enum schema::RangeKind::Value;

// The columns that all records of ranges share. `extra` is used if the record has 2 slots.
schema::Ranges::Row RowOf(const RangeRecord& record, const RangeExtra& extra) {
  schema::Ranges::Row row{.domain = record.domain,
                          .source = static_cast<std::uint8_t>(record.head.flags & 15),
                          .category = static_cast<std::uint8_t>(record.head.flags >> 4),
                          .depth = record.depth,
                          .payload = record.payload,
                          .payload_kind = static_cast<std::uint8_t>(record.payload != 0 ? 1 : 0)};
  if (record.head.slots >= 2) {
    row.payload = extra.payload;
    row.payload_kind = extra.payload_kind;
    row.category_id = extra.category;
  }
  return row;
}

RangeExtra ExtraOf(const RangeRecord& record, std::span<const std::byte> bytes) {
  return record.head.slots >= 2 ? LoadRecord<RangeExtra>(bytes.subspan(kSlotBytes)) : RangeExtra{};
}

// Only these names turn an NVTX category into one of ours.
std::uint8_t WellKnownCategory(std::string_view name) {
  const auto equal = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; };
  for (const schema::EnumValue& known : schema::Category::kValues)
    if (known.code != schema::Category::kNone && std::ranges::equal(name, known.name, equal))
      return static_cast<std::uint8_t>(known.code);
  return schema::Category::kNone;
}

}  // namespace

void ProcessDecoder::OnRange(Thread& thread, std::span<const std::byte> bytes) {
  const auto record = LoadRecord<RangeRecord>(bytes);
  schema::Ranges::Row row = RowOf(record, ExtraOf(record, bytes));
  row.begin_ns = thread.clock.Ns(record.begin_ticks);
  const std::int64_t end = std::max(row.begin_ns, thread.clock.Ns(record.end_ticks));
  thread.life.Cover(row.begin_ns, end);
  row.duration_ns = DurationNs(row.begin_ns, end);
  row.thread = thread.row;
  row.name = TextOfThread(thread, record.name);
  row.kind = record.head.kind == RecordKind::kRange  ? kPushPop
             : record.head.kind == RecordKind::kMark ? kMark
                                                     : kStartEnd;
  tables_.ranges.Append(row);
}

void ProcessDecoder::OnRangeStart(Thread& thread, std::span<const std::byte> bytes) {
  const auto record = LoadRecord<RangeRecord>(bytes);
  schema::Ranges::Row row = RowOf(record, ExtraOf(record, bytes));
  row.begin_ns = thread.clock.Ns(record.begin_ticks);
  thread.life.Cover(row.begin_ns, row.begin_ns);
  row.thread = thread.row;
  row.name = TextOfThread(thread, record.name);
  row.kind = kStartEnd;
  row.open = 1;
  started_ranges_[record.end_ticks] = tables_.ranges.rows();
  tables_.ranges.Append(row);
}

void ProcessDecoder::OnRangeEnd(Thread& thread, const RangeRecord& record) {
  const std::int64_t ns = thread.clock.Ns(record.end_ticks);
  thread.life.Cover(ns, ns);
  range_endings_[record.begin_ticks] = {ns, (record.depth & kRangeForgotten) != 0};
}

void ProcessDecoder::PairRanges(std::int64_t last_ns) {
  if (started_ranges_.empty()) return;
  schema::Ranges& ranges = tables_.ranges;
  std::set<std::size_t> forgotten;
  for (const auto& [id, row] : started_ranges_) {
    const auto ending = range_endings_.find(id);
    if (ending != range_endings_.end() && ending->second.forgotten) {
      forgotten.insert(row);
      continue;
    }
    const std::int64_t begin = ranges.begin_ns[row];
    ranges.open[row] = ending == range_endings_.end();
    open_ranges_ += ending == range_endings_.end();
    ranges.duration_ns[row] =
        DurationNs(begin, std::max(begin, ending == range_endings_.end() ? last_ns : ending->second.ns));
  }
  if (forgotten.empty()) return;
  std::vector<std::uint32_t> kept;
  for (std::uint32_t row = 0; row < ranges.rows(); ++row)
    if (!forgotten.contains(row)) kept.push_back(row);
  TakeRows(ranges, kept);
}

void ProcessDecoder::DecodeOpenRanges(Thread& thread, std::int64_t last_ns) {
  for (const RingState::OpenRange& open : thread.input.left_open.ranges) {
    schema::Ranges::Row row = RowOf(open.record, open.extra);
    row.begin_ns = thread.clock.Ns(open.record.begin_ticks);
    row.duration_ns = DurationNs(row.begin_ns, last_ns);
    row.thread = thread.row;
    row.name = TextOfThread(thread, open.record.name);
    row.open = 1;
    ++open_ranges_;
    tables_.ranges.Append(row);
  }
}

void ProcessDecoder::OnDomain(Thread& thread, std::span<const std::byte> bytes) {
  const auto record = LoadRecord<StringRecord>(bytes);
  if ((record.head.flags & 1) != 0) ++thread.cut_texts;
  domains_[record.id] = Intern(RecordText(bytes));
}

void ProcessDecoder::OnCategory(Thread& thread, std::span<const std::byte> bytes) {
  const auto record = LoadRecord<StringRecord>(bytes);
  if ((record.head.flags & 1) != 0) ++thread.cut_texts;
  if (record.id != 0) categories_[{record.reserved[0], record.id}] = Intern(RecordText(bytes));
}

std::uint32_t ProcessDecoder::NameOf(const Thread& thread) const {
  const auto given = thread_names_.find(static_cast<std::uint32_t>(thread.input.tid));
  return given != thread_names_.end() ? given->second : thread.name;
}

// Threads write the names of domains into their own rings, so a range may be read before its domain's name.
void ProcessDecoder::NameDomains() {
  const auto name = [&](std::uint32_t domain) {
    if (domain == 0) return kNone;
    const auto [at, lost] = domains_.try_emplace(domain, kNone);
    if (lost) at->second = Intern("domain " + std::to_string(domain));
    return at->second;
  };
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint8_t> ours;
  for (const auto& [key, text] : categories_) {
    tables_.range_categories.Append({.domain = name(key.first), .category_id = key.second, .name = text});
    if (const std::uint8_t category = WellKnownCategory(TextOf(tables_, text)); category != schema::Category::kNone)
      ours[key] = category;
  }
  schema::Ranges& ranges = tables_.ranges;
  for (std::size_t i = 0; i < ranges.rows(); ++i) {
    if (ranges.category_id[i] != 0 && ranges.category[i] == schema::Category::kNone)
      if (const auto known = ours.find({ranges.domain[i], ranges.category_id[i]}); known != ours.end())
        ranges.category[i] = known->second;
    ranges.domain[i] = name(ranges.domain[i]);
  }
  NameShapes();
}

// An operator's shapes came with its name. Few names with many rows.
void ProcessDecoder::NameShapes() {
  std::map<std::uint32_t, std::pair<std::uint32_t, std::uint32_t>> parts;
  schema::Ranges& ranges = tables_.ranges;
  for (std::size_t i = 0; i < ranges.rows(); ++i) {
    if (ranges.source[i] != schema::RangeSource::kCpuOp || ranges.name[i] == kNone) continue;
    const auto [at, fresh] = parts.try_emplace(ranges.name[i], ranges.name[i], kNone);
    if (fresh) {
      const std::string text(TextOf(tables_, ranges.name[i]));
      if (const std::size_t end = text.find(kShapesFollow); end != std::string::npos) {
        at->second.first = Intern(text.substr(0, end));
        at->second.second = Intern(text.substr(end + 1));
      }
    }
    if (at->second.second == kNone) continue;
    ranges.name[i] = at->second.first;
    ranges.domain[i] = at->second.second;
  }
}

}  // namespace lockstep::trace
