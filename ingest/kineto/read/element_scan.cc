#include "ingest/kineto/read/element_scan.h"

#include <simdjson.h>

#include <algorithm>
#include <bitset>
#include <cstring>

namespace lockstep::kineto {
namespace {

// The keys with which an event may begin in the Trace Event Format.
constexpr std::string_view kEventKeys[] = {"ph", "cat", "name", "pid", "tid", "ts", "dur", "id", "args", "bp", "s"};
constexpr std::string_view kTopKeys[] = {
    "traceName",        "displayTimeUnit", "baseTimeNanoseconds", "schemaVersion",
    "deviceProperties", "distributedInfo", "traceEvents",         "otherData",
    "metadata",         "stackFrames",     "systemTraceEvents",   "samples",
    "trace_id",         "record_shapes",   "with_stack",          "profile_memory"};
constexpr std::size_t kMostBlanks = kBytesBefore;

bool IsEventKey(std::string_view key) {
  return std::find(std::begin(kEventKeys), std::end(kEventKeys), key) != std::end(kEventKeys);
}

std::size_t SkipSomeBlanks(std::string_view text, std::size_t at) {
  const std::size_t end = std::min(text.size(), at + kMostBlanks);
  while (at < end && IsBlank(text[at])) ++at;
  return at;
}

// '{' at `at` is followed by a key of an event.
bool LooksLikeEvent(std::string_view text, std::size_t at) {
  const std::size_t i = SkipSomeBlanks(text, at + 1);
  if (i >= text.size() || text[i] != '"') return false;
  const std::string_view rest = text.substr(i + 1, 5);
  const std::size_t quote = rest.find('"');
  return quote != std::string_view::npos && IsEventKey(rest.substr(0, quote));
}

// The last byte before `at` that is not a blank; 0 if there is none near.
char Before(std::string_view text, std::size_t at) {
  for (std::size_t n = 0; at > 0 && n < kMostBlanks; ++n)
    if (!IsBlank(text[--at])) return text[at];
  return '\0';
}

class Scanner {
 public:
  Scanner(std::string_view text, std::size_t at, std::vector<std::uint32_t>& tokens)
      : text_(text.substr(0, std::min(text.size(), at + kMaxElementBytes))),
        whole_(text_.size() == text.size()),
        begin_(at),
        at_(at),
        tokens_(tokens) {}

  Scan Run() {
    enum class Want : std::uint8_t { kValue, kValueOrEnd, kKey, kKeyOrEnd, kAfter };
    std::size_t depth = 0;
    Want want = Want::kValue;
    for (;;) {
      SkipBlanks();
      if (at_ >= text_.size()) return RanOut();
      const char c = text_[at_];
      const bool closes = c == '}' || c == ']';
      if (closes) {
        if (depth == 0 || is_object_[depth - 1] != (c == '}')) return {};
        const bool allowed = want == Want::kAfter || want == Want::kValueOrEnd || want == Want::kKeyOrEnd ||
                             (want == Want::kValue && is_object_[depth - 1]);
        if (!allowed) return {};
        Emit();
        --depth;
        want = Want::kAfter;
      } else if (want == Want::kAfter || (want == Want::kValue && c == ',' && depth > 0 && is_object_[depth - 1])) {
        if (c != ',') return {};
        Emit();
        want = is_object_[depth - 1] ? Want::kKey : Want::kValue;
      } else if (want == Want::kKey || want == Want::kKeyOrEnd) {
        if (c != '"') return {};
        if (!String()) return RanOut();
        SkipBlanks();
        if (at_ >= text_.size()) return RanOut();
        if (text_[at_] != ':') return {};
        Emit();
        want = Want::kValue;
        continue;
      } else if (c == '{' || c == '[') {
        if (depth == kMaxDepth) return {};
        is_object_[depth++] = c == '{';
        Emit();
        want = c == '{' ? Want::kKeyOrEnd : Want::kValueOrEnd;
      } else if (c == '"') {
        if (!String()) return RanOut();
        want = Want::kAfter;
      } else {
        if (!IsScalarByte(c)) return {};
        tokens_.push_back(static_cast<std::uint32_t>(at_));
        while (at_ < text_.size() && IsScalarByte(text_[at_])) ++at_;
        if (at_ >= text_.size()) return RanOut();
        const char next = text_[at_];
        if (!IsBlank(next) && next != ',' && next != '}' && next != ']') return {};
        want = Want::kAfter;
      }
      if (depth == 0 && want == Want::kAfter) return Complete();
    }
  }

