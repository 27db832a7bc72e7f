#include "ingest/kineto/map/comm_args.h"

#include <string>

#include "ingest/map/args.h"

namespace lockstep::ingest {

bool TakeCommArg(std::string_view key, std::string_view value, LocalStrings& strings, CommArgs& args) {
  const auto text = [&](std::uint32_t& to) {
    std::string scratch;
    const std::string_view plain = TextOf(value, scratch);
    if (!plain.empty()) to = strings.Intern(plain);
    return true;
  };
  if (key.size() < 3) return false;
  switch (key[0]) {
    case 'C':
      if (key != "Collective name") return false;
      return text(args.name);
    case 'd':
      if (key != "dtype") return false;
      return text(args.dtype);
    case 'I':
      if (key == "In msg nelems") return args.in_elements = IntOf(value, -1), true;
      if (key == "In split size") return text(args.in_split);
      return false;
    case 'O':
      if (key == "Out msg nelems") return args.out_elements = IntOf(value, -1), true;
      if (key == "Out split size") return text(args.out_split);
      return false;
    case 'G':
      if (key == "Group size") return args.group_size = IntOf(value, -1), true;
      if (key == "Global rank start") return args.rank_start = IntOf(value, -1), true;
      if (key == "Global rank stride") return args.rank_stride = IntOf(value, -1), true;
      return false;
    case 'P':
      if (key == "Process Group Name") return text(args.group);
      if (key == "Process Group Description") return text(args.description);
      if (key == "Process Group Ranks") return text(args.ranks);
      return false;
    case 'R':
      if (key == "Rank") return args.rank = IntOf(value, -1), true;
      return false;
    case 'S':
      if (key == "Seq") return args.seq = IntOf(value, -1), true;
      if (key == "Src Rank") return args.source = IntOf(value, -1), true;
      return false;
    case 'D':
      if (key == "Dst Rank") return args.destination = IntOf(value, -1), true;
      return false;
    default:
      return false;
  }
}

}  // namespace lockstep::ingest
