#pragma once
// What NVTX makes once and uses often: domains, registered strings, names of
// categories, payload schemas. Tables of the process that only grow; equal things are
// one thing, so that a library which registers the same text again and again costs
// nothing. Thread: any, without locks; nothing is ever freed, handles stay good.

#include <atomic>
#include <cstdint>

namespace lockstep::probe {

// One object; the text follows. Handles of domains and registered strings that the application holds are pointers to
// these.
struct NvtxName {
  NvtxName* next;
  std::uint64_t key, hash;
  std::uint32_t number;  // From 1, in order of creation. Domains: fits 16 bits.
  std::uint32_t bytes;
  std::atomic<std::uint32_t> written;  // 1: a record of this process contains it.
  std::uint32_t value;                 // Schemas: see nvtx_payload.cc.
  const char* text() const { return reinterpret_cast<const char*>(this + 1); }
};

enum class NvtxTable : std::uint8_t { kDomains, kStrings, kCategories, kSchemas };

// Finds or makes the object with this key and text. Null if memory ran out (64 MiB), or there are 65535
// domains.
NvtxName* NvtxNameOf(NvtxTable table, std::uint64_t key, const char* text, std::uint32_t value = 0);
// The newest with this key; null if there is none.
NvtxName* FindNvtxName(NvtxTable table, std::uint64_t key);

// The same number in all tables of keys that belong to a domain (null: the default one).
inline std::uint32_t DomainNumber(const NvtxName* domain) { return domain == nullptr ? 0 : domain->number; }

// Whether its record must still be written. Null: there is nothing to write.
inline bool NotYetWritten(const NvtxName* name) {
  return name != nullptr && name->written.load(std::memory_order_relaxed) == 0;
}

// UTF-8 of a wide string in `out`, at most `room` bytes with the final 0. Returns `out`; null of null.
const char* Utf8Of(const wchar_t* text, char* out, std::uint32_t room);

// In a forked child: its rank file contains no names yet.
void ForgetWrittenNames();

}  // namespace lockstep::probe
