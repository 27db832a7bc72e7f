#pragma once
// Chrome-trace JSON of PyTorch's Kineto as a stream of events. Plain or gzip (also
// several gzip members), pretty or minified; one large file uses all cores. Nothing
// here knows what events mean: ingest/kineto/map makes rank tables of them.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/loss.h"
#include "core/result.h"

namespace lockstep::kineto {

// The value of a number that the event does not have.
inline constexpr std::int64_t kAbsent = std::numeric_limits<std::int64_t>::min();

enum class Category : std::uint8_t {
  kOther,  // category_text says which.
  kCpuOp,
  kUserAnnotation,
  kGpuUserAnnotation,
  kPythonFunction,
  kRuntime,  // cuda_runtime; HIP's calls too.
  kDriver,
  kKernel,
  kMemcpy,
  kMemset,
  kSync,
  kOverhead,
  kInstant,  // cpu_instant_event: "[memory]" and the like.
  kFlow,     // ac2g, fwdbwd: arrows; correlation says the same.
  kMetadata  // Phase M.
};

// One element of traceEvents. Texts point into the batch and live as long as the
// call of Sink::Batch; escapes are resolved.
struct Event {
  Category category = Category::kOther;
  char phase = 'X';
  std::string_view category_text, name;
  // Exact: decimal microseconds of the file x 1000, digits beyond the third after the
  // point cut. Not negative in duration: such are counted and set to 0. Begin and end are
  // within +-2^62 ns. Phase X has both, the others a begin, metadata perhaps neither.
  std::int64_t begin_ns = kAbsent, duration_ns = kAbsent;
  std::int64_t pid = kAbsent, tid = kAbsent;
  std::string_view pid_text, tid_text;  // Where they are no numbers: "Spans", "stream 7".
  // From args; a flow's correlation is its id.
  std::int64_t correlation = kAbsent, external_id = kAbsent;
  std::int64_t device = kAbsent, context = kAbsent, stream = kAbsent;
  std::int64_t bytes = kAbsent;
  std::int64_t sequence_number = kAbsent;  // Autograd's.
  std::string_view args;                   // JSON text of args with its braces, "" if none.
};

// Takes the events of one file. Batches come from several threads at once; `index`
// (0, 1, ...) is their order in the file, each index once, not in order.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void Batch(std::size_t index, std::span<const Event> events) = 0;
};

// What the file says outside traceEvents. Texts are raw JSON, "" if absent.
struct FileFacts {
  std::string distributed_info;   // Object.
  std::string device_properties;  // Array.
  std::string trace_name;         // Without quotes.
  std::int64_t base_time_ns = 0;  // baseTimeNanoseconds, 0 if absent: event times are since it.
  // Every other key with a scalar value, in the file's order.
  std::vector<std::pair<std::string, std::string>> others;
};

struct Defect {
  Loss loss;
  std::uint64_t count = 1;
  std::string detail;  // "cut at byte 12345 of 20000", with what helps to find it.
};

struct ReadOptions {
  unsigned jobs = 0;              // Threads, 0: all allowed cores. Never changes what is read.
  bool python_functions = false;  // If false they are counted (ImportPythonSkipped) and not delivered.
  // Bytes of the file read so far and its size; from any thread, one call at a time.
  std::function<void(std::uint64_t done_bytes, std::uint64_t file_bytes)> progress;
  // JSON text that one thread takes at a time. Never changes what is read.
  std::size_t batch_bytes = std::size_t{512} << 10;
};

struct ReadResult {
  FileFacts facts;
  std::vector<Defect> defects;
  std::uint64_t batches = 0;
  std::uint64_t events = 0;      // Elements of traceEvents, whether delivered or not.
  std::uint64_t json_bytes = 0;  // After decompression.
};

// Reads the file to its end or to what stops it; everything before that is delivered. A cut file, bytes after the end
// and broken events are defects, not errors. kNotFound, kIo; kMalformed: the file has no traceEvents.
Result<ReadResult> ReadTrace(const std::string& path, const ReadOptions& options, Sink& sink);

// The same of JSON text in memory (tests, fuzzing).
Result<ReadResult> ReadTraceText(std::string_view json, const ReadOptions& options, Sink& sink);

// Looks like a file that ReadTrace reads: '{' or '[' after blanks, or a gzip header.
bool LooksLikeTrace(std::string_view first_bytes);

}  // namespace lockstep::kineto
