#include "trace/decode/open_call.h"

#include <charconv>

#include "core/fact.h"
#include "trace/file/strings.h"

namespace lockstep::trace {
namespace {

// Calls `field(key, member)` for each.
template <typename Call, typename F>
void ForEachField(Call& call, F&& field) {
  field("op", call.op);
  field("requests", call.requests);
  field("begin_ns", call.begin_ns);
  field("posted_ns", call.posted_ns);
  field("comm", call.comm);
  field("seq", call.seq);
  field("bytes", call.bytes);
  field("count", call.count);
  field("dtype", call.dtype);
  field("peer", call.peer);
  field("tag", call.tag);
  field("caller", call.caller);
}

constexpr std::string_view kAwaits[] = {"nothing", "collective", "send", "receive", "creation"};

}  // namespace

std::string TextOf(const OpenCallFact& call) {
  const OpenCallFact unknown;
  std::string text = "awaits=" + std::string(kAwaits[static_cast<std::size_t>(call.awaits)]);
  if (call.uneven) text += "\tuneven=1";
  ForEachField(call, [&](const char* key, const auto& value) {
    bool said = false;
    ForEachField(unknown, [&](const char* other, const auto& without) {
      said |= std::string_view(key) == other && static_cast<std::int64_t>(value) != static_cast<std::int64_t>(without);
    });
    if (said) text += "\t" + std::string(key) + "=" + std::to_string(value);
  });
  return text;
}

OpenCallFact ReadOpenCall(std::string_view text) {
  OpenCallFact call;
  ForEachField(call, [&](const char* key, auto& value) {
    const std::string_view digits = FactValue(text, key);
    auto read = value;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), read);
    if (error == std::errc() && end == digits.data() + digits.size()) value = read;
  });
  call.uneven = FactValue(text, "uneven") == "1";
  for (std::size_t i = 0; i < std::size(kAwaits); ++i)
    if (FactValue(text, "awaits") == kAwaits[i]) call.awaits = static_cast<Awaits>(i);
  return call;
}

std::vector<OpenCallFact> OpenCallsOf(const schema::RankTables& tables) {
  std::vector<OpenCallFact> calls;
  for (std::size_t i = 0; i < tables.meta.rows(); ++i) {
    const std::string_view key = TextOf(tables, tables.meta.key[i]);
    if (key == "fact.open_call" || key.starts_with("fact.open_call."))
      calls.push_back(ReadOpenCall(TextOf(tables, tables.meta.value[i])));
  }
  return calls;
}

}  // namespace lockstep::trace
