#include "ingest/inputs.h"

#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <tuple>

#include "core/file_lock.h"
#include "core/own_file.h"
#include "ingest/formats.h"

namespace lockstep::ingest {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kHeadBytes = 64 * 1024, kHeadJsonBytes = 256 * 1024;
constexpr int kDeepest = 6;

constexpr std::size_t kFirstBytes = 16;

std::string FirstBytes(const std::string& path) {
  const OwnedFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  return ReadUpTo(file.get(), 0, kFirstBytes);
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// The format that the file's name suggests; null: none.
const ForeignFormat* NamedLike(std::string_view name, const ForeignFormat* only) {
  for (const ForeignFormat* format : ForeignFormats())
    if ((only == nullptr || format == only) && format->named_like(name)) return format;
  return nullptr;
}

bool NeedsExport(std::string_view name) {
  const auto formats = ForeignFormats();
  return std::any_of(formats.begin(), formats.end(), [&](const ForeignFormat* format) {
    return format->needs_export != nullptr && format->needs_export(name);
  });
}

// The format of the file; `why`: the reason why it does not have the format that its name suggests.
const ForeignFormat* FormatOf(const FileLook& look, const ForeignFormat* only, std::string& why) {
  for (const ForeignFormat* format : ForeignFormats()) {
    if (only != nullptr && format != only) continue;
    std::string refusal = format->refuse(look);
    if (refusal.empty()) return format;
    if (format->named_like(look.path)) why = std::move(refusal);
  }
  return nullptr;
}

// Whether a file of a directory is to be examined: by its name, or by its first bytes.
bool WorthALook(const std::string& path, const ForeignFormat* only) {
  if (NamedLike(path, only) != nullptr) return true;
  std::string first;
  for (const ForeignFormat* format : ForeignFormats()) {
    if (format->begins_like == nullptr || (only != nullptr && format != only)) continue;
    if (first.empty()) first = FirstBytes(path);
    if (!first.empty() && format->begins_like(first)) return true;
  }
  return false;
}

bool IsGzip(std::string_view bytes) { return bytes.size() > 2 && bytes[0] == '\x1f' && bytes[1] == '\x8b'; }

std::string Inflated(std::string_view bytes) {
  z_stream stream{};
  std::string text(kHeadJsonBytes, '\0');
  if (inflateInit2(&stream, 15 + 16) != Z_OK) return "";
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(text.data());
  stream.avail_out = static_cast<uInt>(text.size());
  inflate(&stream, Z_SYNC_FLUSH);
  text.resize(text.size() - stream.avail_out);
  inflateEnd(&stream);
  return text;
}

std::string Reason(int error) { return std::generic_category().message(error); }

// JSON files of a run directory are not traces.
bool IsRunDirectory(const fs::path& dir) {
  std::error_code ignored;
  return fs::exists(dir / "manifest.json", ignored) && fs::is_directory(dir / "ranks", ignored);
}

// `file` returns false to end the walk, which then returns false, too. `unread` is called for directories that cannot
// be read, with the reason.
template <typename F, typename G>
bool WalkFiles(const fs::path& dir, int depth, const ForeignFormat* only, F&& file, G&& unread) {
  std::error_code error;
  std::vector<fs::path> entries;
  for (fs::directory_iterator at(dir, error), end; !error && at != end; at.increment(error))
    entries.push_back(at->path());
  if (error) unread(dir, error.value());
  std::sort(entries.begin(), entries.end());
  for (const fs::path& entry : entries) {
    const std::string name = entry.filename().string();
    if (name.starts_with('.')) continue;
    std::error_code ignored;
    if (fs::is_directory(entry, ignored)) {
      if (depth < kDeepest && name != "lockstep.out" && !IsRunDirectory(entry) &&
          !WalkFiles(entry, depth + 1, only, file, unread))
        return false;
    } else if ((fs::is_regular_file(entry, ignored) || ignored) && WorthALook(entry.string(), only)) {
      if (!file(entry)) return false;
    }
  }
  return true;
}

// Without extensions, which contain no digits: ".json.gz", ".pt.trace.json", ".nsys-rep".
std::string_view Stem(std::string_view name) {
  for (bool cut = true; cut;) {
    cut = false;
    const std::size_t dot = name.rfind('.');
    if (dot != std::string_view::npos && dot > 0 && dot + 1 < name.size() &&
        std::all_of(name.begin() + static_cast<std::ptrdiff_t>(dot) + 1, name.end(),
                    [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-'; }))
      name = name.substr(0, dot), cut = true;
    for (const std::string_view end : {"_trace", "-trace"})
      if (name.ends_with(end) && name.size() > end.size()) name.remove_suffix(end.size()), cut = true;
  }
  return name;
}

std::int32_t NumberAt(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() && IsDigit(text[end])) ++end;
  std::int32_t number = -1;
  if (end == at || end - at > 7) return -1;
  std::from_chars(text.data() + at, text.data() + end, number);
  return number;
}

// "rank-3", "RANK3", "trace_rank_03": the last one in the text.
std::int32_t AfterWord(std::string_view text, std::string_view word) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  for (std::size_t at = lower.rfind(word); at != std::string::npos;
       at = at == 0 ? std::string::npos : lower.rfind(word, at - 1)) {
    std::size_t digits = at + word.size();
    while (digits < lower.size() && (lower[digits] == '_' || lower[digits] == '-' || lower[digits] == '.' ||
                                     lower[digits] == '=' || lower[digits] == '[' || lower[digits] == ' '))
      ++digits;
    if (const std::int32_t number = NumberAt(lower, digits); number >= 0) return number;
  }
  return -1;
}

}  // namespace

bool NaturalLess(std::string_view a, std::string_view b) {
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (IsDigit(a[i]) && IsDigit(b[j])) {
      std::size_t ai = i, bj = j;
      while (ai < a.size() && a[ai] == '0') ++ai;
      while (bj < b.size() && b[bj] == '0') ++bj;
      std::size_t ae = ai, be = bj;
      while (ae < a.size() && IsDigit(a[ae])) ++ae;
      while (be < b.size() && IsDigit(b[be])) ++be;
      if (ae - ai != be - bj) return ae - ai < be - bj;
      if (const int order = a.substr(ai, ae - ai).compare(b.substr(bj, be - bj)); order != 0) return order < 0;
      i = ae, j = be;
      continue;
    }
    if (a[i] != b[j]) return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[j]);
    ++i, ++j;
  }
  if ((a.size() - i == 0) != (b.size() - j == 0)) return a.size() - i == 0;
  return a < b;  // "a01" and "a1" are equal otherwise.
}