 private:
  void SkipBlanks() {
    while (at_ < text_.size() && IsBlank(text_[at_])) ++at_;
  }
  void Emit() { tokens_.push_back(static_cast<std::uint32_t>(at_++)); }
  // False if it does not end.
  bool String() {
    tokens_.push_back(static_cast<std::uint32_t>(at_++));
    for (; at_ < text_.size(); ++at_) {
      const auto c = static_cast<unsigned char>(text_[at_]);
      if (c == '"') {
        ++at_;
        return true;
      }
      if (c == '\\') ++at_;
      // The byte behind a backslash may be a control character too.
      if (c < 0x20 || (c == '\\' && at_ < text_.size() && static_cast<unsigned char>(text_[at_]) < 0x20))
        bad_text_ = true;
    }
    return false;
  }
  Scan RanOut() const { return {.end = whole_ ? ScanEnd::kIncomplete : ScanEnd::kBroken}; }
  Scan Complete() const {
    const bool bad = bad_text_ || !simdjson::validate_utf8(text_.data() + begin_, at_ - begin_);
    return {.end = ScanEnd::kComplete, .next = at_, .bad_text = bad};
  }

  std::string_view text_;
  bool whole_;  // No more than the largest element is hidden.
  std::size_t begin_, at_;
  std::vector<std::uint32_t>& tokens_;
  std::bitset<kMaxDepth> is_object_;
  bool bad_text_ = false;
};

}  // namespace

Scan ScanElement(std::string_view text, std::size_t at, std::vector<std::uint32_t>& tokens) {
  tokens.clear();
  return Scanner(text, at, tokens).Run();
}

std::size_t FindEventStart(std::string_view text, std::size_t from) {
  for (std::size_t at = text.find('{', from); at != std::string_view::npos; at = text.find('{', at + 1))
    if (LooksLikeEvent(text, at) && Before(text, at) != ':') return at;
  return std::string_view::npos;
}

std::size_t FindArrayEnd(std::string_view text, std::size_t from, bool file_ends) {
  for (std::size_t at = text.find(']', from); at != std::string_view::npos; at = text.find(']', at + 1)) {
    std::size_t i = SkipSomeBlanks(text, at + 1);
    if (i >= text.size()) continue;
    if (text[i] == ',') {
      i = SkipSomeBlanks(text, i + 1);
      if (i >= text.size() || text[i] != '"') continue;
      const std::string_view rest = text.substr(i + 1, 24);
      const std::size_t quote = rest.find('"');
      if (quote == std::string_view::npos) continue;
      const std::string_view key = rest.substr(0, quote);
      if (std::find(std::begin(kTopKeys), std::end(kTopKeys), key) != std::end(kTopKeys)) return at;
    } else if (file_ends && text[i] == '}' && SkipSomeBlanks(text, i + 1) >= text.size()) {
      return at;
    }
  }
  return std::string_view::npos;
}

std::size_t FindLastEventStart(std::string_view text, std::size_t least) {
  std::size_t end = text.size();
  while (end > least) {
    const void* found = ::memrchr(text.data() + least, '{', end - least);
    if (found == nullptr) break;
    end = static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
    if (LooksLikeEvent(text, end) && Before(text, end) == ',') return end;
  }
  return std::string_view::npos;
}

}  // namespace lockstep::kineto
