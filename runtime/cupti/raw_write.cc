#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "core/env.h"
#include "core/ring_writer.h"
#include "runtime/cupti/callbacks.h"
#include "runtime/cupti/raw_file.h"

namespace lockstep::cupti {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;

bool WriteAll(int fd, const void* data, std::size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes != 0) {
    const ssize_t n = write(fd, at, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    bytes -= static_cast<std::size_t>(n);
  }
  return true;
}

}  // namespace

RawMoment RawNow() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return {ring::Ticks(), RawNs(), static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec};
}

std::uint32_t NameOffset(std::uint32_t kind) {
  switch (kind) {
    case kKindConcurrentKernel:
    case kKindSerialKernel:
      return offsetof(KernelRecord, name);
    case kKindDevice:
      return offsetof(DeviceRecord, name);
    case kKindMemory2:
      return offsetof(MemoryRecord2, name);
    default:
      return 0;
  }
}

bool RawWriter::Open(const Api& api, bool realtime) {
  if (looked_) return fd_ >= 0;
  looked_ = true;
  const char* directory = getenv(env::kGpuRawDir);
  if (directory == nullptr || *directory == 0) return false;
  char path[4096];
  for (int n = 0; n < 100 && fd_ < 0; ++n) {
    char suffix[16] = "";
    if (n != 0) snprintf(suffix, sizeof suffix, "-%d", n);
    snprintf(path, sizeof path, "%s/cupti-%d%s.raw", directory, static_cast<int>(getpid()), suffix);
    fd_ = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0 && errno != EEXIST) break;
  }
  block_ = static_cast<std::uint8_t*>(FreshMemory(sizeof(RawBlock) + kBlockBytes));
  const RawHeader header{kRawMagic, kRawVersion, api.version, realtime ? 1u : 0u, sizeof(RawHeader), made_};
  if (fd_ >= 0 && block_ != nullptr && WriteAll(fd_, &header, sizeof header)) return true;
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  return false;
}

void RawWriter::Send() {
  if (used_ == 0 || fd_ < 0) return;
  const RawBlock block{used_, RawNow()};
  memcpy(block_, &block, sizeof block);
  if (!WriteAll(fd_, block_, sizeof block + used_)) {
    close(fd_);
    fd_ = -1;
  }
  used_ = 0;
}

std::uint8_t* RawWriter::Item(std::uint32_t type, std::uint32_t number, std::uint32_t bytes) {
  const std::size_t padded = (std::size_t{bytes} + 7) & ~std::size_t{7};
  if (used_ + sizeof(RawItem) + padded > kBlockBytes) Send();
  std::uint8_t* at = block_ + sizeof(RawBlock) + used_;
  const RawItem item{type, number, bytes, 0};
  memcpy(at, &item, sizeof item);
  memset(at + sizeof item, 0, padded);
  used_ += sizeof item + padded;
  return at + sizeof item;
}

std::uint32_t RawWriter::TextOf(const char* text) {
  if (text == nullptr) return 0;
  if (const std::uint32_t number = text_numbers_.Find(text); number != 0) return number;
  const auto bytes = static_cast<std::uint32_t>(strnlen(text, 65535));
  std::uint8_t* item = Item(kRawText, ++texts_, bytes + 1);
  memcpy(item, text, bytes);
  text_numbers_.Remember(text, texts_);
  return texts_;
}

void RawWriter::Write(const Api& api, const RecordSizes& sizes, bool realtime, std::uint8_t* buffer,
                      std::size_t valid_bytes) {
  if (!Open(api, realtime)) return;
  AnyRecord* record = nullptr;
  while (fd_ >= 0 && api.get_next_record(buffer, valid_bytes, &record) == kSuccess) {
    const auto at = static_cast<std::size_t>(reinterpret_cast<std::uint8_t*>(record) - buffer);
    if (at >= valid_bytes || valid_bytes - at < sizeof record->kind || record->kind >= kKindLimit) break;
    const std::uint32_t kind = record->kind;
    const std::uint32_t bytes = std::max(sizes.bytes[kind], 8u);
    if (valid_bytes - at < bytes) break;
    std::uint64_t text = 0;
    const std::uint32_t name_at = NameOffset(kind);
    const bool named = name_at != 0 && name_at + sizeof text <= bytes;
    if (named) {
      const char* name;
      memcpy(&name, buffer + at + name_at, sizeof name);
      text = TextOf(name);
    }
    if (kind == kKindRuntime || kind == kKindDriver) {
      const int domain = kind == kKindDriver ? kDomainDriver : kDomainRuntime;
      const std::uint32_t id = reinterpret_cast<const ApiRecord*>(record)->callback;
      std::uint64_t* known = id < kMostCallbacks ? &functions_[domain - 1][id / 64] : nullptr;
      const char* name = nullptr;
      if (known != nullptr && (*known >> id % 64 & 1) == 0 && api.get_callback_name != nullptr &&
          api.get_callback_name(domain, id, &name) == kSuccess && name != nullptr) {
        *known |= std::uint64_t{1} << id % 64;
        const auto name_bytes = static_cast<std::uint32_t>(strlen(name));
        memcpy(Item(kRawFunction, id | static_cast<std::uint32_t>(domain) << 24, name_bytes + 1), name, name_bytes);
      }
    }
    std::uint8_t* item = Item(kRawRecord, kind, bytes);
    memcpy(item, record, bytes);
    if (named) memcpy(item + name_at, &text, sizeof text);
  }
  Send();
}

}  // namespace lockstep::cupti
