#include "merge/readers/kineto/event_walker.h"

#include <bit>
#include <bitset>
#include <cstring>

#include "merge/readers/kineto/category.h"
#include "merge/readers/kineto/decimal.h"
#include "merge/readers/kineto/element_scan.h"

namespace lockstep::kineto {
namespace {

// What a time may be, so that adding two of them or baseTimeNanoseconds stays sound:
// 146 years.
constexpr std::int64_t kMostNs = std::int64_t{1} << 62;

// The first `size` bytes at `at` as one number; at most 8, and 8 must be readable.
inline std::uint64_t Word(const char* at, std::size_t size) {
  std::uint64_t word = 0;
  std::memcpy(&word, at, 8);
  if constexpr (std::endian::native == std::endian::little)
    return size >= 8 ? word : word & ((std::uint64_t{1} << (8 * size)) - 1);
  else
    return size >= 8 ? word : word & ~(~std::uint64_t{0} >> (8 * size));
}

// The same of a text known when compiling.
constexpr std::uint64_t WordOf(std::string_view text) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < text.size() && i < 8; ++i) {
    const std::size_t byte = std::endian::native == std::endian::little ? i : 7 - i;
    word |= static_cast<std::uint64_t>(static_cast<unsigned char>(text[i])) << (8 * byte);
  }
  return word;
}

}  // namespace

Walk EventWalker::Take(const char* text, const std::uint32_t*& tokens, const std::uint32_t* end) {
  text_ = text;
  at_ = tokens;
  for (Value& value : fields_) value.kind = Kind::kNone;
  for (Value& value : arguments_) value.kind = Kind::kNone;
  arguments_text_ = {};
  empty_ = false;
  if (!TakeFields()) return at_ >= end ? Walk::kRanOut : Walk::kBroken;
  // What stands behind the last token ends no object, so this is no element that ran out.
  tokens = at_;
  return Walk::kWhole;
}

inline std::string_view EventWalker::String() const {
  const char* const begin = text_ + at_[0] + 1;
  const char* end = text_ + at_[1] - 1;
  // Only blanks lie between: anything else would be a token.
  while (*end != '"') --end;
  return {begin, static_cast<std::size_t>(end - begin)};
}

inline const char* EventWalker::ScalarEnd() const {
  const char* const begin = text_ + at_[0];
  const char* end = begin;
  while (IsScalarByte(*end)) ++end;
  return end != begin && (end == text_ + at_[1] || IsBlank(*end)) ? end : nullptr;
}

// At a key: moves to its value.
inline bool EventWalker::TakeKey(std::string_view& key) {
  if (text_[at_[0]] != '"' || text_[at_[1]] != ':') return SkipKey();
  key = String();
  at_ += 2;
  return true;
}

inline bool EventWalker::SkipKey() {
  if (text_[at_[0]] != '"') return false;
  ++at_;
  if (text_[at_[0]] != ':') return false;
  ++at_;
  return true;
}

inline bool EventWalker::TakeValue(Value* value, std::size_t around) {
  const char c = text_[at_[0]];
  if (c == '"') {
    if (value != nullptr) {
      const std::string_view raw = String();
      *value = {raw.data(), static_cast<std::uint32_t>(raw.size()), Kind::kString};
    }
  } else if (c == '{' || c == '[') {
    if (value != nullptr) value->kind = Kind::kContainer;
    return SkipContainer(around);
  } else {
    const char* const end = ScalarEnd();
    if (end == nullptr) return false;
    const char* const begin = text_ + at_[0];
    if (value != nullptr) *value = {begin, static_cast<std::uint32_t>(end - begin), Kind::kScalar};
  }
  ++at_;
  return true;
}

bool EventWalker::SkipContainer(std::size_t around) {
  std::bitset<kMaxDepth> is_object;
  std::size_t depth = 0;
  for (;;) {
    const char c = text_[at_[0]];
    if (c == '{' || c == '[') {
      if (around + depth == kMaxDepth) return false;
      const bool object = c == '{';
      is_object[depth++] = object;
      ++at_;
      if (text_[at_[0]] != (object ? '}' : ']')) {
        if (object && !SkipKey()) return false;
        continue;
      }
    } else if (c == '"') {
      ++at_;
    } else {
      if (ScalarEnd() == nullptr) return false;
      ++at_;
    }
    for (;;) {
      const bool object = is_object[depth - 1];
      const char after = text_[at_[0]];
      if (after == (object ? '}' : ']')) {
        ++at_;
        if (--depth == 0) return true;
        continue;
      }
      if (after != ',') return false;
      ++at_;
      if (object && !SkipKey()) return false;
      break;
    }
  }
}

bool EventWalker::TakeFields() {
  if (text_[at_[0]] != '{') return false;
  ++at_;
  if (text_[at_[0]] == '}') {
    empty_ = true;
    ++at_;
    return true;
  }
  for (;;) {
    std::string_view key;
    if (!TakeKey(key)) return false;
    int field = kFields;
    bool arguments = false;
    if (key.size() <= 4) {
      switch (Word(key.data(), key.size())) {
        case WordOf("ph"):
          field = kPhase;
          break;
        case WordOf("cat"):
          field = kCategory;
          break;
        case WordOf("name"):
          field = kName;
          break;
        case WordOf("pid"):
          field = kPid;
          break;
        case WordOf("tid"):
          field = kTid;
          break;
        case WordOf("ts"):
          field = kBegin;
          break;
        case WordOf("dur"):
          field = kDuration;
          break;
        case WordOf("id"):
          field = kId;
          break;
        case WordOf("args"):
          arguments = true;
          break;
        default:
          break;
      }
    }
    if (!(arguments ? TakeArguments() : TakeValue(field != kFields ? &fields_[field] : nullptr, 1))) return false;
    const char c = text_[at_[0]];
    if (c != ',' && c != '}') return false;
    ++at_;
    if (c == '}') return true;
  }
}

