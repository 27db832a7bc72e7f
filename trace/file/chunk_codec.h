#pragma once
// One chunk of a column: values <-> shuffled, deflated bytes, as HDF5's filters
// `shuffle` and `deflate` define them.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

struct libdeflate_compressor;
struct libdeflate_decompressor;

namespace lockstep::trace {

// out[byte * count + i] = in[i * width + byte], HDF5's shuffle of `count` elements;
// the planes of `out` are `stride` bytes apart.
void Shuffle(const std::byte* in, std::byte* out, std::size_t count, std::size_t width, std::size_t stride);
void Unshuffle(const std::byte* in, std::byte* out, std::size_t count, std::size_t width, std::size_t stride);

// Thread: one at a time.
class ChunkEncoder {
 public:
  ChunkEncoder();
  ChunkEncoder(const ChunkEncoder&) = delete;
  ChunkEncoder& operator=(const ChunkEncoder&) = delete;
  ~ChunkEncoder();
  // zlib stream of the shuffled values, padded with zeros to `chunk_rows`; valid
  // until the next call. Empty: out of memory.
  std::span<const std::byte> Encode(const std::byte* values, std::size_t rows, std::size_t chunk_rows,
                                    std::size_t width);

 private:
  libdeflate_compressor* compressor_;
  std::vector<std::byte> shuffled_, deflated_;
};

// The parameters with which a stored chunk was made.
struct ChunkForm {
  bool deflated, shuffled;
  std::size_t chunk_rows, width;
};

// Thread: one at a time.
class ChunkDecoder {
 public:
  ChunkDecoder();
  ChunkDecoder(const ChunkDecoder&) = delete;
  ChunkDecoder& operator=(const ChunkDecoder&) = delete;
  ~ChunkDecoder();
  // Decodes rows [first, first + rows) of the chunk. Returns false unless `stored` holds exactly one chunk of that
  // form; first + rows must be within it.
  bool Decode(std::span<const std::byte> stored, const ChunkForm& form, std::size_t first, std::size_t rows,
              std::byte* values);

 private:
  libdeflate_decompressor* decompressor_;
  std::vector<std::byte> inflated_;
};

}  // namespace lockstep::trace
