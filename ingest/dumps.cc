#include "ingest/dumps.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <set>
#include <system_error>

#include "core/own_file.h"
#include "ingest/inputs.h"

namespace lockstep::ingest {
namespace fs = std::filesystem;

#define LS_RANK_FORMAT(format)
#define LS_FOREIGN_FORMAT(format)
#define LS_PROGRESS_FORMAT(format) extern const ProgressFormat format;
#include "ingest/formats.def"
#undef LS_PROGRESS_FORMAT

namespace {

#define LS_PROGRESS_FORMAT(format) &format,
const ProgressFormat* const kProgressFormats[] = {
#include "ingest/formats.def"
};
#undef LS_PROGRESS_FORMAT
#undef LS_FOREIGN_FORMAT
#undef LS_RANK_FORMAT

// The number behind the word that PyTorch writes, else as for traces.
std::int32_t RankOfDump(const std::string& path) {
  const std::string_view name = BaseName(path);
  if (const std::size_t at = name.rfind("_dump_"); at != std::string_view::npos) {
    const std::string_view digits = name.substr(at + 6);
    std::int32_t rank = -1;
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
    if (error == std::errc() && rank >= 0 && stop == digits.data() + digits.size()) return rank;
  }
  return RankOfName(path).rank;
}

const ProgressFormat* DumpFormatOf(const std::string& path) {
  const FileLook look = LookAt(path);
  if (look.error != 0) return nullptr;
  for (const ProgressFormat* format : kProgressFormats)
    if (format->looks_like(look)) return format;
  return nullptr;
}

// A file that is empty or cut before its first word is still the rank's dump, by its name.
const ProgressFormat* NamedLikeDump(const std::string& path) {
  for (const ProgressFormat* format : kProgressFormats)
    if (format->named_like(path)) return format;
  return nullptr;
}

// Its name with # for each number.
std::string ShapeOf(const std::string& path) {
  std::string shape;
  for (const char c : BaseName(path)) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit || !shape.ends_with('#')) shape += digit ? '#' : c;
  }
  return shape;
}

// As one of these, or as one with something behind it: "rank_3.json.gz", "_dump_3.tmp". Names without a number say
// nothing.
bool NamedAs(const std::set<std::string>& shapes, const std::string& shape) {
  return std::any_of(shapes.begin(), shapes.end(), [&](const std::string& each) {
    if (each.find('#') == std::string::npos || !shape.starts_with(each)) return false;
    return shape.size() == each.size() || std::string_view(".~-_").find(shape[each.size()]) != std::string_view::npos;
  });
}

// Calls `file(path)` until it returns false.
template <typename F>
bool WalkDumps(const fs::path& dir, int depth, F&& file) {
  std::error_code error;
  std::vector<fs::path> entries;
  for (fs::directory_iterator at(dir, error), end; !error && at != end; at.increment(error))
    entries.push_back(at->path());
  std::sort(entries.begin(), entries.end());
  for (const fs::path& entry : entries) {
    if (entry.filename().string().starts_with('.')) continue;
    std::error_code ignored;
    if (fs::is_directory(entry, ignored)) {
      if (depth < 2 && !WalkDumps(entry, depth + 1, file)) return false;
    } else if (!file(entry.string())) {
      return false;
    }
  }
  return true;
}

}  // namespace

Result<std::vector<FoundDumps>> FindDumps(const std::vector<std::string>& arguments) {
  std::vector<FoundDumps> found;
  for (const ProgressFormat* format : kProgressFormats) found.push_back({format, {}});
  std::string where;
  const auto add = [&](const std::string& path, const ProgressFormat* format) {
    struct stat info {};
    DumpFile file{.path = path, .name = path, .rank = RankOfDump(path)};
    if (::stat(path.c_str(), &info) == 0) file.modified_ns = info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec;
    for (FoundDumps& each : found)
      if (each.format == format) each.files.push_back(std::move(file));
  };
  std::vector<std::string> others;  // Files of directories that nothing tells for dumps.
  for (const std::string& argument : arguments) {
    std::error_code ignored;
    where += (where.empty() ? "" : " ") + argument;
    if (fs::is_directory(argument, ignored)) {
      WalkDumps(argument, 0, [&](const std::string& path) {
        const ProgressFormat* format = DumpFormatOf(path);
        if (format == nullptr) format = NamedLikeDump(path);
        if (format != nullptr)
          add(path, format);
        else
          others.push_back(path);
        return true;
      });
    } else if (fs::exists(argument, ignored)) {
      const ProgressFormat* format = DumpFormatOf(argument);
      if (format == nullptr) format = NamedLikeDump(argument);
      add(argument, format != nullptr ? format : kProgressFormats[0]);
    } else {
      return Error{ErrorCode::kNotFound, "no such file or directory", argument,
                   "name the dumps of all ranks, or the directory that holds them"};
    }
  }
  // One that is named as the dumps are is one that cannot be read, which its reader says.
  for (FoundDumps& each : found) {
    std::set<std::string> shapes;
    for (const DumpFile& file : each.files) shapes.insert(ShapeOf(file.path));
    for (const std::string& path : others)
      if (NamedAs(shapes, ShapeOf(path))) add(path, each.format);
  }
  std::erase_if(found, [](const FoundDumps& each) { return each.files.empty(); });
  if (found.empty())
    return Error{
        ErrorCode::kNotFound, "there is no dump", where,
        "name files that PyTorch's Flight Recorder wrote, or that ncclras printed: docs/hang.md says how to get "
        "them"};
  for (FoundDumps& each : found) {
    std::sort(each.files.begin(), each.files.end(),
              [](const DumpFile& a, const DumpFile& b) { return NaturalLess(a.path, b.path); });
    each.files.erase(std::unique(each.files.begin(), each.files.end(),
                                 [](const DumpFile& a, const DumpFile& b) { return a.path == b.path; }),
                     each.files.end());
  }
  return found;
}

const ProgressFormat* HoldsDumps(const std::string& path) {
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) return DumpFormatOf(path);
  if (!fs::is_directory(path, ignored)) return nullptr;
  const ProgressFormat* format = nullptr;
  WalkDumps(path, 0, [&](const std::string& file) {
    format = DumpFormatOf(file);
    return format == nullptr;
  });
  return format;
}

}  // namespace lockstep::ingest
