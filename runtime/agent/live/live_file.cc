#include "runtime/agent/live/live_file.h"

#include <cstdio>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "core/hash.h"
#include "core/own_file.h"

namespace lockstep::agent {
namespace {

constexpr std::uint64_t kMagic = 0x334556494c4b434c;  // "LCKLIVE3"

// The values follow each other without conversion; writer and reader are of one build and one byte order.
class Writer {
 public:
  template <typename T>
  void Add(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  template <typename T>
  void AddAll(const std::vector<T>& values) {
    static_assert(std::is_trivially_copyable_v<T>);
    Add(static_cast<std::uint64_t>(values.size()));
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }
  std::string& bytes() { return bytes_; }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  template <typename T>
  bool Take(T& value) {
    if (bytes_.size() < sizeof value) return false;
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_.remove_prefix(sizeof value);
    return true;
  }
  template <typename T>
  bool TakeAll(std::vector<T>& values) {
    std::uint64_t count = 0;
    if (!Take(count) || count > bytes_.size() / sizeof(T)) return false;
    values.resize(count);
    if (count > 0) std::memcpy(values.data(), bytes_.data(), count * sizeof(T));
    bytes_.remove_prefix(count * sizeof(T));
    return true;
  }

 private:
  std::string_view bytes_;
};

std::uint64_t Checksum(std::string_view bytes) {
  Hash64 hash;
  hash.Add(bytes);
  return hash.value();
}

}  // namespace

std::string LiveFileName(const std::string& directory, std::int32_t rank) {
  char name[32];
  std::snprintf(name, sizeof name, "/.live-%05d", rank);
  return directory + name;
}

bool WriteLiveFile(const std::string& directory, const LiveRank& rank) {
  Writer out;
  out.Add(kMagic);
  out.Add(static_cast<const LiveHead&>(rank));
  out.Add(static_cast<std::uint64_t>(rank.steps.size()));
  for (const LiveStep& step : rank.steps) {
    out.Add(step.index);
    out.Add(step.window);
    out.Add(step.gpu_exposed_ns);
    out.AddAll(step.in_comm);
    out.AddAll(step.operations);
  }
  out.Add(Checksum(out.bytes()));
  return ReplaceFile(LiveFileName(directory, rank.rank), out.bytes(), 0666) == 0;
}

std::optional<LiveRank> ReadLiveFile(const std::string& directory, std::int32_t number, std::size_t size_limit) {
  std::string bytes = ReadPlain(LiveFileName(directory, number), size_limit);
  std::uint64_t sum = 0;
  if (bytes.size() < sizeof sum) return std::nullopt;
  std::memcpy(&sum, bytes.data() + bytes.size() - sizeof sum, sizeof sum);
  bytes.resize(bytes.size() - sizeof sum);
  if (sum != Checksum(bytes)) return std::nullopt;

  Reader in(bytes);
  LiveRank rank;
  std::uint64_t magic = 0, steps = 0;
  if (!in.Take(magic) || magic != kMagic || !in.Take(static_cast<LiveHead&>(rank)) || rank.rank != number ||
      !in.Take(steps))
    return std::nullopt;
  for (; steps > 0; --steps) {
    LiveStep step;
    if (!in.Take(step.index) || !in.Take(step.window) || !in.Take(step.gpu_exposed_ns) || !in.TakeAll(step.in_comm) ||
        !in.TakeAll(step.operations))
      return std::nullopt;
    rank.steps.push_back(std::move(step));
  }
  return rank;
}

}  // namespace lockstep::agent
