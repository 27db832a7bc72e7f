#pragma once
// Which blocks of a file are worth compressing on the way. Rank files hold deflated columns already and gain little;
// spools hold plain records and become a fraction.

#include <cstddef>
#include <string_view>

#include "trace/file/chunk_codec.h"

namespace lockstep::agent {

class BlockEncoder {
 public:
  // The block as a zlib stream, if that is at least an eighth shorter; "" otherwise. Valid until the next call. After a
  // block that is not, the next ones are not tried.
  std::string_view Encode(std::string_view block) {
    if (left_out_ > 0) {
      --left_out_;
      return {};
    }
    const auto encoded =
        encoder_.Encode(reinterpret_cast<const std::byte*>(block.data()), block.size(), block.size(), 1);
    if (!encoded.empty() && encoded.size() <= block.size() - block.size() / 8)
      return {reinterpret_cast<const char*>(encoded.data()), encoded.size()};
    left_out_ = kLeftOut;
    return {};
  }

 private:
  static constexpr int kLeftOut = 15;
  trace::ChunkEncoder encoder_;
  int left_out_ = 0;
};

class BlockDecoder {
 public:
  // `out` must have exactly the length that the block had. Returns false if it is no such block.
  bool Decode(std::string_view stream, char* out, std::size_t bytes) {
    return decoder_.Decode({reinterpret_cast<const std::byte*>(stream.data()), stream.size()},
                           {.deflated = true, .shuffled = false, .chunk_rows = bytes, .width = 1}, 0, bytes,
                           reinterpret_cast<std::byte*>(out));
  }

 private:
  trace::ChunkDecoder decoder_;
};

}  // namespace lockstep::agent
