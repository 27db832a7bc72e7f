#pragma once
// Structures of HDF5 as bytes, for files that are composed in memory (whole_file.h). They follow the HDF5 File Format
// Specification 3.0: superblock 3, object headers 2 (with checksums), links and attributes inside the headers, so that
// libhdf5 1.10 and later read them. Addresses and lengths have 8 bytes.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

namespace lockstep::trace {

inline constexpr std::size_t kSuperblockBytes = 48;

// The first bytes of a file whose root group's header is at `root` and which HDF5 takes to end at `end`.
std::string Superblock(std::uint64_t root, std::uint64_t end);

// A text in the heap, as an attribute names it.
struct HeapText {
  std::uint32_t index = 0, bytes = 0;
};

// The texts of all attributes of variable length, which h5py gives as str: one global heap. Equal texts, such as units,
// are there once and count their references.
class TextHeap {
 public:
  HeapText Add(std::string_view text);
  // The whole heap; at an address that is a multiple of 8.
  std::string Bytes() const;

 private:
  struct Place {
    HeapText text;
    std::size_t at;  // In objects_.
  };
  std::string objects_;
  std::unordered_map<std::string, Place> places_;
};

// The header of a group or dataset. Messages are added in any order, then it is appended to the file.
class ObjectHeader {
 public:
  void AddGroup();
  void AddLink(std::string_view name, std::uint64_t address);

  // A column of `rows` integers, and where its values are: one of the three functions below.
  void AddColumn(std::uint64_t rows, std::size_t width, bool is_signed);
  // None: the column has no rows.
  void AddNoValues();
  // In the header itself, under its checksum; up to kMostValuesInHeader bytes.
  void AddValues(std::span<const std::byte> values);
  // In one chunk, shuffled and deflated.
  void AddChunk(std::uint64_t rows, std::size_t width, std::uint64_t address, std::uint64_t bytes);

  void AddText(std::string_view name, HeapText text, std::uint64_t heap);
  // Up to kMostFixedText bytes.
  void AddFixedText(std::string_view name, std::string_view text);
  void AddInt(std::string_view name, std::int64_t value);

  // Returns the header's address. Afterwards values_address() is where the values of AddValues begin.
  std::uint64_t AppendTo(std::string& file);
  std::uint64_t values_address() const { return values_address_; }

 private:
  void Add(std::uint8_t type, std::string_view body, std::uint8_t flags = 0);
  void AddAttribute(std::string_view name, std::string_view type, std::string_view data);

  std::string messages_;
  bool has_attributes_ = false;
  std::size_t values_at_ = 0;  // In messages_.
  std::uint64_t values_address_ = 0;
};

// A message holds less than 64 KiB.
inline constexpr std::size_t kMostFixedText = 60 * 1024, kMostValuesInHeader = 32 * 1024;

}  // namespace lockstep::trace
