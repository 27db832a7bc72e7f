#include "ingest/kineto/read/trace_reader.h"

#include <fmt/format.h>
#include <tbb/parallel_pipeline.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "ingest/kineto/read/batch_parser.h"
#include "ingest/kineto/read/byte_source.h"
#include "ingest/kineto/read/element_scan.h"
#include "ingest/kineto/read/top_level.h"
#include "merge/parallel.h"

namespace lockstep::kineto {
namespace {

constexpr std::string_view kUtf8Mark = "\xEF\xBB\xBF";
// zip, zstd, bzip2, xz.
constexpr std::string_view kPacked[] = {"PK\x03\x04", "\x28\xB5\x2F\xFD", "BZh",
                                        "\xFD"
                                        "7zXZ"};
// How far after damage in the file's head its events are searched for.
constexpr std::size_t kMostHeadBytes = std::size_t{16} << 20;

// No event is that long: a text without an end must be neither held completely nor parsed again with each piece.
constexpr std::size_t kMostEventBytes = std::size_t{32} << 20;

// Bytes with padding after them for readers that read ahead.
class Text {
 public:
  // Keeps the contents.
  void Reserve(std::size_t bytes) {
    if (bytes <= capacity_) return;
    const std::size_t capacity = bytes + bytes / 4;
    auto data = std::make_unique_for_overwrite<char[]>(capacity + kPadding);
    if (size_ > 0) std::memcpy(data.get(), data_.get(), size_);
    data_ = std::move(data);
    capacity_ = capacity;
  }
  void Assign(std::string_view text) {
    size_ = 0;
    Append(text);
  }
  void Append(std::string_view text) {
    Reserve(size_ + text.size());
    if (!text.empty()) std::memcpy(end(), text.data(), text.size());
    size_ += text.size();
  }
  void Prepend(std::string_view text) {
    if (text.empty()) return;
    Reserve(size_ + text.size());
    std::memmove(data_.get() + text.size(), data_.get(), size_);
    std::memcpy(data_.get(), text.data(), text.size());
    size_ += text.size();
  }
  char* end() { return data_.get() + size_; }
  void Grow(std::size_t bytes) { size_ += bytes; }
  void Cut(std::size_t size) { size_ = size; }
  std::size_t size() const { return size_; }
  std::size_t capacity() const { return capacity_; }
  // Sealed: a byte that is not JSON follows it.
  std::string_view View() {
    Reserve(std::max<std::size_t>(size_, 1));
    std::memset(end(), 0, kPadding);
    return {data_.get(), size_};
  }

 private:
  std::unique_ptr<char[]> data_;
  std::size_t size_ = 0, capacity_ = 0;
};

// A piece of the file, processed by one stage after the other.
struct Batch {
  explicit Batch(bool python_functions) : parser(python_functions) {}
  Text text;
  std::uint64_t offset = 0;  // Of the text's first byte in the file's JSON.
  bool last = false;
  bool parsed = false;
  BatchParser parser;
  Stretch stretch;
  std::vector<std::pair<std::size_t, const Stretch*>> deliveries;  // With their index.
  // Only after damage at the file's end.
  std::deque<std::pair<Text, Stretch>> more;
};

struct Sum {
  std::uint64_t count = 0, first = 0;
  void Add(const Tally& tally, std::uint64_t offset) {
    if (tally.count == 0) return;
    if (count == 0) first = offset + tally.first;
    count += tally.count;
  }
};

// Reads in pieces that begin at an event, as far as that is known without reading everything before; parses them in
// parallel; then, in the file's order, checks that each piece ended where the next one begins, and repeats pieces that
// were cut wrongly.
class Reader {
 public:
  Reader(ByteSource& source, const ReadOptions& options, Sink& sink)
      : source_(source), options_(options), sink_(sink), parser_(options.python_functions) {}

  Result<ReadResult> Run(const std::string& name);

 private:
  Status Head(const std::string& name);
  std::size_t ReadMore(Text& text, std::size_t bytes);
  void Fill(Batch& batch);
  void Check(Batch& batch);
  void TakeEvents(Batch& batch, const Stretch& stretch, std::string_view text, std::uint64_t offset, bool last);
  void TakeRest(std::string_view text, std::uint64_t offset);
  void Deliver(Batch& batch);
  void Stages();
  void Conclude();
  void AddDefect(Loss loss, const Sum& sum, std::string_view what);
  std::unique_ptr<Batch> TakeBatch();

  ByteSource& source_;
  const ReadOptions& options_;
  Sink& sink_;
  ReadResult result_;