RankInName RankOfName(std::string_view path) {
  const std::size_t slash = path.find_last_of('/');
  const std::string_view name = Stem(slash == std::string_view::npos ? path : path.substr(slash + 1));
  if (const std::int32_t rank = AfterWord(name, "rank"); rank >= 0) return {rank, true};
  std::string_view dirs = slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
  for (int up = 0; up < 2 && !dirs.empty(); ++up) {
    const std::size_t before = dirs.find_last_of('/');
    const std::string_view dir = before == std::string_view::npos ? dirs : dirs.substr(before + 1);
    if (const std::int32_t rank = AfterWord(dir, "rank"); rank >= 0) return {rank, true};
    dirs = before == std::string_view::npos ? std::string_view() : dirs.substr(0, before);
  }
  if (const std::int32_t rank = AfterWord(name, "worker"); rank >= 0) return {rank, true};
  std::size_t digits = name.size();
  while (digits > 0 && IsDigit(name[digits - 1])) --digits;
  if (digits < name.size() &&
      (digits == 0 || name[digits - 1] == '_' || name[digits - 1] == '-' || name[digits - 1] == '.'))
    return {NumberAt(name, digits), false};
  return {};
}

FileLook LookAt(const std::string& path) {
  FileLook look;
  look.path = path;
  struct stat info {};
  // Opening a pipe would wait for a writer.
  const OwnedFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.open() || ::fstat(file.get(), &info) != 0) {
    look.error = errno;
    return look;
  }
  look.bytes = static_cast<std::uint64_t>(info.st_size);
  std::string head = ReadUpTo(file.get(), 0, kHeadBytes, &look.error);
  look.first = head.substr(0, kFirstBytes);
  look.gzip = IsGzip(head);
  if (look.gzip) {
    look.head = Inflated(head);
  } else {
    if (look.bytes > head.size()) {
      const std::uint64_t bytes = std::min<std::uint64_t>(kHeadBytes, look.bytes - head.size());
      look.tail = ReadUpTo(file.get(), look.bytes - bytes, bytes);
    }
    look.head = std::move(head);
  }
  return look;
}

