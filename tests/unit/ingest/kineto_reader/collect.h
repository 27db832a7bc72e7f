#pragma once
// What a reader delivered, in the file's order, as values that outlive it.

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "ingest/kineto/read/trace_reader.h"

namespace lockstep::kineto {

// An Event with texts of its own.
struct Kept {
  Event event;  // Its texts are dangling; these are not:
  std::string category_text, name, pid_text, tid_text, args;

  // Everything in it, for comparing.
  std::string Line() const {
    std::string line;
    const auto number = [&line](std::int64_t value) { line += (value == kAbsent ? "-" : std::to_string(value)) + ' '; };
    line += std::to_string(static_cast<int>(event.category)) + event.phase + ' ';
    for (const std::int64_t value :
         {event.begin_ns, event.duration_ns, event.pid, event.tid, event.correlation, event.external_id, event.device,
          event.context, event.stream, event.bytes, event.sequence_number})
      number(value);
    for (const std::string* text : {&category_text, &name, &pid_text, &tid_text, &args}) line += "|" + *text;
    return line;
  }
};

class Collector final : public Sink {
 public:
  void Batch(std::size_t index, std::span<const Event> events) override {
    std::vector<Kept> kept;
    for (const Event& event : events)
      kept.push_back({event, std::string(event.category_text), std::string(event.name), std::string(event.pid_text),
                      std::string(event.tid_text), std::string(event.args)});
    const std::lock_guard lock(mutex_);
    const bool fresh = batches_.emplace(index, std::move(kept)).second;
    EXPECT_TRUE(fresh) << "batch " << index << " twice";
  }
  std::size_t batches() const { return batches_.size(); }
  std::vector<Kept> Events() const {
    std::vector<Kept> events;
    std::size_t expected = 0;
    for (const auto& [index, batch] : batches_) {
      EXPECT_EQ(index, expected++);
      events.insert(events.end(), batch.begin(), batch.end());
    }
    return events;
  }

 private:
  std::mutex mutex_;
  std::map<std::size_t, std::vector<Kept>> batches_;
};

struct Outcome {
  ReadResult result;
  std::vector<Kept> events;

  std::vector<std::string> Lines() const {
    std::vector<std::string> lines;
    for (const Kept& kept : events) lines.push_back(kept.Line());
    return lines;
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const Kept& kept : events) names.push_back(kept.name);
    return names;
  }
  std::uint64_t Count(Loss loss) const {
    std::uint64_t count = 0;
    for (const Defect& defect : result.defects) count += defect.loss == loss ? defect.count : 0;
    return count;
  }
  std::string Detail(Loss loss) const {
    for (const Defect& defect : result.defects)
      if (defect.loss == loss) return defect.detail;
    return "";
  }
  // "ImportCutShort 1, ..." in the order reported.
  std::string Defects() const {
    std::string text;
    for (const Defect& defect : result.defects)
      text += (text.empty() ? "" : ", ") + std::string(Info(defect.loss).name) + " " + std::to_string(defect.count);
    return text;
  }
};

inline Outcome Finish(Result<ReadResult> read, const Collector& collector) {
  if (!read.ok()) {
    ADD_FAILURE() << read.error().what << "\n  " << read.error().where << "\n  " << read.error().hint;
    return {};
  }
  EXPECT_EQ(read.value().batches, collector.batches());
  return {std::move(read).value(), collector.Events()};
}

inline Outcome ReadText(std::string_view json, const ReadOptions& options = {.jobs = 1}) {
  Collector collector;
  return Finish(ReadTraceText(json, options, collector), collector);
}

inline Outcome ReadPath(const std::string& path, const ReadOptions& options = {.jobs = 1}) {
  Collector collector;
  return Finish(ReadTrace(path, options, collector), collector);
}

// The file around one or more elements.
inline std::string Trace(const std::string& events) {
  return R"({"schemaVersion": 1, "distributedInfo": {"rank": 3}, "traceEvents": [)" + events +
         R"(], "traceName": "t.json"})";
}

