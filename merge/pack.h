#pragma once
// Serialises tables and numbers for another process of the same program.

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace lockstep::merge {

class Packer {
 public:
  template <typename T>
  requires std::is_trivially_copyable_v<T>
  void Put(const T& value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void Put(std::string_view text) {
    Put(static_cast<std::uint64_t>(text.size()));
    bytes_.append(text);
  }
  void Put(const std::string& text) { Put(std::string_view(text)); }
  template <typename T>
  void Put(const std::vector<T>& values) {
    Put(static_cast<std::uint64_t>(values.size()));
    if constexpr (std::is_trivially_copyable_v<T>)
      bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    else
      for (const T& value : values) Put(value);
  }
  // Appends the values in order.
  template <typename... Values>
  requires(sizeof...(Values) > 1) void Put(const Values&... values) { (Put(values), ...); }
  // Appends a table, or all tables of a file.
  template <typename Table>
  void PutTable(const Table& table) {
    table.ForEachColumn([&](const auto&, const auto& column) { Put(column); });
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Returns the values in the order in which they were put.
class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : rest_(bytes) {}
  bool done() const { return rest_.empty(); }
  template <typename T>
  requires std::is_trivially_copyable_v<T>
  void Take(T& value) {
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_.remove_prefix(sizeof value);
  }
  template <typename T>
  T Take() {
    T value{};
    Take(value);
    return value;
  }
  void Take(std::string& text) {
    const auto size = Take<std::uint64_t>();
    text.assign(rest_.substr(0, size));
    rest_.remove_prefix(size);
  }
  template <typename T>
  void Take(std::vector<T>& values) {
    values.resize(Take<std::uint64_t>());
    if constexpr (std::is_trivially_copyable_v<T>) {
      if (!values.empty()) std::memcpy(values.data(), rest_.data(), values.size() * sizeof(T));
      rest_.remove_prefix(values.size() * sizeof(T));
    } else {
      for (T& value : values) Take(value);
    }
  }
  template <typename... Values>
  requires(sizeof...(Values) > 1) void Take(Values&... values) { (Take(values), ...); }
  template <typename Table>
  void TakeTable(Table& table) {
    table.ForEachColumn([&](const auto&, auto& column) { Take(column); });
  }

 private:
  std::string_view rest_;
};

}  // namespace lockstep::merge
