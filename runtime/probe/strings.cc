// Interning of texts, per thread. A literal of the executable is found by its
// address (RingPage::names); any other text by its address too, but the address
// may have been reused, so the text is compared; else by its content. Hashing the
// bytes of a 36-character name costs more than everything else in a push and pop.

#include <string.h>
#include <sys/mman.h>

#include "core/hash.h"
#include "runtime/probe/ring.h"
#include "runtime/probe/window.h"

namespace lockstep::probe {
namespace {

constexpr std::uint32_t kAddresses = 512, kTexts = 2048, kTextBytes = 192 * 1024, kStacks = 1024;

struct StringPool {
  struct Address {
    const char* text;
    std::uint32_t entry;  // Index in texts, + 1.
  } addresses[kAddresses];
  struct Text {
    std::uint64_t hash;
    std::uint32_t offset, bytes, id;  // id 0: free.
  } texts[kTexts];
  std::uint32_t used_texts, used_bytes;
  char copy[kTextBytes];  // Each with its final 0.
  // What calls came from, by hash; hash 0: free. Untouched where nobody wants to know.
  std::uint32_t used_stacks;
  struct Stack {
    std::uint64_t hash;
    std::uint32_t number;
  } stacks[kStacks];
};

StringPool* PoolOf(RingPage& page) {
  if (page.producer.strings == nullptr) {
    const ErrnoKeeper errno_keeper;
    void* memory = mmap(nullptr, sizeof(StringPool), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) page.producer.strings = memory;
  }
  return static_cast<StringPool*>(page.producer.strings);
}

std::uint32_t AddressSlot(const char* text) {
  return static_cast<std::uint32_t>((reinterpret_cast<std::uintptr_t>(text) * 0x9e3779b97f4a7c15u) >> 55);
}

// A program that generates names (per step, say) must not make the pool grow without bound: all texts are forgotten,
// and ids continue.
void Forget(StringPool& pool) {
  memset(pool.addresses, 0, sizeof pool.addresses);
  memset(pool.texts, 0, sizeof pool.texts);
  pool.used_texts = pool.used_bytes = 0;
}

// Bytes of `text` up to the limit, cut between UTF-8 characters.
std::uint32_t CutLength(const char* text, bool* cut) {
  std::size_t bytes = strnlen(text, kMaxStringBytes + 1);
  *cut = bytes > kMaxStringBytes;
  if (*cut) {
    bytes = kMaxStringBytes;
    while (bytes > kMaxStringBytes - 4 && (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80) --bytes;
  }
  return static_cast<std::uint32_t>(bytes);
}

}  // namespace

void FreeStrings(void* pool) {
  if (pool != nullptr) munmap(pool, sizeof(StringPool));
}

namespace {

struct Sought {
  std::uint64_t hash;
  std::uint32_t bytes;
  bool cut;
};

Sought Describe(const char* text) {
  Sought sought{};
  sought.bytes = CutLength(text, &sought.cut);
  Hash64 hash;
  hash.Add(std::string_view(text, sought.bytes));
  sought.hash = hash.value();
  return sought;
}

std::uint32_t IdAtAddress(const StringPool& pool, const char* text) {
  const StringPool::Address& address = pool.addresses[AddressSlot(text)];
  if (address.text != text) return 0;
  const StringPool::Text& known = pool.texts[address.entry - 1];
  return strcmp(pool.copy + known.offset, text) == 0 ? known.id : 0;
}

// The position of the text; if it is not there (id 0), the position for it.
std::uint32_t PlaceOf(const StringPool& pool, const Sought& sought, const char* text) {
  auto place = static_cast<std::uint32_t>(sought.hash % kTexts);
  for (; pool.texts[place].id != 0; place = (place + 1) % kTexts) {
    const StringPool::Text& known = pool.texts[place];
    if (known.hash == sought.hash && known.bytes == sought.bytes &&
        memcmp(pool.copy + known.offset, text, sought.bytes) == 0)
      break;
  }
  return place;
}

}  // namespace

std::uint32_t* CallStackNumber(RingPage& page, std::uint64_t hash) {
  StringPool* pool = PoolOf(page);
  if (pool == nullptr) return nullptr;
  if (pool->used_stacks >= kStacks / 2) {  // As with texts, ever new ones must not take memory without end.
    memset(pool->stacks, 0, sizeof pool->stacks);
    pool->used_stacks = 0;
  }
  auto place = static_cast<std::uint32_t>(hash % kStacks);
  while (pool->stacks[place].hash != 0 && pool->stacks[place].hash != hash) place = (place + 1) % kStacks;
  StringPool::Stack& stack = pool->stacks[place];
  if (stack.hash == 0) {
    stack.hash = hash;
    pool->used_stacks += 1;
  }
  return &stack.number;
}

std::uint32_t FindText(RingPage& page, const char* text) {
  auto* pool = static_cast<StringPool*>(page.producer.strings);
  if (pool == nullptr || text == nullptr) return 0;
  if (const std::uint32_t id = IdAtAddress(*pool, text); id != 0) return id;
  const Sought sought = Describe(text);
  const std::uint32_t place = PlaceOf(*pool, sought, text);
  if (pool->texts[place].id != 0 && !sought.cut) pool->addresses[AddressSlot(text)] = {text, place + 1};
  return pool->texts[place].id;
}

std::uint32_t SlowWriter::Intern(const char* text) {
  if (page_ == nullptr || text == nullptr) return 0;
  StringPool* pool = PoolOf(*page_);
  if (pool != nullptr)
    if (const std::uint32_t id = IdAtAddress(*pool, text); id != 0) return id;
  const Sought sought = Describe(text);
  std::uint32_t place = 0;
  if (pool != nullptr) {
    if (pool->used_texts >= kTexts / 2 || pool->used_bytes + sought.bytes + 1 > kTextBytes) Forget(*pool);
    place = PlaceOf(*pool, sought, text);
    if (pool->texts[place].id != 0) {
      if (!sought.cut) pool->addresses[AddressSlot(text)] = {text, place + 1};
      return pool->texts[place].id;
    }
  }
  const std::uint32_t id = page_->header.next_string + 1;
  const auto slots = static_cast<std::uint16_t>(1 + (sought.bytes + kSlotBytes - 1) / kSlotBytes);
  const StringRecord record{
      {RecordKind::kString, static_cast<std::uint8_t>(sought.cut ? 1 : 0), slots}, id, sought.bytes, {}};
  if (!Append(&record, 1, text, sought.bytes, 1)) return 0;
  page_->header.next_string = id;
  if (pool != nullptr) {
    pool->texts[place] = {sought.hash, pool->used_bytes, sought.bytes, id};
    memcpy(pool->copy + pool->used_bytes, text, sought.bytes);
    pool->copy[pool->used_bytes + sought.bytes] = 0;
    pool->used_bytes += sought.bytes + 1;
    pool->used_texts += 1;
    if (!sought.cut) pool->addresses[AddressSlot(text)] = {text, place + 1};
  }
  return id;
}

void SlowWriter::RememberName(const char* text, std::uint32_t id) {
  // A capture window that examines ranges must see each.
  if (page_ == nullptr || id == 0 || WindowWatchesRanges() || !IsConstantText(text)) return;
  const std::size_t slot = ring::NameSlot(text);
  page_->names[slot] = text;
  page_->infos[slot] = id | std::uint64_t{RangeHead(0)} << 32;
}

}  // namespace lockstep::probe

extern "C" std::uint32_t lockstep::lockstep_intern(const char* text) { return probe::SlowWriter(0).Intern(text); }
