#include "trace/file/hdf5_bytes.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

namespace lockstep::trace {
namespace {

static_assert(std::endian::native == std::endian::little, "HDF5's numbers are copied as they are in memory");

constexpr std::uint64_t kUndefined = UINT64_MAX;

// Types of header messages.
enum MessageType : std::uint8_t {
  kDataspace = 0x01,
  kLinkInfo = 0x02,
  kDatatype = 0x03,
  kFillValue = 0x05,
  kLink = 0x06,
  kLayout = 0x08,
  kGroupInfo = 0x0a,
  kFilters = 0x0b,
  kAttribute = 0x0c,
  kAttributeInfo = 0x15,
};
constexpr std::uint8_t kConstant = 1;  // Flag of a message that never changes.

class Packed {
 public:
  template <typename T>
  Packed& Put(T value) {
    static_assert(std::is_integral_v<T>);
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Packed& PutByte(std::uint8_t value) { return Put(value); }
  Packed& PutText(std::string_view text) {
    text_ += text;
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Bob Jenkins' lookup3, as HDF5 checksums its metadata (H5_checksum_lookup3).
std::uint32_t Checksum(std::string_view bytes) {
  std::uint32_t a = 0xdeadbeef + static_cast<std::uint32_t>(bytes.size()), b = a, c = a;
  const auto take = [&] {
    std::uint32_t words[3] = {};
    const std::size_t count = std::min(bytes.size(), sizeof words);
    std::memcpy(words, bytes.data(), count);
    bytes.remove_prefix(count);
    a += words[0], b += words[1], c += words[2];
  };
  while (bytes.size() > 12) {
    take();
    a -= c, a ^= std::rotl(c, 4), c += b;
    b -= a, b ^= std::rotl(a, 6), a += c;
    c -= b, c ^= std::rotl(b, 8), b += a;
    a -= c, a ^= std::rotl(c, 16), c += b;
    b -= a, b ^= std::rotl(a, 19), a += c;
    c -= b, c ^= std::rotl(b, 4), b += a;
  }
  if (bytes.empty()) return c;
  take();
  c ^= b, c -= std::rotl(b, 14);
  a ^= c, a -= std::rotl(c, 11);
  b ^= a, b -= std::rotl(a, 25);
  c ^= b, c -= std::rotl(b, 16);
  a ^= c, a -= std::rotl(c, 4);
  b ^= a, b -= std::rotl(a, 14);
  c ^= b, c -= std::rotl(b, 24);
  return c;
}

// A fixed-point number: class 0 of version 1, little-endian.
std::string IntegerType(std::size_t width, bool is_signed) {
  return Packed()
      .PutByte(0x10)
      .PutByte(is_signed ? 8 : 0)
      .Put(std::uint16_t{0})
      .Put(static_cast<std::uint32_t>(width))
      .Put(std::uint16_t{0})
      .Put(static_cast<std::uint16_t>(8 * width))
      .text();
}

// UTF-8 of a fixed length, padded with zeros: class 3.
std::string FixedTextType(std::size_t bytes) {
  return Packed().PutByte(0x13).PutByte(0x11).Put(std::uint16_t{0}).Put(static_cast<std::uint32_t>(bytes)).text();
}

// UTF-8 of variable length that ends with a zero: class 9, kind 1 (string), of unsigned bytes.
std::string HeapTextType() {
  return Packed()
      .PutByte(0x19)
      .PutByte(0x01)
      .PutByte(0x01)
      .PutByte(0)
      .Put(std::uint32_t{16})
      .PutText(IntegerType(1, false))
      .text();
}

// Version 2: rank, no maximum, kind (0 scalar, 1 simple), extent.
std::string ScalarSpace() { return Packed().PutByte(2).PutByte(0).PutByte(0).PutByte(0).text(); }

constexpr std::size_t kMinHeapBytes = 4096, kHeapHeaderBytes = 16, kObjectHeaderBytes = 16;

}  // namespace

std::string Superblock(std::uint64_t root, std::uint64_t end) {
  Packed block;
  block.PutText("\x89HDF\r\n\x1a\n").PutByte(3).PutByte(8).PutByte(8).PutByte(0);
  block.Put(std::uint64_t{0}).Put(kUndefined).Put(end).Put(root);
  block.Put(Checksum(block.text()));
  return block.text();
}

HeapText TextHeap::Add(std::string_view text) {
  if (text.empty()) return {};
  const auto [place, is_new] = places_.try_emplace(std::string(text));
  const auto add_reference = [&] {
    std::uint16_t references = 0;
    char* const at = objects_.data() + place->second.at + sizeof(std::uint16_t);
    std::memcpy(&references, at, sizeof references);
    ++references;
    std::memcpy(at, &references, sizeof references);
  };
  if (is_new) {
    const auto index = static_cast<std::uint16_t>(places_.size());
    place->second = {{index, static_cast<std::uint32_t>(text.size())}, objects_.size()};
    Packed object;
    object.Put(index).Put(std::uint16_t{0}).Put(std::uint32_t{0}).Put(static_cast<std::uint64_t>(text.size()));
    objects_ += object.PutText(text).text();
    objects_.resize((objects_.size() + 7) / 8 * 8);
  }
  add_reference();
  return place->second.text;
}

std::string TextHeap::Bytes() const {
  const std::size_t used = kHeapHeaderBytes + objects_.size(), size = std::max(used, kMinHeapBytes);
  Packed heap;
  heap.PutText("GCOL").PutByte(1).PutByte(0).Put(std::uint16_t{0}).Put(static_cast<std::uint64_t>(size));
  heap.PutText(objects_);
  // What is left is object 0.
  if (size - used >= kObjectHeaderBytes) heap.Put(std::uint64_t{0}).Put(static_cast<std::uint64_t>(size - used));
  std::string bytes = heap.text();
  bytes.resize(size);
  return bytes;
}

void ObjectHeader::Add(std::uint8_t type, std::string_view body, std::uint8_t flags) {
  messages_ += Packed().PutByte(type).Put(static_cast<std::uint16_t>(body.size())).PutByte(flags).text();
  messages_ += body;
}

void ObjectHeader::AddGroup() {
  // No heap and no tree: the links are in the header.
  Add(kLinkInfo, Packed().PutByte(0).PutByte(0).Put(kUndefined).Put(kUndefined).text());
  Add(kGroupInfo, Packed().PutByte(0).PutByte(0).text(), kConstant);
}

void ObjectHeader::AddLink(std::string_view name, std::uint64_t address) {
  // Version 1, a hard link, the name's length in one byte.
  const auto length = static_cast<std::uint8_t>(name.size());
  Add(kLink, Packed().PutByte(1).PutByte(0).PutByte(length).PutText(name.substr(0, length)).Put(address).text());
}

void ObjectHeader::AddColumn(std::uint64_t rows, std::size_t width, bool is_signed) {
  Add(kDataspace, Packed().PutByte(2).PutByte(1).PutByte(0).PutByte(1).Put(rows).text());
  Add(kDatatype, IntegerType(width, is_signed), kConstant);
  // Version 3: allocated early, never filled, and with HDF5's own fill value, zero.
  Add(kFillValue, Packed().PutByte(3).PutByte(0x05).text(), kConstant);
}

void ObjectHeader::AddNoValues() {
  Add(kLayout, Packed().PutByte(3).PutByte(1).Put(kUndefined).Put(std::uint64_t{0}).text());
}

void ObjectHeader::AddValues(std::span<const std::byte> values) {
  const auto size = static_cast<std::uint16_t>(values.size());
  const std::string_view bytes(reinterpret_cast<const char*>(values.data()), size);
  Add(kLayout, Packed().PutByte(3).PutByte(0).Put(size).PutText(bytes).text());
  values_at_ = messages_.size() - size;
}

void ObjectHeader::AddChunk(std::uint64_t rows, std::size_t width, std::uint64_t address, std::uint64_t bytes) {
  Packed filters;
  filters.PutByte(2).PutByte(2);
  // Each: its number, optional, one parameter.
  filters.Put(std::uint16_t{2}).Put(std::uint16_t{1}).Put(std::uint16_t{1}).Put(static_cast<std::uint32_t>(width));
  filters.Put(std::uint16_t{1}).Put(std::uint16_t{1}).Put(std::uint16_t{1}).Put(std::uint32_t{1});
  Add(kFilters, filters.text(), kConstant);
  // Version 4, chunked, filtered; dimensions in as many bytes as the larger one needs, as HDF5 2.0 insists; index 1: a
  // single chunk, none of whose filters was skipped.
  const std::uint64_t dimensions[] = {rows, width};
  const std::size_t length = (static_cast<std::size_t>(std::bit_width(std::max<std::uint64_t>(rows, width))) + 7) / 8;
  Packed layout;
  layout.PutByte(4).PutByte(2).PutByte(2).PutByte(2).PutByte(static_cast<std::uint8_t>(length));
  for (const std::uint64_t& dimension : dimensions)
    layout.PutText(std::string_view(reinterpret_cast<const char*>(&dimension), length));
  layout.PutByte(1).Put(bytes).Put(std::uint32_t{0}).Put(address);
  Add(kLayout, layout.text());
}

void ObjectHeader::AddAttribute(std::string_view name, std::string_view type, std::string_view data) {
  // Without this message HDF5 takes a header of this version to have no attributes. They are in the header.
  if (!has_attributes_) Add(kAttributeInfo, Packed().PutByte(0).PutByte(0).Put(kUndefined).Put(kUndefined).text());
  has_attributes_ = true;
  const std::string space = ScalarSpace();
  Packed body;
  body.PutByte(3).PutByte(0);
  body.Put(static_cast<std::uint16_t>(name.size() + 1)).Put(static_cast<std::uint16_t>(type.size()));
  body.Put(static_cast<std::uint16_t>(space.size())).PutByte(0);
  body.PutText(name).PutByte(0).PutText(type).PutText(space).PutText(data);
  Add(kAttribute, body.text());
}

void ObjectHeader::AddText(std::string_view name, HeapText text, std::uint64_t heap) {
  const std::uint64_t address = text.bytes == 0 ? 0 : heap;
  AddAttribute(name, HeapTextType(), Packed().Put(text.bytes).Put(address).Put(text.index).text());
}

void ObjectHeader::AddFixedText(std::string_view name, std::string_view text) {
  // HDF5 has no type of size 0.
  const std::string one(1, '\0');
  AddAttribute(name, FixedTextType(std::max<std::size_t>(text.size(), 1)), text.empty() ? std::string_view(one) : text);
}

void ObjectHeader::AddInt(std::string_view name, std::int64_t value) {
  AddAttribute(name, IntegerType(sizeof value, true), Packed().Put(value).text());
}

std::uint64_t ObjectHeader::AppendTo(std::string& file) {
  const std::uint64_t address = file.size();
  // The lowest bits of the flags say how many bytes the size has.
  const std::size_t size = messages_.size();
  const std::uint8_t form = size <= UINT8_MAX ? 0 : size <= UINT16_MAX ? 1 : 2;
  Packed head;
  head.PutText("OHDR").PutByte(2).PutByte(form);
  head.PutText(std::string_view(reinterpret_cast<const char*>(&size), std::size_t{1} << form));
  file += head.text();
  values_address_ = file.size() + values_at_;
  file += messages_;
  const std::uint32_t checksum = Checksum(std::string_view(file).substr(address));
  file.append(reinterpret_cast<const char*>(&checksum), sizeof checksum);
  return address;
}

}  // namespace lockstep::trace
