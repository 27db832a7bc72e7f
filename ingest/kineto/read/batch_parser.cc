#include "ingest/kineto/read/batch_parser.h"

#include <algorithm>
#include <string>

#include "core/printed.h"
#include "ingest/kineto/read/element_scan.h"
#include "ingest/kineto/read/event_walker.h"

namespace lockstep::kineto {
namespace {

// Tokens that a walker may read after the last one.
constexpr std::size_t kSentinels = 4;

void Settle(EventWalker& walker, std::size_t at, Stretch& out) {
  ++out.elements;
  Event& event = out.events.emplace_back();
  bool negative_duration = false;
  const Verdict verdict = walker.Judge(event, negative_duration);
  if (verdict != Verdict::kEvent) out.events.pop_back();
  switch (verdict) {
    case Verdict::kEvent:
      if (negative_duration) out.negative_duration.Add(at);
      break;
    case Verdict::kEmpty:
      break;
    case Verdict::kUnreadable:
      out.unreadable.Add(at);
      break;
    case Verdict::kTimeInvalid:
      out.time_invalid.Add(at);
      break;
    case Verdict::kPython:
      out.python.Add(at);
      break;
    case Verdict::kBeginEnd:
      out.begin_end.Add(at);
      break;
  }
}

}  // namespace

void Stretch::Clear() {
  events.clear();
  arena.Clear();
  elements = 0;
  unreadable = time_invalid = negative_duration = python = begin_end = between = replaced = {};
  used = 0;
  ended = cut = false;
  state = {};
}

void BatchParser::Parse(std::string_view text, StretchState state, bool last, Stretch& out) {
  if (state == StretchState{}) {
    out.Clear();
    if (ParseQuickly(text, last, out)) return;
  }
  ParseSlowly(text, state, last, out);
}

// Returns false if anything is unusual: then the contents of `out` are not valid.
bool BatchParser::ParseQuickly(std::string_view text, bool last, Stretch& out) {
  if (text.size() > kMaxElementBytes) return false;
  // Since simdjson 1.0 stage1 and structural_indexes are what its own documents are made
  // of; the public ways in front of them visit each field through a result object.
  if (stage_ == nullptr || stage_->capacity() < text.size()) {
    const std::size_t capacity = std::max<std::size_t>(text.size() + text.size() / 4, 4096);
    if (simdjson::get_active_implementation()->create_dom_parser_implementation(capacity, 2, stage_) !=
        simdjson::SUCCESS)
      return false;
  }
  if (stage_->stage1(reinterpret_cast<const std::uint8_t*>(text.data()), text.size(), simdjson::stage1_mode::regular) !=
      simdjson::SUCCESS)
    return false;
  std::uint32_t* const first = stage_->structural_indexes.get();
  std::uint32_t* const end = first + stage_->n_structural_indexes;
  // There is space for nine more: dom_parser_implementation::set_capacity.
  std::fill_n(end, kSentinels, static_cast<std::uint32_t>(text.size()));

  EventWalker walker(out.arena, python_functions_);
  const std::uint32_t* at = first;
  while (at < end) {
    const std::size_t begin = *at;
    if (text[begin] == ']') {
      out.ended = true;
      out.used = begin + 1;
      return true;
    }
    if (text[begin] != '{') return false;
    const std::uint32_t* next = at;
    const Walk walk = walker.Take(text.data(), next, end);
    if (walk == Walk::kBroken) return false;
    const bool whole = walk == Walk::kWhole;
    if (!whole || next == end) {  // The comma may follow in the next stretch.
      if (!last) {
        out.used = begin;
        return true;
      }
      if (!whole) return false;
      Settle(walker, begin, out);
      break;
    }
    const char separator = text[*next];
    if (separator != ',' && separator != ']') return false;
    Settle(walker, begin, out);
    at = separator == ',' ? next + 1 : next;
  }
  out.used = text.size();
  return true;
}

// Takes the element that `scan` found, whose tokens are in tokens_; `place`: where it is in the stretch. Returns true
// if it certainly is an event: it has a phase. Bytes that no JSON text holds, as some functions' names have, are
// replaced.
bool BatchParser::TakeElement(std::string_view text, std::size_t begin, const Scan& scan, EventWalker& walker,
                              Stretch& out, std::size_t place) {
  if (scan.bad_text) {
    const std::string repaired = PrintedJson(text.substr(begin, scan.next - begin));
    char* const kept = out.arena.Take(repaired.size() + kPadding);
    std::fill_n(std::copy(repaired.begin(), repaired.end(), kept), kPadding, '\0');
    const std::string_view element(kept, repaired.size());
    Scan again = ScanElement(element, 0, tokens_);
    again.bad_text = false;  // What is not whole then is counted as unreadable below.
    const std::size_t events = out.events.size();
    const bool certain = TakeElement(element, 0, again, walker, out, begin);
    if (out.events.size() > events) out.replaced.Add(begin);
    return certain;
  }
  const std::size_t count = tokens_.size();
  tokens_.insert(tokens_.end(), kSentinels, static_cast<std::uint32_t>(text.size()));
  const std::uint32_t* token = tokens_.data();
  if (text[begin] != '{' || walker.Take(text.data(), token, token + count) != Walk::kWhole) {
    out.AddUnreadable(place);
    return false;
  }
  Settle(walker, place, out);
  return walker.has_phase();
}

void BatchParser::ParseSlowly(std::string_view text, StretchState state, bool last, Stretch& out) {
  out.Clear();
  EventWalker walker(out.arena, python_functions_);
  std::size_t at = 0;
  // Continues at the next event's start or at the array's end. Returns false if neither is found.
  const auto resume = [&](std::size_t from) {
    state = {.doubtful = true};
    at = FindEventStart(text, from);
    const std::size_t end = FindArrayEnd(at == std::string_view::npos ? text : text.substr(0, at), from,
                                         last && at == std::string_view::npos);
    if (end != std::string_view::npos) {
      state = {};
      at = end;
    }
    if (at != std::string_view::npos) return true;
    // One may begin in the last bytes, and its end is not read yet.
    at = text.size();
    if (last) return false;
    const std::size_t again = std::max(from, text.size() - std::min(text.size(), kBytesBehind));
    at = again - std::min(again, kBytesBefore);
    state.lost = true;
    state.lost_from = static_cast<std::uint32_t>(again - at);
    return false;
  };
  if (state.lost && !resume(state.lost_from)) {
    out.used = at;
    out.state = state;
    return;
  }
  for (;;) {
    while (at < text.size() && IsBlank(text[at])) ++at;
    if (at == text.size()) break;
    const std::size_t begin = at;
    if (text[begin] == ']' && !state.doubtful) {
      out.ended = true;
      ++at;
      break;
    }
    const Scan scan = ScanElement(text, begin, tokens_);
    // At the file's end: the element is cut there, unless other events follow inside it, in which case it lacks a
    // bracket.
    const bool swallows =
        last && scan.end == ScanEnd::kIncomplete && FindEventStart(text, begin + 1) != std::string_view::npos;
    if (scan.end == ScanEnd::kIncomplete && !swallows) {
      if (last) {
        out.cut = true;
        at = text.size();
      }
      break;
    }
    if (scan.end != ScanEnd::kComplete) {
      out.AddUnreadable(begin);
      if (!resume(begin + 1)) break;
      continue;
    }
    std::size_t next = scan.next;
    while (next < text.size() && IsBlank(text[next])) ++next;
    if (next == text.size() && !last) break;  // The comma may follow in the next stretch.

    if (TakeElement(text, begin, scan, walker, out, begin)) state.doubtful = false;
    at = next;
    if (next == text.size()) break;
    if (text[next] == ',') {
      ++at;
    } else if (text[next] != ']' || state.doubtful) {
      out.between.Add(next);
      if (!resume(next)) break;
    }
  }
  out.used = at;
  out.state = state;
}

}  // namespace lockstep::kineto
