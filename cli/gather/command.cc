#include "cli/gather/command.h"

#include <filesystem>
#include <set>
#include <system_error>

#include "cli/gather/place.h"
#include "runtime/agent/rundir/places.h"
#include "runtime/agent/rundir/process_state.h"

namespace lockstep::cli {

std::string PlaceWord(const std::string& host, const std::string& dir) { return TypedWord(TextOf(Place{host, dir})); }

std::string RunWord(const std::string& run_dir) {
  return TypedWord(run_dir.starts_with('-') ? "./" + run_dir : run_dir);
}

std::string AbsoluteDir(const std::string& run_dir) {
  std::error_code ignored;
  return std::filesystem::absolute(run_dir, ignored).lexically_normal().string();
}

std::string HowToGather(const std::string& run_dir, const std::vector<agent::RunPlace>& places, std::int32_t slots) {
  std::string words;
  std::set<std::string> said;  // Several slots of a host may have told.
  // The files of some of a host's ranks may have arrived: those are not copied again.
  for (const agent::RunPlace& place : agent::NotShared(run_dir, places))
    if (const std::string word = PlaceWord(place.host, place.dir); said.insert(word).second) words += " " + word;
  if (words.empty()) return "";
  // A host whose name cannot be typed is where the command is for.
  const std::string run = RunWord(run_dir), name = agent::HostName();
  const std::string here = PlaceWord(agent::NamesHost(name) ? name : "", AbsoluteDir(run_dir));
  const std::int32_t unknown = agent::NotTold(run_dir, places, slots);
  const std::string lacking = std::to_string(unknown) + (unknown == 1 ? " rank's files are" : " ranks' files are");
  return (unknown == 0 ? "To bring all into one run: "
                       : "Where " + lacking +
                             " was not told here: add HOST:DIR of their hosts, which may have said it. To "
                             "bring the others into one run: ") +
         "lockstep gather " + here + words + " -o " + run + "   then: lockstep analyze " + run;
}

std::string WhereOthersAre(const std::string& run_dir, std::int32_t slots) {
  const std::string command = HowToGather(run_dir, agent::ReadPlaces(run_dir), slots);
  return command.empty()
             ? ""
             : "lockstep: files of other hosts, which do not share " + run_dir + ", are not here. " + command;
}

}  // namespace lockstep::cli
