#include "ingest/kineto/read/top_level.h"

#include <simdjson.h>

#include "ingest/kineto/read/decimal.h"
#include "ingest/kineto/read/element_scan.h"
#include "ingest/kineto/read/unescape.h"

namespace lockstep::kineto {
namespace {

// A longer text under one key is not a fact about a file.
constexpr std::size_t kMostFactBytes = std::size_t{8} << 20, kMostScalarBytes = 64 * 1024, kMostOthers = 10'000;

bool IsContainer(const std::string& key) { return key == "distributedInfo" || key == "deviceProperties"; }

// Facts are written to files and reports, which contain UTF-8 only.
void MakeUtf8(std::string& text) {
  if (simdjson::validate_utf8(text)) return;
  for (char& c : text)
    if (static_cast<unsigned char>(c) >= 0x80) c = '?';
}

}  // namespace

std::size_t TopLevel::Feed(std::string_view text) {
  std::size_t i = 0;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    switch (state_) {
      case State::kStart:
        if (IsBlank(c)) break;
        if (c == '{') {
          state_ = State::kInside;
        } else if (c == '[') {
          bare_ = true;
          state_ = State::kEvents;
        } else {
          state_ = State::kNotATrace;
          return i;
        }
        break;
      case State::kInside:
        if (!Take(c)) {
          state_ = State::kBroken;
          taken_ += i;
          return i;
        }
        break;
      case State::kDone:
        if (!trailing_ && !IsBlank(c)) {
          trailing_ = true;
          trailing_offset_ = taken_ + i;
        }
        break;
      case State::kEvents:
      case State::kBroken:
      case State::kNotATrace:
        taken_ += i;
        return i;
    }
  }
  taken_ += i;
  return i;
}

void TopLevel::EventsEnded() {
  state_ = bare_ ? State::kDone : State::kInside;
  want_ = Want::kAfter;
}

void TopLevel::AssumeEvents() { state_ = State::kEvents; }

bool TopLevel::Take(char c) {
  switch (want_) {
    case Want::kInKey:
      if (!escaped_ && c == '"') {
        want_ = Want::kColon;
        return true;
      }
      escaped_ = !escaped_ && c == '\\';
      if (key_.size() < kMostScalarBytes) key_.push_back(c);
      return static_cast<unsigned char>(c) >= 0x20;
    case Want::kInValue:
      return TakeValueByte(c);
    default:
      break;
  }
  if (IsBlank(c)) return true;
  switch (want_) {
    case Want::kKeyOrEnd:
      if (c == '}') {
        state_ = State::kDone;
        return true;
      }
      [[fallthrough]];
    case Want::kKey:
      key_.clear();
      escaped_ = false;
      want_ = Want::kInKey;
      return c == '"';
    case Want::kColon:
      want_ = Want::kValue;
      return c == ':';
    case Want::kValue:
      if (c == '[' && key_ == "traceEvents" && ++arrays_ == 1) {
        state_ = State::kEvents;
        return true;
      }
      value_.clear();
      depth_ = 0;
      in_string_ = escaped_ = scalar_ = false;
      kept_ = true;
      want_ = Want::kInValue;
      return TakeValueByte(c);
    case Want::kAfter:
      if (c == '}') state_ = State::kDone;
      want_ = Want::kKey;
      return c == ',' || c == '}';
    default:
      return false;
  }
}

bool TopLevel::TakeValueByte(char c) {
  bool ends = false;
  if (in_string_) {
    if (!escaped_ && c == '"') {
      in_string_ = false;
      ends = depth_ == 0;
    } else if (static_cast<unsigned char>(c) < 0x20 && !IsBlank(c)) {
      return false;
    }
    escaped_ = !escaped_ && c == '\\';
  } else if (scalar_) {
    if (!IsScalarByte(c)) {
      EndValue();
      return Take(c);
    }
  } else if (c == '"') {
    in_string_ = true;
  } else if (c == '{' || c == '[') {
    ++depth_;
  } else if (c == '}' || c == ']') {
    if (depth_ == 0) return false;
    ends = --depth_ == 0;
  } else if (depth_ == 0) {
    if (!IsScalarByte(c)) return false;
    scalar_ = true;
  }
  const std::size_t most = IsContainer(key_) ? kMostFactBytes : depth_ == 0 ? kMostScalarBytes : 0;
  if (kept_ && value_.size() < most) {
    value_.push_back(c);
  } else {
    kept_ = false;
    value_.clear();
  }
  if (ends) EndValue();
  return true;
}

void TopLevel::EndValue() {
  want_ = Want::kAfter;
  if (!kept_) return;
  MakeUtf8(key_);
  MakeUtf8(value_);
  const bool text = value_.size() >= 2 && value_.front() == '"';
  const std::string_view plain =
      text ? std::string_view(value_).substr(1, value_.size() - 2) : std::string_view(value_);
  if (key_ == "distributedInfo" && value_.front() == '{') {
    facts_.distributed_info = value_;
  } else if (key_ == "deviceProperties" && value_.front() == '[') {
    facts_.device_properties = value_;
  } else if (key_ == "traceName" && text) {
    Arena arena;
    facts_.trace_name = Unescape(plain, arena).value_or(plain);
  } else if (key_ == "baseTimeNanoseconds") {
    const auto ns = ScaledDecimal(plain, 0);
    if (ns && *ns >= 0) facts_.base_time_ns = *ns;
  } else if (value_.front() != '{' && value_.front() != '[' && facts_.others.size() < kMostOthers) {
    facts_.others.emplace_back(key_, value_);
  }
}

}  // namespace lockstep::kineto
