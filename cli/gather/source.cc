#include "cli/gather/source.h"

#include <algorithm>
#include <charconv>
#include <random>

#include "core/hex.h"
#include "core/rank_name.h"
#include "runtime/agent/slot/manifest.h"

namespace lockstep::cli {
namespace {

constexpr std::size_t kLongestListing = 64 << 20;
constexpr std::size_t kDigestDigits = 64;

// What a host's start-up files print before the script runs is left out: everything up to this line.
std::string NewMark() {
  std::random_device device;
  return "lockstep-gather-" + Hex(std::uint64_t{device()} << 32 | device());
}

// Passes on what follows the mark and its line end.
class AfterMark {
 public:
  AfterMark(std::string mark, const std::function<bool(std::string_view)>& take)
      : mark_(std::move(mark) + "\n"), take_(take) {}
  bool seen() const { return seen_; }
  bool operator()(std::string_view piece) {
    if (seen_) return take_(piece);
    before_ += piece;
    const std::size_t at = before_.find(mark_);
    if (at == std::string::npos) {
      if (before_.size() > mark_.size()) before_.erase(0, before_.size() - mark_.size());
      return true;
    }
    seen_ = true;
    const std::string rest = before_.substr(at + mark_.size());
    return rest.empty() || take_(rest);
  }

 private:
  const std::string mark_;
  const std::function<bool(std::string_view)>& take_;
  std::string before_;
  bool seen_ = false;
};

// Goes to the run's directory, from one of its ranks/ too. Names that begin with "-" or "~" are names of directories;
// only "~/", which no shell has seen here, is the home directory's.
std::string Enter(const Place& place) {
  std::string dir = place.dir;
  if (!place.host.empty() && (dir == "~" || dir.starts_with("~/"))) dir = "." + dir.substr(1);
  if (!dir.starts_with('/')) dir = "./" + dir;
  return "LC_ALL=C; export LC_ALL; unset CDPATH\n"
         "cd -- " +
         agent::ShellQuote({dir}) +
         " 2> /dev/null || { echo 'there is no directory of this name, or it may not be entered' >&2; exit 1; }\n"
         "[ -d ranks ] || case $(pwd) in */ranks) cd .. || exit ;; esac\n";
}

// Links are followed for spools only, which --spool-dir puts elsewhere.
constexpr std::string_view kListScript = R"(
p=
if [ -d ranks ]; then p=ranks/; echo 'below ranks'; fi
for f in manifest.json ${p}rank-*.h5 ${p}rank-*.spool; do
  case $f in *[!a-z0-9./-]*) continue ;; esac
  [ -f "$f" ] || continue
  case $f in *.spool) ;; *) [ ! -h "$f" ] || continue ;; esac
  if digest=$(sha256sum <"$f") && bytes=$(wc -c <"$f"); then
    printf 'file %d %s %s\n' "$bytes" "${digest%% *}" "${f#ranks/}"
  else
    printf 'unreadable %s\n' "${f#ranks/}"
  fi
done
echo end
)";

// "file 1234 <digest> <name>"; empty for anything else.
ListedFile ParseLine(std::string_view line) {
  ListedFile file;
  const auto word = [&line] {
    const std::size_t end = std::min(line.find(' '), line.size());
    const std::string_view first = line.substr(0, end);
    line.remove_prefix(std::min(end + 1, line.size()));
    return first;
  };
  const std::string_view kind = word();
  if (kind == "file") {
    const std::string_view bytes = word();
    const auto parsed = std::from_chars(bytes.data(), bytes.data() + bytes.size(), file.bytes);
    file.digest = word();
    if (parsed.ec != std::errc() || file.digest.size() != kDigestDigits) return {};
  } else if (kind != "unreadable") {
    return {};
  }
  if (IsRunFileName(line)) file.name = line;
  return file;
}

}  // namespace

bool IsRunFileName(std::string_view name) {
  if (name == kManifestName) return true;
  constexpr std::string_view kBegin = "rank-";
  if (!name.starts_with(kBegin)) return false;
  name.remove_prefix(kBegin.size());
  const std::size_t stem = std::min(name.find('.'), name.size());
  return IsNumberOfFile(name.substr(0, stem)) && IsRankFileSuffix(name.substr(stem));
}

Result<ShellEnd> Source::Run(const std::string& script, const std::function<bool(std::string_view)>& take) const {
  std::vector<std::string> words{"sh"};
  if (!place_.host.empty()) {
    words = rsh_;
    words.insert(words.end(), {place_.host, "sh"});
  }
  const std::string mark = NewMark();
  AfterMark after(mark, take);
  LS_TRY(ShellEnd end, RunShell(words, Enter(place_) + "printf '\\n%s\\n' " + mark + "\n" + script,
                                [&after](std::string_view piece) { return after(piece); }));
  if (after.seen()) return end;
  return Error{
      ErrorCode::kIo,
      !end.last_line.empty() ? end.last_line : words[0] + " ended with exit code " + std::to_string(end.exit_code),
      TextOf(place_), ""};
}

Result<Listing> Source::List() const {
  std::string text;
  LS_TRY(const ShellEnd end, Run(std::string(kListScript), [&text](std::string_view piece) {
           text += piece;
           return text.size() < kLongestListing;
         }));
  Listing listing{.files = {}, .below_ranks = text.starts_with("below ranks\n")};
  bool whole = false;
  for (std::size_t at = 0; at < text.size() && !whole;) {
    const std::size_t line_end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, line_end - at);
    at = line_end + 1;
    whole = line == "end";
    if (ListedFile file = ParseLine(line); !file.name.empty()) listing.files.push_back(std::move(file));
  }
  if (!whole)
    return Error{
        ErrorCode::kIo,
        "the connection ended before all files were listed" + (end.last_line.empty() ? "" : ": " + end.last_line),
        TextOf(place_), ""};
  return listing;
}

Result<ShellEnd> Source::Send(const std::vector<std::string>& names, bool below_ranks,
                              const std::function<bool(std::string_view)>& take) const {
  std::string script = "exec tar -chf -";
  for (const std::string& name : names) script += (below_ranks && name != kManifestName ? " ranks/" : " ") + name;
  return Run(script + " </dev/null\n", take);
}

}  // namespace lockstep::cli
