#include "runtime/probe/nvtx_names.h"

#include <string.h>
#include <sys/mman.h>

#include <new>

#include "core/hash.h"
#include "core/ring_layout.h"
#include "runtime/probe/ring.h"

namespace lockstep::probe {
namespace {

constexpr std::uint32_t kBuckets = 1024;
constexpr std::uint64_t kChunkBytes = std::uint64_t{256} << 10, kMaxBytes = std::uint64_t{64} << 20;
constexpr std::uint32_t kMaxDomains = 0xffff;

struct Table {
  std::atomic<NvtxName*> buckets[kBuckets];
  std::atomic<std::uint32_t> count;
};
constinit Table g_tables[4] = {};

// A chunk of memory that is never freed; its used bytes come first.
struct Chunk {
  std::atomic<std::uint64_t> used;
};
constinit std::atomic<Chunk*> g_chunk{nullptr};
constinit std::atomic<std::uint64_t> g_mapped_bytes{0};

void* Allocate(std::uint64_t bytes) {
  bytes = (bytes + 15) & ~std::uint64_t{15};
  for (;;) {
    Chunk* chunk = g_chunk.load(std::memory_order_acquire);
    if (chunk != nullptr) {
      const std::uint64_t at = chunk->used.fetch_add(bytes, std::memory_order_relaxed);
      if (at + bytes <= kChunkBytes) return reinterpret_cast<char*>(chunk) + at;
    }
    if (g_mapped_bytes.fetch_add(kChunkBytes, std::memory_order_relaxed) >= kMaxBytes) {
      g_mapped_bytes.fetch_sub(kChunkBytes, std::memory_order_relaxed);
      return nullptr;
    }
    const ErrnoKeeper errno_keeper;
    void* memory = mmap(nullptr, kChunkBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    auto* fresh = new (memory) Chunk{};
    fresh->used.store((sizeof(Chunk) + 15) & ~std::uint64_t{15}, std::memory_order_relaxed);
    if (!g_chunk.compare_exchange_strong(chunk, fresh)) {
      munmap(memory, kChunkBytes);
      g_mapped_bytes.fetch_sub(kChunkBytes, std::memory_order_relaxed);
    }
  }
}

// Categories and schemas are looked up without their text, so it is not hashed.
std::atomic<NvtxName*>& BucketOf(NvtxTable table, std::uint64_t key, std::uint64_t text_hash) {
  Hash64 hash;
  hash.Add(key);
  if (table == NvtxTable::kDomains || table == NvtxTable::kStrings) hash.Add(text_hash);
  return g_tables[static_cast<std::uint32_t>(table)].buckets[hash.value() % kBuckets];
}

NvtxName* Among(NvtxName* from, const NvtxName* until, std::uint64_t key, std::uint64_t hash, const char* text,
                std::uint32_t bytes, std::uint32_t value) {
  for (NvtxName* at = from; at != until; at = at->next)
    if (at->key == key && at->hash == hash && at->bytes == bytes && at->value == value &&
        memcmp(at->text(), text, bytes) == 0)
      return at;
  return nullptr;
}

}  // namespace

NvtxName* NvtxNameOf(NvtxTable table, std::uint64_t key, const char* text, std::uint32_t value) {
  if (text == nullptr) text = "";
  // One byte more than records keep, so that the limit and its mark are applied.
  const auto bytes = static_cast<std::uint32_t>(strnlen(text, kMaxStringBytes + 1));
  Hash64 hash;
  hash.Add(std::string_view(text, bytes));
  std::atomic<NvtxName*>& bucket = BucketOf(table, key, hash.value());
  const bool renames = table == NvtxTable::kCategories || table == NvtxTable::kSchemas;
  NvtxName* head = bucket.load(std::memory_order_acquire);
  if (renames) {
    // Only the newest entry of a key counts.
    if (NvtxName* known = FindNvtxName(table, key);
        known != nullptr && known == Among(known, known->next, key, hash.value(), text, bytes, value))
      return known;
  } else if (NvtxName* known = Among(head, nullptr, key, hash.value(), text, bytes, value)) {
    return known;
  }
  std::atomic<std::uint32_t>& count = g_tables[static_cast<std::uint32_t>(table)].count;
  if (table == NvtxTable::kDomains && count.load(std::memory_order_relaxed) >= kMaxDomains) return nullptr;
  void* memory = Allocate(sizeof(NvtxName) + bytes + 1);
  if (memory == nullptr) return nullptr;
  auto* fresh = new (memory) NvtxName{head, key, hash.value(), 0, bytes, {0}, value};
  memcpy(static_cast<void*>(fresh + 1), text, bytes);
  reinterpret_cast<char*>(fresh + 1)[bytes] = 0;
  fresh->number = count.fetch_add(1, std::memory_order_relaxed) + 1;
  if (table == NvtxTable::kDomains && fresh->number > kMaxDomains) return nullptr;
  while (!bucket.compare_exchange_weak(fresh->next, fresh, std::memory_order_acq_rel)) {
    if (renames) continue;
    // Another thread was faster, perhaps with the same text: what was allocated is left unused.
    if (NvtxName* known = Among(fresh->next, head, key, hash.value(), text, bytes, value)) return known;
  }
  return fresh;
}

NvtxName* FindNvtxName(NvtxTable table, std::uint64_t key) {
  for (NvtxName* at = BucketOf(table, key, 0).load(std::memory_order_acquire); at != nullptr; at = at->next)
    if (at->key == key) return at;
  return nullptr;
}

const char* Utf8Of(const wchar_t* text, char* out, std::uint32_t room) {
  if (text == nullptr) return nullptr;
  std::uint32_t at = 0;
  for (; *text != 0; ++text) {
    auto c = static_cast<std::uint32_t>(static_cast<char32_t>(*text));
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) c = 0xfffd;
    const std::uint32_t bytes = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    if (at + bytes + 1 > room) break;
    if (bytes == 1) {
      out[at++] = static_cast<char>(c);
      continue;
    }
    out[at] = static_cast<char>((0xf00 >> bytes & 0xff) | c >> (6 * (bytes - 1)));
    for (std::uint32_t i = 1; i < bytes; ++i)
      out[at + i] = static_cast<char>(0x80 | (c >> (6 * (bytes - 1 - i)) & 0x3f));
    at += bytes;
  }
  out[at] = 0;
  return out;
}

void ForgetWrittenNames() {
  for (const NvtxTable table : {NvtxTable::kDomains, NvtxTable::kCategories}) {
    if (g_tables[static_cast<std::uint32_t>(table)].count.load(std::memory_order_relaxed) == 0) continue;
    for (std::atomic<NvtxName*>& bucket : g_tables[static_cast<std::uint32_t>(table)].buckets)
      for (NvtxName* at = bucket.load(std::memory_order_acquire); at != nullptr; at = at->next)
        at->written.store(0, std::memory_order_relaxed);
  }
}

}  // namespace lockstep::probe
