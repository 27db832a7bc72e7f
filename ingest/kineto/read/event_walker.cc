#include "ingest/kineto/read/event_walker.h"

#include <cstring>

#include "ingest/kineto/read/category.h"
#include "ingest/kineto/read/decimal.h"
#include "ingest/kineto/read/element_scan.h"

namespace lockstep::kineto {
namespace {

// The limit of times, so that adding two of them or baseTimeNanoseconds cannot overflow: 146 years.
constexpr std::int64_t kMostNs = std::int64_t{1} << 62;

// `key` is the first byte of a key whose end was seen: enough can be read.
template <std::size_t kSize>
inline bool Is(const char* key, const char (&name)[kSize]) {
  return std::memcmp(key, name, kSize - 1) == 0 && key[kSize - 1] == '"';
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
  // The bytes after the last token end no object, so this element was not cut.
  tokens = at_;
  return Walk::kWhole;
}

inline std::string_view EventWalker::String() const {
  const char* const begin = text_ + at_[0] + 1;
  const char* end = text_ + at_[1] - 1;
  // Only blanks are between them: anything else would be a token.
  while (*end != '"') --end;
  return {begin, static_cast<std::size_t>(end - begin)};
}

inline const char* EventWalker::ScalarEnd() const {
  const char* const begin = text_ + at_[0];
  const char* end = begin;
  while (IsScalarByte(*end)) ++end;
  return end != begin && EndsScalar(end) ? end : nullptr;
}

inline const char* EventWalker::TakeKey() {
  const char* const key = text_ + at_[0];
  if (*key != '"') return nullptr;
  ++at_;
  if (text_[at_[0]] != ':') return nullptr;
  ++at_;
  return key + 1;
}

inline bool EventWalker::TakeValue(Value* value, std::size_t around) {
  const char c = text_[at_[0]];
  if (c == '"') {
    if (value != nullptr) {
      const std::string_view raw = String();
      *value = {.data = raw.data(), .size = static_cast<std::uint32_t>(raw.size()), .kind = Kind::kString};
    }
  } else if (c == '{' || c == '[') {
    if (value != nullptr) value->kind = Kind::kContainer;
    return SkipContainer(around);
  } else if (IsMissing(c)) {
    return true;
  } else {
    const char* const end = ScalarEnd();
    if (end == nullptr) return false;
    const char* const begin = text_ + at_[0];
    if (value != nullptr)
      *value = {.data = begin, .size = static_cast<std::uint32_t>(end - begin), .kind = Kind::kScalar};
  }
  ++at_;
  return true;
}

// Whole numbers, which most ids are, without examining their digits a second time.
inline bool EventWalker::TakeId(Value& value, std::size_t around) {
  constexpr int kMostDigits = 18;
  const char* const begin = text_ + at_[0];
  std::uint64_t number = 0;
  const char* const end = Digits(begin, begin + kMostDigits, number);
  if (end == begin || !EndsScalar(end)) return TakeValue(&value, around);
  value.number = static_cast<std::int64_t>(number);
  value.kind = Kind::kNumber;
  ++at_;
  return true;
}

// Microseconds with at most three decimals.
inline bool EventWalker::TakeTime(Value& value) {
  constexpr int kMostDigits = 16;
  const char* const begin = text_ + at_[0];
  std::uint64_t number = 0;
  const char* end = Digits(begin, begin + kMostDigits, number);
  if (end == begin || number >= kMostNs / 1000) return TakeValue(&value, 1);
  int missing = 3;
  if (*end == '.')
    for (++end; missing > 0 && IsDigit(*end); --missing)
      number = number * 10 + static_cast<std::uint64_t>(*end++ - '0');
  if (!EndsScalar(end)) return TakeValue(&value, 1);
  for (; missing > 0; --missing) number *= 10;
  value.number = static_cast<std::int64_t>(number);
  value.kind = Kind::kNumber;
  ++at_;
  return true;
}

bool EventWalker::SkipContainer(std::size_t around) {
  bool is_object[kMaxDepth];  // Of the first `depth`; clearing the rest would cost more than most values.
  std::size_t depth = 0;
  for (;;) {
    const char c = text_[at_[0]];
    if (c == '{' || c == '[') {
      if (around + depth == kMaxDepth) return false;
      const bool object = c == '{';
      is_object[depth++] = object;
      ++at_;
      if (text_[at_[0]] != (object ? '}' : ']')) {
        if (object && TakeKey() == nullptr) return false;
        continue;
      }
    } else if (c == '"') {
      ++at_;
    } else if (!(is_object[depth - 1] && IsMissing(c))) {
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
      if (object && TakeKey() == nullptr) return false;
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
    const char* const key = TakeKey();
    if (key == nullptr) return false;
    bool taken = false, known = true;
    switch (*key) {
      case 'p':
        if (Is(key, "ph"))
          taken = TakeValue(&fields_[kPhase], 1);
        else if (Is(key, "pid"))
          taken = TakeId(fields_[kPid], 1);
        else
          known = false;
        break;
      case 'c':
        if ((known = Is(key, "cat"))) taken = TakeValue(&fields_[kCategory], 1);
        break;
      case 'n':
        if ((known = Is(key, "name"))) taken = TakeValue(&fields_[kName], 1);
        break;
      case 't':
        if (Is(key, "ts"))
          taken = TakeTime(fields_[kBegin]);
        else if (Is(key, "tid"))
          taken = TakeId(fields_[kTid], 1);
        else
          known = false;
        break;
      case 'd':
        if ((known = Is(key, "dur"))) taken = TakeTime(fields_[kDuration]);
        break;
      case 'i':
        if ((known = Is(key, "id"))) taken = TakeId(fields_[kId], 1);
        break;
      case 'a':
        if ((known = Is(key, "args"))) taken = TakeArguments();
        break;
      default:
        known = false;
    }
    if (!known) taken = TakeValue(nullptr, 1);
    if (!taken) return false;
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
      const char* const key = TakeKey();
      if (key == nullptr) return false;
      int field = kArguments;
      switch (*key) {
        case 'b':
          if (Is(key, "bytes")) field = kBytes;
          break;
        case 'B':
          if (Is(key, "Bytes")) field = kBytes;
          break;
        case 'd':
          if (Is(key, "device")) field = kDevice;
          break;
        case 'D':
          if (Is(key, "Device Id")) field = kDevice;
          break;
        case 's':
          if (Is(key, "stream")) field = kStream;
          break;
        case 'c':
          if (Is(key, "correlation"))
            field = kCorrelation;
          else if (Is(key, "context"))
            field = kContext;
          break;
        case 'e':
          if (Is(key, "external id")) field = kExternalId;
          break;
        case 'E':
          if (Is(key, "External id")) field = kExternalId;
          break;
        case 'S':
          if (Is(key, "Sequence number"))
            field = kSequence;
          else if (Is(key, "Stream Id"))  // Of Ascend's devices (torch_npu), whose events have no category.
            field = kStream;
          break;
        default:
          break;
      }
      if (!(field != kArguments ? TakeId(arguments_[field], 2) : TakeValue(nullptr, 2))) return false;
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

inline std::optional<std::int64_t> EventWalker::Time(const Value& value) {
  if (value.kind == Kind::kNumber) return value.number;
  if (!value.plain()) return std::nullopt;
  const auto ns = ScaledDecimal(value.raw(), 3);
  if (!ns || *ns > kMostNs || *ns < -kMostNs) return std::nullopt;
  return ns;
}

inline std::int64_t EventWalker::Id(const Value& value) {
  if (value.kind == Kind::kNumber) return value.number;
  return value.plain() ? ParseId(value.raw()) : kAbsent;
}

// A process, thread or stream: a number, or a text that is not a number.
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
    event.category_text = fields_[kCategory].raw();
    event.category = CategoryOf(event.category_text);
    if (event.category == Category::kOther) {  // Known names contain no escapes.
      const auto text = Unescape(event.category_text, *arena_);
      if (!text) return Verdict::kUnreadable;
      event.category_text = *text;
      event.category = CategoryOf(*text);
    }
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