bool EventWalker::TakeArguments() {
  for (Value& value : arguments_) value.kind = Kind::kNone;
  arguments_text_ = {};
  if (text_[at_[0]] != '{') return TakeValue(nullptr, 1);
  const char* const begin = text_ + at_[0];
  ++at_;
  if (text_[at_[0]] != '}') {
    for (;;) {
      std::string_view key;
      if (!TakeKey(key)) return false;
      int field = kArguments;
      switch (Word(key.data(), key.size())) {
        case WordOf("bytes"):
        case WordOf("Bytes"):
          field = kBytes;
          break;
        case WordOf("device"):
          field = kDevice;
          break;
        case WordOf("Device Id"):
          if (key == "Device Id") field = kDevice;
          break;
        case WordOf("stream"):
          field = kStream;
          break;
        case WordOf("context"):
          field = kContext;
          break;
        case WordOf("correlation"):
          if (key == "correlation") field = kCorrelation;
          break;
        case WordOf("External id"):
        case WordOf("external id"):
          if (key.ends_with("xternal id") && key.size() == 11) field = kExternalId;
          break;
        case WordOf("Sequence number"):
          if (key == "Sequence number") field = kSequence;
          break;
        default:
          break;
      }
      if (!TakeValue(field != kArguments ? &arguments_[field] : nullptr, 2)) return false;
      const char c = text_[at_[0]];
      if (c == '}') break;
      if (c != ',') return false;
      ++at_;
    }
  }
  arguments_text_ = {begin, static_cast<std::size_t>(text_ + at_[0] + 1 - begin)};
  ++at_;
  return true;
}

std::optional<std::int64_t> EventWalker::Time(const Value& value) {
  if (!value.plain()) return std::nullopt;
  const auto ns = ScaledDecimal(value.raw(), 3);
  if (!ns || *ns > kMostNs || *ns < -kMostNs) return std::nullopt;
  return ns;
}

std::int64_t EventWalker::Id(const Value& value) { return value.plain() ? ParseId(value.raw()) : kAbsent; }

// A process, thread or stream: a number, or a text that is none.
bool EventWalker::Place(const Value& value, std::int64_t& number, std::string_view& text) {
  number = Id(value);
  if (number != kAbsent || value.kind != Kind::kString) return true;
  const auto plain = Unescape(value.raw(), *arena_);
  if (plain) text = *plain;
  return plain.has_value();
}

Verdict EventWalker::Judge(Event& event, bool& negative_duration) {
  negative_duration = false;
  event = {};
  if (empty_) return Verdict::kEmpty;
  if (fields_[kPhase].kind != Kind::kString || fields_[kPhase].size != 1) return Verdict::kUnreadable;
  event.phase = fields_[kPhase].data[0];
  if (fields_[kCategory].kind == Kind::kString) {
    const auto text = Unescape(fields_[kCategory].raw(), *arena_);
    if (!text) return Verdict::kUnreadable;
    event.category_text = *text;
    event.category = CategoryOf(*text);
  }
  switch (event.phase) {
    case 'M':
      event.category = Category::kMetadata;
      break;
    case 's':
    case 't':
    case 'f':
      event.category = Category::kFlow;
      break;
    case 'B':
    case 'E':
      return Verdict::kBeginEnd;
    default:
      break;
  }
  if (event.category == Category::kPythonFunction && !python_functions_) return Verdict::kPython;

  const bool named = event.phase == 'X' || event.phase == 'M' || event.phase == 'i' || event.phase == 'I';
  if (fields_[kName].kind == Kind::kString) {
    const auto text = Unescape(fields_[kName].raw(), *arena_);
    if (!text) return Verdict::kUnreadable;
    event.name = *text;
  } else if (named) {
    return Verdict::kUnreadable;
  }
  if (!Place(fields_[kPid], event.pid, event.pid_text) || !Place(fields_[kTid], event.tid, event.tid_text))
    return Verdict::kUnreadable;

  const auto begin = Time(fields_[kBegin]), duration = Time(fields_[kDuration]);
  if (begin) event.begin_ns = *begin;
  if (duration) event.duration_ns = *duration;
  if (event.category != Category::kMetadata) {
    if (fields_[kBegin].kind == Kind::kNone) return Verdict::kUnreadable;
    if (!begin) return Verdict::kTimeInvalid;
  }
  if (event.phase == 'X') {
    if (fields_[kDuration].kind == Kind::kNone) return Verdict::kUnreadable;
    if (!duration || *begin + *duration > kMostNs) return Verdict::kTimeInvalid;
  }
  if (duration && *duration < 0) {
    negative_duration = true;
    event.duration_ns = 0;
  }
  event.args = arguments_text_;
  event.correlation = event.category == Category::kFlow ? Id(fields_[kId]) : Id(arguments_[kCorrelation]);
  event.external_id = Id(arguments_[kExternalId]);
  event.device = Id(arguments_[kDevice]);
  event.context = Id(arguments_[kContext]);
  event.stream = Id(arguments_[kStream]);
  event.bytes = Id(arguments_[kBytes]);
  event.sequence_number = Id(arguments_[kSequence]);
  return Verdict::kEvent;
}

}  // namespace lockstep::kineto