Result<TraceFiles> FindTraces(const std::vector<std::string>& arguments, const ForeignFormat* only) {
  TraceFiles found;
  std::set<std::string> seen;
  bool refused = false;  // Something is there and cannot be read.
  const auto skip = [&](const std::string& name, int error) {
    found.skipped.push_back(name + ": " + Reason(error));
    refused |= error != ENOENT;
  };
  const auto add = [&](const fs::path& path, const std::string& name, bool named) {
    struct stat info;
    if (::stat(path.c_str(), &info) != 0) return skip(name, errno);
    std::error_code ignored;
    const fs::path real = fs::canonical(path, ignored);
    TraceFile file;
    file.real = ignored ? fs::absolute(path, ignored).lexically_normal().string() : real.string();
    if (!seen.insert(file.real).second) return;
    file.path = path.string();
    file.name = name;
    file.bytes = static_cast<std::uint64_t>(info.st_size);
    file.modified_ns = info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec;
    const FileLook look = LookAt(file.path);
    std::string why;
    file.format = look.error == 0 ? FormatOf(look, only, why) : nullptr;
    if (file.format == nullptr && look.error == 0 && !named) {
      if (!why.empty()) found.skipped.push_back(name + ": " + why);
      return;
    }
    // A file that cannot be read may be a rank's: the import counts it as lost and reports why. The same holds for a
    // file that the user named.
    if (file.format == nullptr) file.format = NamedLike(file.path, only);
    if (file.format == nullptr) file.format = only != nullptr ? only : ForeignFormats().front();
    file.work_bytes = file.format->work_bytes(look);
    found.files.push_back(std::move(file));
  };
  const auto add_any = [&](const std::string& argument) {
    std::error_code ignored;
    const fs::path path(argument);
    if (fs::is_directory(path, ignored)) {
      const auto name_of = [&](const fs::path& below) {
        return (path / below.lexically_relative(path)).lexically_normal().string();
      };
      WalkFiles(
          path, 0, only,
          [&](const fs::path& file) {
            add(file, name_of(file), false);
            return true;
          },
          [&](const fs::path& dir, int error) { skip(name_of(dir), error); });
      return true;
    }
    if (!fs::exists(path, ignored)) return false;
    add(path, argument, true);
    return true;
  };
  for (const std::string& argument : arguments) {
    if (add_any(argument)) continue;
    // Quoted patterns, which the shell did not expand.
    glob_t matches{};
    bool any = false;
    if (::glob(argument.c_str(), 0, nullptr, &matches) == 0)
      for (std::size_t i = 0; i < matches.gl_pathc; ++i) any |= add_any(matches.gl_pathv[i]);
    ::globfree(&matches);
    if (!any)
      return Error{ErrorCode::kNotFound, "no such file or directory", argument,
                   "name the trace files of all ranks, or the directory that holds them"};
  }
  if (found.files.empty()) {
    std::string where;
    for (const std::string& argument : arguments) where += (where.empty() ? "" : " ") + argument;
    std::string write;
    for (const ForeignFormat* format : ForeignFormats())
      if (only == nullptr || format == only) write += (write.empty() ? "" : ", or ") + std::string(format->write);
    return Error{refused ? ErrorCode::kIo : ErrorCode::kNotFound,
                 found.skipped.empty() ? "there are no traces" : "there is no trace (" + found.skipped.front() + ")",
                 where, "name files that come of " + write};
  }
  std::stable_sort(found.files.begin(), found.files.end(),
                   [](const TraceFile& a, const TraceFile& b) { return NaturalLess(a.name, b.name); });
  return found;
}