// A whole event; `fields` come last and win over those before.
inline std::string Named(const std::string& name, const std::string& fields = "") {
  return R"({"ph": "X", "cat": "cpu_op", "name": ")" + name + R"(", "pid": 1, "tid": 2, "ts": 10, "dur": 5)" +
         (fields.empty() ? "" : ", " + fields) + "}";
}

// A small trace of everything Kineto writes, indented as it does.
inline std::string SmallTrace() {
  return R"json(
{
  "schemaVersion": 1,
  "deviceProperties": [
    {
      "id": 0, "name": "Test GPU", "totalGlobalMem": 1000
    }
  ],
  "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}]},
  "traceEvents": [
  {
    "ph": "X", "cat": "cpu_op", "name": "aten::add [\"x\"]", "pid": 100, "tid": 101,
    "ts": 1669783687464181.125, "dur": 45.5,
    "args": {
      "External id": 3073,"Ev Idx": 0, "Fwd thread id": 1, "Sequence number": 1573, "Input Dims": [[2, 3], [], {"a": [1]}]
    }
  },
  {
    "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]",
    "pid": 100, "tid": 101,
    "ts": 1669783687464300,
    "args": {
      "Ev Idx": 1, "Device Type": 1, "Device Id": 4, "Addr": 139926520725504, "Bytes": -5242880, "Total Allocated": 5435638784
    }
  },
  {
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 100, "tid": 101,
    "ts": 1669783687389292, "dur": 32,
    "args": {
      "External id": 73689, "cbid": 211, "correlation": 73689
    }
  },
  {
    "ph": "s", "id": 73689, "pid": 100, "tid": 101, "ts": 1669783687389292,
    "cat": "ac2g", "name": "ac2g"
  },
  {
    "ph": "X", "cat": "kernel", "name": "void f<{lambda(int)#1}, std::array<char*, 2ul> >(int)", "pid": 4, "tid": 7,
    "ts": 1669783687389324, "dur": 3,
    "args": {
      "External id": 73689,
      "queued": 0, "device": 4, "context": 1,
      "stream": 7, "correlation": 73689,
      "registers per thread": 16,
      "grid": [24, 1, 1],
      "block": [128, 1, 1]
    }
  },
  {
    "ph": "f", "id": 73689, "pid": 4, "tid": 7, "ts": 1669783687389324,
    "cat": "ac2g", "name": "ac2g", "bp": "e"
  },
  {
    "ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pageable -> Device)", "pid": 4, "tid": 7,
    "ts": 1669783687828190, "dur": 15,
    "args": {
      "External id": 5, "device": 4, "context": 1, "stream": 7, "correlation": 5, "bytes": 5177344
    }
  },
  {
    "name": "process_name", "ph": "M", "ts": 1669783687384378, "pid": 100, "tid": 0,
    "args": {
      "name": "python3.8"
    }
  },
  {
    "ph": "X", "cat": "Trace", "ts": 1669783687352244, "dur": 1770482,
    "pid": "Spans", "tid": "PyTorch Profiler",
    "name": "PyTorch Profiler (0)",
    "args": {
      "Op count": 0
    }
  },
  {
    "name": "Record Window End", "ph": "i", "s": "g",
    "pid": "", "tid": "", "ts": 1669783689181563
  }
  ],
  "traceName": "/tmp/trace \"3\".json",
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1711964646000000000
}
)json";
}

// Without the blanks between its tokens.
inline std::string Minified(std::string_view json) {
  std::string out;
  bool inside = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    if (inside && json[i] == '\\') {
      out += json[i++];
    } else if (json[i] == '"') {
      inside = !inside;
    } else if (!inside && (json[i] == ' ' || json[i] == '\n')) {
      continue;
    }
    out += json[i];
  }
  return out;
}

}  // namespace lockstep::kineto
