// Whatever a trace holds: no finding of a sanitizer, no hang, and the same events
// however the work is divided. The input is one byte of settings, then the file.

#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/kineto/mutate_json.h"
#include "ingest/kineto/read/batch_parser.h"
#include "ingest/kineto/read/element_scan.h"
#include "ingest/kineto/read/trace_reader.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace lockstep::kineto {
namespace {

constexpr std::int64_t kMostNs = std::int64_t{1} << 62;

void MustHold(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "FINDING: %s\n", what);
  std::abort();
}

std::string Line(const Event& e) {
  std::string line = std::to_string(static_cast<int>(e.category)) + e.phase;
  for (const std::int64_t value : {e.begin_ns, e.duration_ns, e.pid, e.tid, e.correlation, e.external_id, e.device,
                                   e.context, e.stream, e.bytes, e.sequence_number})
    line += " " + std::to_string(value);
  for (const std::string_view text : {e.category_text, e.name, e.pid_text, e.tid_text, e.args}) (line += '|') += text;
  return line;
}

class Lines final : public Sink {
 public:
  void Batch(std::size_t index, std::span<const Event> events) override {
    MustHold(!events.empty(), "an empty batch");
    std::vector<std::string> lines;
    for (const Event& e : events) {
      MustHold(e.duration_ns == kAbsent || e.duration_ns >= 0, "a negative duration");
      MustHold(e.begin_ns == kAbsent || (e.begin_ns >= -kMostNs && e.begin_ns <= kMostNs), "a wild time");
      MustHold(e.phase != 'X' ||
                   (e.begin_ns != kAbsent && e.duration_ns != kAbsent && e.begin_ns + e.duration_ns <= kMostNs),
               "a wild end");
      MustHold(e.args.empty() || (e.args.front() == '{' && e.args.back() == '}'), "args without braces");
      lines.push_back(Line(e));
    }
    const std::lock_guard lock(mutex_);
    MustHold(batches_.emplace(index, std::move(lines)).second, "a batch twice");
  }
  std::vector<std::string> All() const {
    std::vector<std::string> all;
    std::size_t expected = 0;
    for (const auto& [index, lines] : batches_) {
      MustHold(index == expected++, "a batch missing");
      all.insert(all.end(), lines.begin(), lines.end());
    }
    return all;
  }

 private:
  std::mutex mutex_;
  std::map<std::size_t, std::vector<std::string>> batches_;
};

struct Read {
  std::uint64_t events = 0;  // Whether delivered or not.
  bool ok = false;
  std::string error;
  std::vector<std::string> lines;
  std::string rest;         // Counts, defects and facts.
  std::size_t harmful = 0;  // Defects that say the text is no JSON.
};

Read Finish(const Result<ReadResult>& result, const Lines& lines) {
  Read read;
  read.ok = result.ok();
  if (!read.ok) {
    MustHold(!result.error().what.empty() && !result.error().hint.empty(), "an error without words");
    read.error = result.error().what;
    return read;
  }
  read.lines = lines.All();
  const ReadResult& r = result.value();
  MustHold(read.lines.size() <= r.events, "more delivered than there is");
  read.events = r.events;
  read.rest = std::to_string(r.events) + " " + std::to_string(r.json_bytes) + " " +
              std::to_string(r.facts.base_time_ns) + r.facts.distributed_info + r.facts.device_properties +
              r.facts.trace_name;
  for (const auto& [key, value] : r.facts.others) read.rest += key + "=" + value + ";";
  std::uint64_t lost = 0;
  for (const Defect& defect : r.defects) {
    read.rest += "\n" + std::string(Info(defect.loss).name) + " " + std::to_string(defect.count) + " " + defect.detail;
    const bool event = defect.loss == Loss::kImportEventUnreadable || defect.loss == Loss::kImportTimeInvalid ||
                       defect.loss == Loss::kImportCategorySkipped || defect.loss == Loss::kImportPythonSkipped;
    lost += event ? defect.count : 0;
    read.harmful += defect.loss == Loss::kImportEventUnreadable || defect.loss == Loss::kImportGarbage ||
                    defect.loss == Loss::kImportCutShort;
  }
  MustHold(read.lines.size() + lost <= r.events, "more counted than there is");
  return read;
}

Read ReadIt(std::string_view json, const ReadOptions& options) {
  Lines lines;
  const auto result = ReadTraceText(json, options, lines);
  return Finish(result, lines);
}

Read ReadFile(std::string_view bytes, const ReadOptions& options) {
  const int fd = ::memfd_create("trace", MFD_CLOEXEC);
  MustHold(fd >= 0 && ::write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()), "no file");
  Lines lines;
  const auto result = ReadTrace("/proc/self/fd/" + std::to_string(fd), options, lines);
  ::close(fd);
  return Finish(result, lines);
}