bool HoldsTraces(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    if (IsRunDirectory(path)) return false;
    for (fs::directory_iterator at(fs::path(path) / "ranks", ignored), end; !ignored && at != end;
         at.increment(ignored))
      if (at->path().filename().string().starts_with("rank-")) return false;
    // The caller reports why a file cannot be read; an error about a missing run would be misleading.
    bool any = false;
    WalkFiles(
        path, 0, nullptr,
        [&](const fs::path& file) {
          const FileLook look = LookAt(file.string());
          std::string why;
          any = look.error != 0 || FormatOf(look, nullptr, why) != nullptr || NeedsExport(file.string());
          return !any;
        },
        [&](const fs::path&, int) { any = true; });
    return any;
  }
  return fs::is_regular_file(path, ignored) && (path.ends_with(".gz") || WorthALook(path, nullptr));
}

bool LooksLikeTrace(const std::string& path) {
  std::string why;
  return FormatOf(LookAt(path), nullptr, why) != nullptr;
}

std::string CommonDirectory(const std::vector<TraceFile>& files) {
  fs::path common;
  for (std::size_t i = 0; i < files.size(); ++i) {
    std::error_code ignored;
    fs::path dir = fs::absolute(files[i].path, ignored).lexically_normal().parent_path();
    if (i == 0) {
      common = dir;
      continue;
    }
    while (!common.empty() && common != common.root_path()) {
      const auto [at, of] = std::mismatch(common.begin(), common.end(), dir.begin(), dir.end());
      if (at == common.end()) break;
      common = common.parent_path();
    }
  }
  return common.string();
}

std::vector<PlannedRank> PlanRanks(const std::vector<Asked>& files, std::int64_t world_size) {
  std::vector<PlannedRank> plan(files.size());
  std::map<std::int32_t, std::size_t> taken;
  const auto take = [&](std::size_t i, std::int32_t rank) {
    plan[i].rank = rank;
    const auto [at, fresh] = taken.try_emplace(rank, i);
    if (!fresh) plan[i].loser_to = static_cast<std::int32_t>(at->second);
    return fresh;
  };
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (files[i].told < 0) continue;
    plan[i].told = true;
    take(i, files[i].told);
  }
  // Jobs of one rank have no helpers: then it is another job.
  const bool all_told = world_size > 1 && static_cast<std::int64_t>(taken.size()) >= world_size;
  // If the numbers in the names cannot all be ranks (dates, process ids), none of them is used.
  std::vector<RankInName> named(files.size());
  std::set<std::int32_t> numbers;
  bool distinct = true, small = true;
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (files[i].told >= 0) continue;
    if (!files[i].name.empty()) named[i] = RankOfName(files[i].name);
    if (named[i].rank < 0 || named[i].certain) continue;
    distinct &= numbers.insert(named[i].rank).second;
  }
  const std::int64_t most = world_size > 0 ? world_size : static_cast<std::int64_t>(4 * files.size() + 16);
  for (const std::int32_t number : numbers) small &= number < most;
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (files[i].told >= 0) continue;
    if (named[i].rank >= 0 && (named[i].certain || (distinct && small)) && !taken.contains(named[i].rank)) {
      take(i, named[i].rank);
      plan[i].from = "its name";
    } else if (files[i].operations >= 0 && !taken.contains(files[i].operations)) {
      take(i, files[i].operations);
      plan[i].from = "its collectives";
    }
  }
  // The last rank that is free can be no other, if the other files are all of the others.
  const auto all = static_cast<std::int64_t>(files.size());
  const bool only = static_cast<std::int64_t>(taken.size()) + 1 == all && world_size <= all &&
                    (taken.empty() || taken.rbegin()->first < all);
  std::int32_t next = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (plan[i].rank >= 0) continue;
    while (taken.contains(next)) ++next;
    plan[i].extra = all_told;
    take(i, next);
    plan[i].from = files[i].name.empty() ? "its place among the ranks of its file" : "its place in the order of names";
    plan[i].guessed = !only && !files[i].name.empty();
  }
  return plan;
}

}  // namespace lockstep::ingest
