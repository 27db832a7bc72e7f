#include "runtime/agent/rundir/places.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "core/own_file.h"
#include "core/printed.h"
#include "runtime/agent/rundir/claim.h"

namespace lockstep::agent {
namespace {

// Neither a host's name nor a path has this byte.
constexpr char kAfterField = '\0';
// Of thousands of hosts with long paths.
constexpr std::size_t kMostBytes = std::size_t{32} << 20;

std::string PlacesPath(const std::string& run_dir) { return run_dir + "/ranks/.places"; }

// The text up to the next kAfterField, which is taken off `rest`. Returns false if there is none.
bool Take(std::string_view& rest, std::string_view& field) {
  const std::size_t end = rest.find(kAfterField);
  if (end == std::string_view::npos) return false;
  field = rest.substr(0, end);
  rest.remove_prefix(end + 1);
  return true;
}

bool IsNumber(std::string_view text, std::int32_t& number) {
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  return read.ec == std::errc{} && read.ptr == text.data() + text.size();
}

}  // namespace

bool NamesHost(std::string_view host) {
  if (host.empty() || host.front() == '-' || host.find("@-") != std::string_view::npos) return false;
  // A remote shell's own configuration may paste the name into a command. What is not ASCII is nothing to a shell if it
  // is a character; whether it can be seen is for who reads the command.
  if (Printed(host) != host) return false;
  for (const char c : host)
    if (static_cast<unsigned char>(c) < 0x80 && std::isalnum(static_cast<unsigned char>(c)) == 0 &&
        std::string_view("._-:%@+").find(c) == std::string_view::npos)
      return false;
  return true;
}

std::vector<std::string> ReachedBy(const std::vector<ToldHost>& told, const std::string& own_name) {
  std::map<std::string_view, std::set<std::string_view>> addresses;  // By name.
  for (const ToldHost& host : told) addresses[host.name].insert(host.address);
  std::vector<std::string> reached;
  for (const ToldHost& host : told) {
    const bool shared = host.name == own_name || addresses[host.name].size() > 1;
    reached.push_back(!host.address.empty() && (shared || !NamesHost(host.name)) ? host.address : host.name);
  }
  return reached;
}

std::string PlaceText(const std::string& host, const std::string& run_dir, std::int32_t ranks) {
  return host + kAfterField + run_dir + kAfterField + std::to_string(ranks);
}

std::vector<RunPlace> PlacesOf(const std::vector<clock::ToldPlace>& told, const std::string& own_name) {
  std::vector<RunPlace> places;
  std::vector<ToldHost> hosts;
  for (const auto& [slot, text, address] : told) {
    std::string_view rest = text, host, dir;
    RunPlace place{slot, "", ""};
    if (!Take(rest, host) || !Take(rest, dir) || !IsNumber(rest, place.ranks)) continue;
    hosts.push_back({std::string(host), address});
    place.dir = dir;
    places.push_back(std::move(place));
  }
  const std::vector<std::string> reached = ReachedBy(hosts, own_name);
  for (std::size_t i = 0; i < places.size(); ++i) places[i].host = reached[i];
  return places;
}

bool WritePlaces(const std::string& run_dir, const std::vector<RunPlace>& places) {
  if (places.empty()) {
    RemovePlaces(run_dir);
    return true;
  }
  std::string text;
  for (const RunPlace& place : places)
    text += std::to_string(place.slot) + kAfterField + place.host + kAfterField + place.dir + kAfterField +
            std::to_string(place.ranks) + kAfterField;
  return ReplaceFile(PlacesPath(run_dir), text, 0644) == 0;
}

std::vector<RunPlace> ReadPlaces(const std::string& run_dir) {
  const std::string text = ReadPlain(PlacesPath(run_dir), kMostBytes);
  std::vector<RunPlace> places;
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view slot, host, dir, ranks;
    if (!Take(rest, slot) || !Take(rest, host) || !Take(rest, dir) || !Take(rest, ranks)) return {};
    RunPlace place{-1, std::string(host), std::string(dir)};
    if (!IsNumber(slot, place.slot) || !IsNumber(ranks, place.ranks) || place.slot < 0 || place.ranks < -1 ||
        host.empty() || !dir.starts_with('/'))
      return {};
    places.push_back(std::move(place));
  }
  return NotShared(run_dir, places);
}

void RemovePlaces(const std::string& run_dir) { RemoveOwn(PlacesPath(run_dir)); }

std::vector<RunPlace> NotShared(const std::string& run_dir, const std::vector<RunPlace>& places) {
  std::vector<RunPlace> apart;
  for (const RunPlace& place : places)
    if (ReadClaim(ClaimPath(run_dir, place.slot)).state == ClaimState::kAbsent) apart.push_back(place);
  return apart;
}

std::int32_t NotTold(const std::string& run_dir, const std::vector<RunPlace>& places, std::int32_t slots) {
  std::int64_t left = slots;
  for (std::int32_t slot = 0; slot < slots; ++slot)
    left -= ReadClaim(ClaimPath(run_dir, slot)).state != ClaimState::kAbsent;
  std::set<std::pair<std::string_view, std::string_view>> seen;  // Several slots of a host may have told.
  for (const RunPlace& place : NotShared(run_dir, places)) {
    if (place.ranks < 0) return 0;
    if (seen.emplace(place.host, place.dir).second) left -= place.ranks;
  }
  return static_cast<std::int32_t>(std::max<std::int64_t>(left, 0));
}

}  // namespace lockstep::agent
