#pragma once
// A file's JSON text as a stream: as it is, or inflated.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "ingest/kineto/read/trace_reader.h"

namespace lockstep::kineto {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Fills `into` from its front; returns less than `bytes` only at the end of the text, 0 after it.
  virtual std::size_t Read(char* into, std::size_t bytes) = 0;
  virtual std::uint64_t file_done() const = 0;
  virtual std::uint64_t file_bytes() const = 0;
  // The defects found so far: kImportCutShort and kImportGarbage.
  const std::vector<Defect>& defects() const { return defects_; }

 protected:
  std::vector<Defect> defects_;
};

// kNotFound, kIo. The first bytes decide whether it is gzip, not its name.
Result<std::unique_ptr<ByteSource>> OpenSource(const std::string& path);

// `text` must outlive it.
std::unique_ptr<ByteSource> TextSource(std::string_view text);

}  // namespace lockstep::kineto
