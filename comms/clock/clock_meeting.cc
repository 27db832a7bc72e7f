#include "comms/clock/clock_meeting.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "core/own_file.h"
#include "core/rank_name.h"

namespace lockstep::clock {
namespace {

constexpr std::size_t kLongestFile = 64 << 10;
constexpr char kPlanFile[] = "/.clock-plan", kReferenceFile[] = "/.clock-reference";

std::string AnnouncementPath(const std::string& directory, std::int32_t rank) {
  return directory + "/.clock-" + FiveDigits(rank);
}

Status WriteWhole(const std::string& path, const std::string& text) {
  const int error = ReplaceFile(path, text, 0600);
  if (error == 0) return Ok();
  return Error{ErrorCode::kIo, std::string("cannot announce the clock service: ") + strerror(error), path,
               "check that the run directory is writable on every node"};
}

std::optional<std::string> ReadWhole(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  std::string text;
  char buffer[4096];
  ssize_t n = 0;
  while (text.size() < kLongestFile && (n = read(fd, buffer, sizeof buffer)) > 0)
    text.append(buffer, static_cast<std::size_t>(n));
  close(fd);
  if (n < 0 || text.empty()) return std::nullopt;
  return text;
}

std::optional<ClockAnnouncement> Parse(const std::string& text) {
  ClockAnnouncement a;
  if (text.empty() || text.back() != '\n') return std::nullopt;
  int can_mpi = 0, at = 0;
  if (std::sscanf(text.c_str(), "%" SCNd32 " %" SCNd32 " %" SCNx64 " %d %n", &a.rank, &a.world_size, &a.domain,
                  &can_mpi, &at) < 4 ||
      at == 0)
    return std::nullopt;
  a.can_mpi = can_mpi != 0;
  a.address = text.substr(static_cast<std::size_t>(at));
  a.address.erase(std::min(a.address.find_first_of(" \n"), a.address.size()));
  if (a.address.empty()) return std::nullopt;
  if (a.address == "-") a.address.clear();
  return a;
}

}  // namespace

Status PublishAnnouncement(const std::string& directory, const ClockAnnouncement& a) {
  char head[64];
  std::snprintf(head, sizeof head, "%d %d %016" PRIx64 " %d ", a.rank, a.world_size, a.domain, a.can_mpi ? 1 : 0);
  return WriteWhole(AnnouncementPath(directory, a.rank), head + (a.address.empty() ? "-" : a.address) + "\n");
}

std::optional<ClockAnnouncement> ReadAnnouncement(const std::string& directory, std::int32_t rank) {
  const auto text = ReadWhole(AnnouncementPath(directory, rank));
  return text ? Parse(*text) : std::nullopt;
}

std::vector<ClockAnnouncement> ReadAnnouncements(const std::string& directory) {
  std::vector<ClockAnnouncement> all;
  DIR* dir = opendir(directory.c_str());
  if (dir == nullptr) return all;
  while (const dirent* entry = readdir(dir)) {
    int rank = -1, used = 0;
    if (std::sscanf(entry->d_name, ".clock-%d%n", &rank, &used) != 1 || entry->d_name[used] != '\0') continue;
    if (auto announcement = ReadAnnouncement(directory, rank)) all.push_back(std::move(*announcement));
  }
  closedir(dir);
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  return all;
}

Status PublishClockPlan(const std::string& directory, bool use_mpi) {
  return WriteWhole(directory + kPlanFile, use_mpi ? "mpi\n" : "none\n");
}

std::optional<bool> ReadClockPlan(const std::string& directory) {
  const auto text = ReadWhole(directory + kPlanFile);
  if (!text || (*text != "mpi\n" && *text != "none\n")) return std::nullopt;
  return *text == "mpi\n";
}

bool OneDomain(const std::vector<ClockAnnouncement>& all) {
  return std::all_of(all.begin(), all.end(), [&](const auto& a) { return a.domain == all.front().domain; });
}

Status PublishReference(const std::string& directory, const Reference& reference) {
  char text[kReferenceTextBytes];
  const std::size_t bytes = WriteReference(reference, text);
  return WriteWhole(directory + kReferenceFile, {text, bytes});
}

std::optional<Reference> ReadPublishedReference(const std::string& directory) {
  const OwnedFd fd = OpenOwn(directory + kReferenceFile, O_RDONLY);
  struct stat about {};
  if (!fd.open() || fstat(fd.get(), &about) != 0 || (about.st_mode & 077) != 0) return std::nullopt;
  Reference reference;
  if (!ReadReference(ReadUpTo(fd.get(), 0, kReferenceTextBytes).c_str(), reference)) return std::nullopt;
  return reference;
}

void RemovePublishedReference(const std::string& directory) { RemoveOwn(directory + kReferenceFile); }

void RemoveAnnouncement(const std::string& directory, std::int32_t rank) {
  unlink(AnnouncementPath(directory, rank).c_str());
  if (rank == 0) unlink((directory + kPlanFile).c_str());
}

}  // namespace lockstep::clock
