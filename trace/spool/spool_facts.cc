#include "trace/spool/spool_facts.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <memory>
#include <sstream>
#include <string_view>

#include "core/hex.h"
#include "core/own_file.h"
#include "core/rank_name.h"
#include "core/ring_layout.h"
#include "core/segment_name.h"
#include "trace/spool/spool_reader.h"

namespace lockstep::trace {
namespace {

void AddLines(SpoolFacts& facts, std::string_view text) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (const std::size_t tab = line.find('\t'); tab != std::string_view::npos)
      facts.meta[std::string(line.substr(0, tab))] = line.substr(tab + 1);
  }
}

// The path at which an agent would have made it; "" if no agent would.
std::string PlaceOf(const std::string& spool_path, const std::string& named) {
  const std::size_t slash = named.rfind('/');
  if (slash == std::string::npos) return "";
  const std::string name = named.substr(slash + 1);
  SegmentName parsed;
  if (named.compare(0, slash, "/dev/shm") == 0) return ParseSegmentName(name, parsed) ? named : "";
  // Rings on disk are beside their spool and have its name.
  const std::string beside = spool_path.substr(0, spool_path.rfind('.')) + ".ring";
  return beside.ends_with("/" + name) ? beside : "";
}

}  // namespace

std::string SpoolFacts::Meta(std::string_view key) const {
  const auto at = meta.find(key);
  return at == meta.end() ? std::string() : at->second;
}

Result<SpoolFacts> ReadSpoolFacts(const std::string& spool_path) {
  LS_TRY(const SpoolFile spool, SpoolFile::Open(spool_path));
  SpoolFacts facts;
  for (const SpoolBlock& block : spool.blocks()) {
    const auto* bytes = reinterpret_cast<const char*>(block.payload.data());
    if (block.header.kind == SpoolKind::kMeta) AddLines(facts, {bytes, block.payload.size()});
    if (block.header.kind != SpoolKind::kEnd || block.payload.size() < sizeof(SpoolEnd)) continue;
    SpoolEnd end;
    std::memcpy(&end, bytes, sizeof end);
    facts.ended = true;
    facts.good_end = end.exit_code == 0 && end.signal == 0;
  }
  return facts;
}

SpoolSegment FindSegment(const std::string& spool_path, const SpoolFacts& facts) {
  SpoolSegment segment;
  segment.path = PlaceOf(spool_path, facts.Meta("segment"));
  if (segment.path.empty()) return segment;
  const std::string nonce = facts.Meta("nonce");
  segment.file = OpenOwn(segment.path, O_RDWR);
  auto header = std::make_unique<SegmentHeader>();
  if (segment.file.open() && ReadAt(segment.file.get(), 0, header.get(), sizeof *header) &&
      header->magic == kSegmentMagic) {
    // Spools of versions without a nonce are read as before, but not removed on such weak evidence.
    const bool same = nonce.empty()
                          ? header->spool_nonce == 0 && std::to_string(header->agent_pid) == facts.Meta("agent_pid")
                          : nonce == Hex(header->spool_nonce, 16);
    if (same) {
      struct stat info {};
      segment.removable = !nonce.empty() && ::stat(spool_path.c_str(), &info) == 0 &&
                          static_cast<std::uint64_t>(info.st_ino) == header->spool_inode;
      segment.state = SpoolSegment::State::kFound;
      return segment;
    }
  }
  segment.file.Reset();
  // A tmpfs is identified by its device number as long as the machine runs.
  struct stat place {};
  const std::string device = facts.Meta("segment_device");
  const bool visible =
      device.empty() || segment.path.ends_with(".ring") ||
      (::stat(DirectoryOf(segment.path).c_str(), &place) == 0 && device == std::to_string(place.st_dev));
  segment.state = visible ? SpoolSegment::State::kGone : SpoolSegment::State::kHidden;
  return segment;
}

std::string SegmentOfSpool(const std::string& spool_path) {
  const Result<SpoolFacts> facts = ReadSpoolFacts(spool_path);
  if (!facts.ok()) return {};
  const SpoolSegment segment = FindSegment(spool_path, facts.value());
  return segment.state == SpoolSegment::State::kFound ? segment.path : std::string();
}

std::string SpoolElsewhere(const std::string& run_dir, std::int32_t slot) {
  const std::string link = run_dir + "/ranks/" + RankName(slot) + ".spool";
  char target[PATH_MAX];
  const ssize_t length = ::readlink(link.c_str(), target, sizeof target);
  struct stat info {};
  if (length <= 0 || ::stat(link.c_str(), &info) == 0) return "";
  std::istringstream words(ReadPlain(run_dir + "/ranks/.agent-" + FiveDigits(slot), 1024));
  std::string state, key, value, host = "the machine it was recorded on";
  for (words >> state; words >> key >> value;)
    if (key == "host") host = value;
  return "its spool is not on this machine but on " + host + " (" +
         std::string(target, static_cast<std::size_t>(length)) + "): run `lockstep recover " + run_dir +
         "` there, or copy that file from there to " + link + " (in place of the link)";
}

bool SpoolIsHeld(const std::string& spool_path) {
  const OwnedFd file(::open(spool_path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  return file.open() && AskExclusive(file.get()) == Locked::kHeld;
}

}  // namespace lockstep::trace