void MustEqual(const Read& a, const Read& b, const char* what) {
  if (a.ok == b.ok && a.error == b.error && a.lines == b.lines && a.rest == b.rest) return;
  std::fprintf(stderr, "%s\n%s\n", (a.error + a.rest).c_str(), (b.error + b.rest).c_str());
  for (std::size_t i = 0; i < std::max(a.lines.size(), b.lines.size()); ++i)
    if (i >= a.lines.size() || i >= b.lines.size() || a.lines[i] != b.lines[i])
      std::fprintf(stderr, "%zu\n  %s\n  %s\n", i, i < a.lines.size() ? a.lines[i].c_str() : "",
                   i < b.lines.size() ? b.lines[i].c_str() : "");
  MustHold(false, what);
}

std::string Gzip(std::string_view text, int level) {
  z_stream stream{};
  deflateInit2(&stream, level, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

void BothWaysAgree(std::string_view json, bool last) {
  const std::size_t begin = std::min(json.find('[') + 1, json.size());
  std::string text(json.substr(begin));
  const std::size_t size = text.size();
  text.resize(size + kPadding, '\0');
  const std::string_view view(text.data(), size);
  BatchParser parser(true);
  Stretch quick, slow;
  parser.Parse(view, {}, last, quick);
  parser.ParseSlowly(view, {}, last, slow);
  MustHold(quick.used == slow.used && quick.ended == slow.ended && quick.cut == slow.cut &&
               quick.elements == slow.elements && quick.state == slow.state,
           "simdjson's tokens end elsewhere than ours");
  MustHold(quick.unreadable.count == slow.unreadable.count && quick.between.count == slow.between.count,
           "simdjson's tokens count otherwise than ours");
  MustHold(std::equal(quick.events.begin(), quick.events.end(), slow.events.begin(), slow.events.end(),
                      [](const Event& a, const Event& b) { return Line(a) == Line(b); }),
           "simdjson's tokens are other events than ours");
}

// Of sound text: cut anywhere, all whole events but at most one are there.
void CutIsAPrefix(std::string_view json, const Read& whole, std::size_t cut, const ReadOptions& options) {
  if (whole.harmful > 0) return;
  // Events within events, under whatever key: behind a cut, nobody can tell which is which.
  std::uint64_t starts = 0;
  for (std::size_t at = FindEventStart(json, 0); at < json.size(); at = FindEventStart(json, at + 1)) ++starts;
  if (starts > whole.events) return;
  const Read part = ReadIt(json.substr(0, cut), options);
  if (!part.ok) return;
  MustHold(
      part.lines.size() <= whole.lines.size() && std::equal(part.lines.begin(), part.lines.end(), whole.lines.begin()),
      "a cut trace is no prefix");
}

}  // namespace
}  // namespace lockstep::kineto

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep::kineto;
  if (size == 0) return 0;
  const std::uint8_t settings = data[0];
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  // Deterministic, but another choice for every text.
  std::mt19937_64 random(std::hash<std::string_view>()(text) ^ settings);
  ReadOptions whole{.jobs = 1, .python_functions = (settings & 1) != 0};
  ReadOptions pieces = whole;
  pieces.batch_bytes = 1 + random() % (random() % 2 == 0 ? 64 : 2048);
  if ((settings & 0x30) == 0x30) {  // As a file, compressed data perhaps.
    ReadFile(text, whole);
    return 0;
  }
  const Read one = ReadIt(text, whole);
  MustEqual(one, ReadIt(text, pieces), "batches change what is read");
  BothWaysAgree(text, (settings & 2) != 0);
  if (one.ok && !text.empty()) CutIsAPrefix(text, one, random() % text.size(), random() % 2 == 0 ? whole : pieces);
  if ((settings & 0x0C) == 0x0C) {
    pieces.jobs = 2;
    MustEqual(one, ReadIt(text, pieces), "threads change what is read");
    const std::size_t middle = random() % (text.size() + 1);
    MustEqual(one, ReadFile(Gzip(text.substr(0, middle), 1) + Gzip(text.substr(middle), 6), whole),
              "gzip changes what is read");
  }
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned int seed) {
  std::mt19937_64 random(seed);
  if (size < 2 || random() % 3 == 0) return LLVMFuzzerMutate(data, size, max_size);
  std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  for (std::uint64_t n = 1 + random() % 3; n > 0; --n) lockstep::fuzz::MutateJson(text, random);
  if (random() % 8 == 0) data[0] = static_cast<std::uint8_t>(random());
  const std::size_t kept = std::min(text.size(), max_size - 1);
  std::memcpy(data + 1, text.data(), kept);
  return kept + 1;
}