  // Used by the reading stage.
  std::string ahead_;  // Read, but after the last cut.
  std::uint64_t offset_ = 0;
  bool source_ended_ = false, all_cut_ = false;

  // Used by the checking stage.
  TopLevel top_;
  std::atomic<bool> in_events_{true};
  std::string carry_;
  StretchState state_;
  BatchParser parser_;
  std::size_t next_index_ = 0;
  bool cut_in_event_ = false, events_seen_ = false;
  Sum unreadable_, time_invalid_, negative_duration_, python_, begin_end_, between_, outside_, replaced_;

  std::mutex pool_mutex_;
  std::vector<std::unique_ptr<Batch>> pool_;
};

std::size_t Reader::ReadMore(Text& text, std::size_t bytes) {
  if (source_ended_) return 0;
  text.Reserve(text.size() + bytes);
  const std::size_t have = source_.Read(text.end(), bytes);
  text.Grow(have);
  result_.json_bytes += have;
  source_ended_ = have < bytes;
  if (options_.progress) options_.progress(source_.file_done(), source_.file_bytes());
  return have;
}

Status Reader::Head(const std::string& name) {
  const auto not_a_trace = [&name](std::string what, std::string hint) {
    return Error{ErrorCode::kMalformed, std::move(what), name, std::move(hint)};
  };
  Text text;
  ReadMore(text, options_.batch_bytes);
  while (!source_ended_ && text.size() < 8) ReadMore(text, options_.batch_bytes);
  std::string_view view = text.View();
  if (view.empty() && !source_.defects().empty())
    return not_a_trace("the trace cannot be unpacked: " + source_.defects().front().detail, "copy or export it again");
  if (view.empty()) return not_a_trace("the trace is empty", "export it again");
  if (view.starts_with("\xFF\xFE") || view.starts_with("\xFE\xFF") || view.substr(0, 2) == std::string_view("{\0", 2) ||
      view.substr(0, 2) == std::string_view("[\0", 2) || view.substr(0, 2) == std::string_view("\0{", 2) ||
      view.substr(0, 2) == std::string_view("\0[", 2))
    return not_a_trace("the trace is UTF-16 or UTF-32 text", "convert it: iconv -f UTF-16 -t UTF-8 TRACE");
  for (const std::string_view magic : kPacked)
    if (view.starts_with(magic)) return not_a_trace("the trace is packed in another way than gzip", "unpack it first");
  if (view.starts_with(kUtf8Mark)) view.remove_prefix(kUtf8Mark.size());
  offset_ = text.size() - view.size();
  for (;;) {
    const std::size_t used = top_.Feed(view);
    view.remove_prefix(used);
    offset_ += used;
    if (top_.state() == TopLevel::State::kEvents) break;
    if (top_.state() == TopLevel::State::kNotATrace)
      return not_a_trace("this is no Chrome-trace JSON",
                         "give the *.json or *.json.gz files that torch.profiler exported");
    if (top_.state() == TopLevel::State::kDone)
      return not_a_trace("there is no traceEvents in it",
                         "give the *.json or *.json.gz files that torch.profiler exported");
    if (top_.state() == TopLevel::State::kBroken) {
      // The file's facts from here on are lost, but its events may not be.
      Text rest;
      rest.Assign(view);
      while (rest.size() < kMostHeadBytes && ReadMore(rest, options_.batch_bytes) > 0) {
      }
      ahead_ = rest.View();
      outside_.Add({1, 0}, offset_);
      const std::size_t key = ahead_.find("\"traceEvents\"");
      if (key != std::string::npos) {
        ahead_.erase(0, key);
        offset_ += key;
      }
      top_.AssumeEvents();
      state_ = {.lost = true, .doubtful = true};
      return Ok();
    }
    text.Cut(0);
    if (ReadMore(text, options_.batch_bytes) == 0)
      return not_a_trace("the trace ends before its events begin", "copy or export it again: it was cut short");
    view = text.View();
  }
  events_seen_ = true;
  ahead_ = view;
  return Ok();
}

void Reader::Fill(Batch& batch) {
  batch.text.Assign(ahead_);
  batch.offset = offset_;
  batch.deliveries.clear();
  batch.more.clear();
  if (batch.text.size() < options_.batch_bytes) ReadMore(batch.text, options_.batch_bytes - batch.text.size());
  batch.last = source_ended_;
  ahead_.clear();
  const std::string_view text = batch.text.View();
  if (!batch.last) {
    // Not at the very end, because the key after the brace must be visible. Without any event's start it is cut
    // anywhere, and Check joins the parts again.
    const std::size_t cut = FindLastEventStart(text, 1);
    if (cut != std::string_view::npos) {
      ahead_ = text.substr(cut);
      batch.text.Cut(cut);
      batch.text.View();
    }
  }
  offset_ += batch.text.size();
  all_cut_ = batch.last;
}

// Handles the file's part outside the array.
void Reader::TakeRest(std::string_view text, std::uint64_t offset) {
  const std::size_t used = top_.Feed(text);
  if (top_.state() != TopLevel::State::kBroken) return;
  // This was not the array's end, or what follows it is damaged: more events may come.
  outside_.Add({1, 0}, offset + used);
  top_.AssumeEvents();
  in_events_ = true;
  state_ = {.lost = true, .doubtful = true};
  carry_ = text.substr(used);
}

void Reader::TakeEvents(Batch& batch, const Stretch& stretch, std::string_view text, std::uint64_t offset, bool last) {
  result_.events += stretch.elements;
  unreadable_.Add(stretch.unreadable, offset);
  replaced_.Add(stretch.replaced, offset);
  time_invalid_.Add(stretch.time_invalid, offset);
  negative_duration_.Add(stretch.negative_duration, offset);
  python_.Add(stretch.python, offset);
  begin_end_.Add(stretch.begin_end, offset);
  between_.Add(stretch.between, offset);
  if (!stretch.events.empty()) {
    batch.deliveries.emplace_back(next_index_++, &stretch);
    events_seen_ = true;
  }
  state_ = stretch.state;
  carry_.clear();
  const std::string_view rest = text.substr(stretch.used);
  if (stretch.ended) {
    in_events_ = false;
    top_.EventsEnded();
    TakeRest(rest, offset + stretch.used);
  } else if (last || rest.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    // Nothing has begun, or nothing follows.
  } else if (rest.size() <= kMostEventBytes) {
    carry_ = rest;
  } else {
    unreadable_.Add({1, 0}, offset + stretch.used);
    state_ = {.lost = true, .doubtful = true};
  }
  cut_in_event_ = stretch.cut;
}

void Reader::Check(Batch& batch) {
  std::string_view text = batch.text.View();
  if (in_events_) {
    if (!batch.parsed || !carry_.empty() || !(state_ == StretchState{})) {
      batch.offset -= carry_.size();
      batch.text.Prepend(carry_);
      text = batch.text.View();
      batch.parser.Parse(text, state_, batch.last, batch.stretch);
    }
    TakeEvents(batch, batch.stretch, text, batch.offset, batch.last);
  } else {
    TakeRest(text, batch.offset);
  }
  if (!batch.last) return;
  while (in_events_ && !carry_.empty()) {
    auto& [more_text, stretch] = batch.more.emplace_back();
    more_text.Assign(carry_);
    const std::uint64_t offset = batch.offset + text.size() - carry_.size();
    parser_.Parse(more_text.View(), state_, true, stretch);
    TakeEvents(batch, stretch, more_text.View(), offset, true);
  }
}

void Reader::Deliver(Batch& batch) {
  for (const auto& [index, stretch] : batch.deliveries) sink_.Batch(index, stretch->events);
}

std::unique_ptr<Batch> Reader::TakeBatch() {
  const std::lock_guard lock(pool_mutex_);
  if (pool_.empty()) return std::make_unique<Batch>(options_.python_functions);
  auto batch = std::move(pool_.back());
  pool_.pop_back();
  return batch;
}

void Reader::Stages() {
  const auto parse = [this](Batch& batch) {
    // What follows the array's end may turn out to be more of it: then Check does it.
    batch.parsed = in_events_;
    if (batch.parsed) batch.parser.Parse(batch.text.View(), {}, batch.last, batch.stretch);
  };
  const int jobs = merge::ThreadsFor(options_.jobs);
  if (jobs == 1) {
    Batch batch(options_.python_functions);
    do {
      Fill(batch);
      parse(batch);
      Check(batch);
      Deliver(batch);
    } while (!batch.last);
    return;
  }
  tbb::task_arena arena(jobs);
  arena.execute([&] {
    tbb::parallel_pipeline(
        static_cast<std::size_t>(jobs) * 2 + 2,
        tbb::make_filter<void, Batch*>(tbb::filter_mode::serial_in_order, [&](tbb::flow_control& control) -> Batch* {
          if (all_cut_) {
            control.stop();
            return nullptr;
          }
          auto batch = TakeBatch();
          Fill(*batch);
          return batch.release();
        }) & tbb::make_filter<Batch*, Batch*>(tbb::filter_mode::parallel, [&](Batch* batch) {
          parse(*batch);
          return batch;
        }) & tbb::make_filter<Batch*, Batch*>(tbb::filter_mode::serial_in_order, [&](Batch* batch) {
          Check(*batch);
          return batch;
        }) & tbb::make_filter<Batch*, void>(tbb::filter_mode::parallel, [&](Batch* batch) {
          Deliver(*batch);
          std::unique_ptr<Batch> done(batch);
          // A buffer that had to grow is not kept, because all of them would grow in turn.
          if (done->text.capacity() > 8 * options_.batch_bytes) return;
          const std::lock_guard lock(pool_mutex_);
          pool_.push_back(std::move(done));
        }));
  });
}

void Reader::AddDefect(Loss loss, const Sum& sum, std::string_view what) {
  if (sum.count > 0) result_.defects.push_back({loss, sum.count, fmt::format("{} at byte {}", what, sum.first)});
}

void Reader::Conclude() {
  result_.batches = next_index_;
  result_.facts = std::move(top_.facts());
  std::string cut;
  for (const Defect& defect : source_.defects()) {
    if (defect.loss == Loss::kImportCutShort)
      cut = defect.detail;
    else
      result_.defects.push_back(defect);
  }
  const bool ended =
      top_.state() == TopLevel::State::kDone || (top_.bare_array() && in_events_ && !cut_in_event_ && cut.empty());
  if (!ended || !cut.empty()) {
    const std::string where = fmt::format("the JSON ends at byte {}{}", result_.json_bytes,
                                          cut_in_event_ ? ", inside an event"
                                          : in_events_  ? ", between two events"
                                                        : ", behind the events");
    result_.defects.push_back({Loss::kImportCutShort, 1, cut.empty() ? where : ended ? cut : cut + "; " + where});
  }
  if (top_.trailing()) result_.defects.push_back({Loss::kImportGarbage, 1, "bytes behind the end of the JSON"});
  if (top_.arrays() > 1)
    result_.defects.push_back(
        {Loss::kImportGarbage, 1, fmt::format("{} arrays traceEvents, the first was used", top_.arrays())});
  Sum damaged = between_;
  if (outside_.count > 0)
    damaged = {damaged.count + outside_.count,
               damaged.count == 0 ? outside_.first : std::min(damaged.first, outside_.first)};
  if (damaged.count > 0)
    result_.defects.push_back(
        {Loss::kImportGarbage, 1,
         fmt::format("no JSON outside the events in {} places, first at byte {}", damaged.count, damaged.first)});
  AddDefect(Loss::kImportEventUnreadable, unreadable_, "first");
  AddDefect(Loss::kImportTextReplaced, replaced_, "first");
  AddDefect(Loss::kImportTimeInvalid, time_invalid_, "first");
  AddDefect(Loss::kImportNegativeDuration, negative_duration_, "first");
  if (python_.count > 0) result_.defects.push_back({Loss::kImportPythonSkipped, python_.count, "python_function"});
  if (begin_end_.count > 0)
    result_.defects.push_back({Loss::kImportCategorySkipped, begin_end_.count, "begin and end apart (phases B, E)"});
}

Result<ReadResult> Reader::Run(const std::string& name) {
  LS_CHECK(Head(name));
  Stages();
  if (!events_seen_)
    return Error{ErrorCode::kMalformed, "there is no traceEvents in it", name,
                 "give the *.json or *.json.gz files that torch.profiler exported"};
  Conclude();
  return std::move(result_);
}

}  // namespace

Result<ReadResult> ReadTrace(const std::string& path, const ReadOptions& options, Sink& sink) {
  LS_TRY(auto source, OpenSource(path));
  return Reader(*source, options, sink).Run(path);
}

Result<ReadResult> ReadTraceText(std::string_view json, const ReadOptions& options, Sink& sink) {
  return Reader(*TextSource(json), options, sink).Run("");
}

bool LooksLikeTrace(std::string_view first_bytes) {
  if (first_bytes.starts_with("\x1F\x8B")) return true;
  if (first_bytes.starts_with(kUtf8Mark)) first_bytes.remove_prefix(kUtf8Mark.size());
  const std::size_t at = first_bytes.find_first_not_of(" \t\r\n");
  return at != std::string_view::npos && (first_bytes[at] == '{' || first_bytes[at] == '[');
}

}  // namespace lockstep::kineto
