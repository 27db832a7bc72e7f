#include "merge/readers/kineto/event_walker.h"

#include <bitset>

#include "merge/readers/kineto/category.h"
#include "merge/readers/kineto/decimal.h"
#include "merge/readers/kineto/element_scan.h"

namespace lockstep::kineto {
namespace {

// What a time may be, so that adding two of them or baseTimeNanoseconds stays sound:
// 146 years.
constexpr std::int64_t kMostNs = std::int64_t{1} << 62;

}  // namespace

Walk EventWalker::Take(const char* text, const std::uint32_t*& tokens, const std::uint32_t* end) {
  text_ = text;
  at_ = tokens;
  phase_ = category_ = name_ = pid_ = tid_ = begin_ = duration_ = id_ = {};
  arguments_ = {};
  empty_ = false;
  if (!TakeFields()) return at_ >= end ? Walk::kRanOut : Walk::kBroken;
  // What stands behind the last token ends no object, so this is no element that ran out.
  tokens = at_;
  return Walk::kWhole;
}

std::string_view EventWalker::String() const {
  const char* const begin = text_ + at_[0] + 1;
  const char* end = text_ + at_[1] - 1;
  // Blanks only lie between: anything else would be a token.
  while (*end != '"') --end;
  return {begin, static_cast<std::size_t>(end - begin)};
}

bool EventWalker::Scalar(std::string_view& raw) const {
  const char* const begin = text_ + at_[0];
  const char* end = begin;
  while (IsScalarByte(*end)) ++end;
  raw = {begin, static_cast<std::size_t>(end - begin)};
  return end != begin && (end == text_ + at_[1] || IsBlank(*end));
}

// At a key: moves to its value.
bool EventWalker::TakeKey(std::string_view& key) {
  if (text_[at_[0]] != '"') return false;
  if (text_[at_[1]] != ':') {
    ++at_;
    return false;
  }
  key = String();
  at_ += 2;
  return true;
}

bool EventWalker::TakeValue(Value& value, std::size_t around) {
  switch (text_[at_[0]]) {
    case '"':
      value = {Kind::kString, String()};
      ++at_;
      return true;
    case '{':
    case '[':
      value.kind = Kind::kContainer;
      return SkipContainer(around);
    default: {
      std::string_view raw;
      if (!Scalar(raw)) return false;
      value = {Kind::kScalar, raw};
      ++at_;
      return true;
    }
  }
}

bool EventWalker::SkipValue(std::size_t around) {
  switch (text_[at_[0]]) {
    case '"':
      ++at_;
      return true;
    case '{':
    case '[':
      return SkipContainer(around);
    default: {
      std::string_view raw;
      if (!Scalar(raw)) return false;
      ++at_;
      return true;
    }
  }
}

bool EventWalker::SkipContainer(std::size_t around) {
  std::bitset<kMaxDepth> is_object;
  std::size_t depth = 0;
  std::string_view ignored;
  for (;;) {
    const char c = text_[at_[0]];
    if (c == '{' || c == '[') {
      if (around + depth == kMaxDepth) return false;
      const bool object = c == '{';
      is_object[depth++] = object;
      ++at_;
      if (text_[at_[0]] != (object ? '}' : ']')) {
        if (object && !TakeKey(ignored)) return false;
        continue;
      }
    } else if (c == '"') {
      ++at_;
    } else {
      if (!Scalar(ignored)) return false;
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
      if (object && !TakeKey(ignored)) return false;
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
    Value* field = nullptr;
    switch (key.size()) {
      case 2:
        field = key == "ph" ? &phase_ : key == "ts" ? &begin_ : key == "id" ? &id_ : nullptr;
        break;
      case 3:
        field = key == "cat"   ? &category_
                : key == "pid" ? &pid_
                : key == "tid" ? &tid_
                : key == "dur" ? &duration_
                               : nullptr;
        break;
      case 4:
        if (key == "name") field = &name_;
        if (key == "args") {
          if (!TakeArguments()) return false;
          goto after;
        }
        break;
      default:
        break;
    }
    if (!(field != nullptr ? TakeValue(*field, 1) : SkipValue(1))) return false;
  after:
    const char c = text_[at_[0]];
    if (c != ',' && c != '}') return false;
    ++at_;
    if (c == '}') return true;
  }
}

bool EventWalker::TakeArguments() {
  arguments_ = {};
  if (text_[at_[0]] != '{') return SkipValue(1);
  const char* const begin = text_ + at_[0];
  ++at_;
  if (text_[at_[0]] != '}') {
    for (;;) {
      std::string_view key;
      if (!TakeKey(key)) return false;
      Value* field = nullptr;
      switch (key.size()) {
        case 5:
          if (key == "bytes" || key == "Bytes") field = &arguments_.bytes;
          break;
        case 6:
          field = key == "device" ? &arguments_.device : key == "stream" ? &arguments_.stream : nullptr;
          break;
        case 7:
          if (key == "context") field = &arguments_.context;
          break;
        case 9:
          if (key == "Device Id") field = &arguments_.device;
          break;
        case 11:
          if (key == "correlation")
            field = &arguments_.correlation;
          else if (key == "External id" || key == "external id")
            field = &arguments_.external_id;
          break;
        case 15:
          if (key == "Sequence number") field = &arguments_.sequence_number;
          break;
        default:
          break;
      }
      if (!(field != nullptr ? TakeValue(*field, 2) : SkipValue(2))) return false;
      const char c = text_[at_[0]];
      if (c == '}') break;
      if (c != ',') return false;
      ++at_;
    }
  }
  arguments_.text = {begin, static_cast<std::size_t>(text_ + at_[0] + 1 - begin)};
  ++at_;
  return true;
}

std::optional<std::int64_t> EventWalker::Time(const Value& value) {
  if (value.kind != Kind::kString && value.kind != Kind::kScalar) return std::nullopt;
  const auto ns = ScaledDecimal(value.raw, 3);
  if (!ns || *ns > kMostNs || *ns < -kMostNs) return std::nullopt;
  return ns;
}

std::int64_t EventWalker::Id(const Value& value) {
  return value.kind == Kind::kString || value.kind == Kind::kScalar ? ParseId(value.raw) : kAbsent;
}

// A process, thread or stream: a number, or a text that is none.
bool EventWalker::Place(const Value& value, std::int64_t& number, std::string_view& text) {
  number = Id(value);
  if (number != kAbsent || value.kind != Kind::kString) return true;
  const auto plain = Unescape(value.raw, *arena_);
  if (plain) text = *plain;
  return plain.has_value();
}

Verdict EventWalker::Judge(Event& event, bool& negative_duration) {
  negative_duration = false;
  event = {};
  if (empty_) return Verdict::kEmpty;
  if (phase_.kind != Kind::kString || phase_.raw.size() != 1) return Verdict::kUnreadable;
  event.phase = phase_.raw[0];
  if (category_.kind == Kind::kString) {
    const auto text = Unescape(category_.raw, *arena_);
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
  if (name_.kind == Kind::kString) {
    const auto text = Unescape(name_.raw, *arena_);
    if (!text) return Verdict::kUnreadable;
    event.name = *text;
  } else if (named) {
    return Verdict::kUnreadable;
  }
  if (!Place(pid_, event.pid, event.pid_text) || !Place(tid_, event.tid, event.tid_text)) return Verdict::kUnreadable;

  const auto begin = Time(begin_), duration = Time(duration_);
  if (begin) event.begin_ns = *begin;
  if (duration) event.duration_ns = *duration;
  if (event.category != Category::kMetadata) {
    if (begin_.kind == Kind::kNone) return Verdict::kUnreadable;
    if (!begin) return Verdict::kTimeInvalid;
  }
  if (event.phase == 'X') {
    if (duration_.kind == Kind::kNone) return Verdict::kUnreadable;
    if (!duration || *begin + *duration > kMostNs) return Verdict::kTimeInvalid;
  }
  if (duration && *duration < 0) {
    negative_duration = true;
    event.duration_ns = 0;
  }
  event.args = arguments_.text;
  event.correlation = event.category == Category::kFlow ? Id(id_) : Id(arguments_.correlation);
  event.external_id = Id(arguments_.external_id);
  event.device = Id(arguments_.device);
  event.context = Id(arguments_.context);
  event.stream = Id(arguments_.stream);
  event.bytes = Id(arguments_.bytes);
  event.sequence_number = Id(arguments_.sequence_number);
  return Verdict::kEvent;
}

}  // namespace lockstep::kineto
