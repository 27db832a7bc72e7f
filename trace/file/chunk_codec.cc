#include "trace/file/chunk_codec.h"

#include <libdeflate.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <cstring>

namespace lockstep::trace {
namespace {

constexpr int kDeflateLevel = 1;

template <std::size_t kWidth>
void ShuffleScalar(const std::byte* in, std::byte* out, std::size_t first, std::size_t count, std::size_t stride) {
  for (std::size_t i = first; i < count; ++i)
    for (std::size_t byte = 0; byte < kWidth; ++byte) out[byte * stride + i] = in[i * kWidth + byte];
}
template <std::size_t kWidth>
void UnshuffleScalar(const std::byte* in, std::byte* out, std::size_t first, std::size_t count, std::size_t stride) {
  for (std::size_t i = first; i < count; ++i)
    for (std::size_t byte = 0; byte < kWidth; ++byte) out[i * kWidth + byte] = in[byte * stride + i];
}

#if defined(__SSE2__)
// Sixteen elements at a time. A byte matrix of 16 rows and kWidth columns is
// transposed by unpacking: each pass interleaves the first with the second half
// of the registers, which rotates the index bits of the bytes by one.
template <std::size_t kWidth, std::size_t kPasses>
void Interleave(__m128i (&rows)[kWidth]) {
  __m128i next[kWidth];
  for (std::size_t pass = 0; pass < kPasses; ++pass) {
    for (std::size_t i = 0; i < kWidth / 2; ++i) {
      next[2 * i] = _mm_unpacklo_epi8(rows[i], rows[i + kWidth / 2]);
      next[2 * i + 1] = _mm_unpackhi_epi8(rows[i], rows[i + kWidth / 2]);
    }
    for (std::size_t i = 0; i < kWidth; ++i) rows[i] = next[i];
  }
}

// An index of log2(16 * kWidth) bits is rotated left by one per pass: values to
// planes need 4 passes (element bits to the end), planes to values log2(kWidth).
template <std::size_t kWidth>
void ShuffleBlocks(const std::byte* in, std::byte* out, std::size_t count, std::size_t stride) {
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    __m128i rows[kWidth];
    for (std::size_t r = 0; r < kWidth; ++r)
      rows[r] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i * kWidth + r * 16));
    Interleave<kWidth, 4>(rows);
    for (std::size_t r = 0; r < kWidth; ++r)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + r * stride + i), rows[r]);
  }
  ShuffleScalar<kWidth>(in, out, i, count, stride);
}
template <std::size_t kWidth>
void UnshuffleBlocks(const std::byte* in, std::byte* out, std::size_t count, std::size_t stride) {
  constexpr std::size_t kPasses = kWidth == 8 ? 3 : kWidth == 4 ? 2 : 1;
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    __m128i rows[kWidth];
    for (std::size_t r = 0; r < kWidth; ++r)
      rows[r] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + r * stride + i));
    Interleave<kWidth, kPasses>(rows);
    for (std::size_t r = 0; r < kWidth; ++r)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i * kWidth + r * 16), rows[r]);
  }
  UnshuffleScalar<kWidth>(in, out, i, count, stride);
}
#else
template <std::size_t kWidth>
void ShuffleBlocks(const std::byte* in, std::byte* out, std::size_t count, std::size_t stride) {
  ShuffleScalar<kWidth>(in, out, 0, count, stride);
}
template <std::size_t kWidth>
void UnshuffleBlocks(const std::byte* in, std::byte* out, std::size_t count, std::size_t stride) {
  UnshuffleScalar<kWidth>(in, out, 0, count, stride);
}
#endif

}  // namespace

void Shuffle(const std::byte* in, std::byte* out, std::size_t count, std::size_t width, std::size_t stride) {
  switch (width) {
    case 1:
      std::memcpy(out, in, count);
      return;
    case 2:
      return ShuffleBlocks<2>(in, out, count, stride);
    case 4:
      return ShuffleBlocks<4>(in, out, count, stride);
    default:
      return ShuffleBlocks<8>(in, out, count, stride);
  }
}

void Unshuffle(const std::byte* in, std::byte* out, std::size_t count, std::size_t width, std::size_t stride) {
  switch (width) {
    case 1:
      std::memcpy(out, in, count);
      return;
    case 2:
      return UnshuffleBlocks<2>(in, out, count, stride);
    case 4:
      return UnshuffleBlocks<4>(in, out, count, stride);
    default:
      return UnshuffleBlocks<8>(in, out, count, stride);
  }
}

ChunkEncoder::ChunkEncoder() : compressor_(libdeflate_alloc_compressor(kDeflateLevel)) {}
ChunkEncoder::~ChunkEncoder() { libdeflate_free_compressor(compressor_); }

std::span<const std::byte> ChunkEncoder::Encode(const std::byte* values, std::size_t rows, std::size_t chunk_rows,
                                                std::size_t width) {
  if (compressor_ == nullptr) return {};
  const std::size_t bytes = chunk_rows * width;
  if (width > 1 || rows < chunk_rows) {
    shuffled_.resize(bytes);
    Shuffle(values, shuffled_.data(), rows, width, chunk_rows);
    for (std::size_t byte = 0; byte < width; ++byte)
      std::memset(shuffled_.data() + byte * chunk_rows + rows, 0, chunk_rows - rows);
    values = shuffled_.data();
  }
  deflated_.resize(libdeflate_zlib_compress_bound(compressor_, bytes));
  const std::size_t stored = libdeflate_zlib_compress(compressor_, values, bytes, deflated_.data(), deflated_.size());
  return {deflated_.data(), stored};
}

ChunkDecoder::ChunkDecoder() : decompressor_(libdeflate_alloc_decompressor()) {}
ChunkDecoder::~ChunkDecoder() { libdeflate_free_decompressor(decompressor_); }

bool ChunkDecoder::Decode(std::span<const std::byte> stored, const ChunkForm& form, std::size_t first, std::size_t rows,
                          std::byte* values) {
  const std::size_t bytes = form.chunk_rows * form.width;
  const bool shuffled = form.shuffled && form.width > 1;
  const std::byte* whole = stored.data();
  if (form.deflated) {
    if (decompressor_ == nullptr) return false;
    const bool direct = !shuffled && rows == form.chunk_rows;
    if (!direct && inflated_.size() < bytes) inflated_.resize(bytes);
    std::byte* out = direct ? values : inflated_.data();
    // Without an argument for the actual size, libdeflate fails unless the size is exactly `bytes`.
    if (libdeflate_zlib_decompress(decompressor_, stored.data(), stored.size(), out, bytes, nullptr) !=
        LIBDEFLATE_SUCCESS)
      return false;
    if (direct) return true;
    whole = out;
  } else if (stored.size() != bytes) {
    return false;
  }
  if (shuffled)
    Unshuffle(whole + first, values, rows, form.width, form.chunk_rows);
  else
    std::memcpy(values, whole + first * form.width, rows * form.width);
  return true;
}

}  // namespace lockstep::trace
