#pragma once
// Files in places where others may have put something: never through a link that another user planted, never under a
// predictable name, and never removing what is not this user's.

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/file_lock.h"

namespace lockstep {

// A new, empty file in the directory of `path`, ".NAME.<16 hex digits>.part" for its NAME, locked exclusively where
// there are locks. `mode` less the umask. *name: what it is called. Not open: errno says why.
OwnedFd CreateBeside(const std::string& path, mode_t mode, std::string* name);

// Whether a file of this name may be one that CreateBeside made.
bool IsPartName(std::string_view name);

// Gives a file that CreateBeside made its name for good, replacing what is there: a link is replaced, not followed.
// 0 or errno.
int MoveOver(const std::string& from, const std::string& to);
// The same, but replaces nothing: EEXIST. Atomic where the file system has hard links or RENAME_NOREPLACE.
int MoveNew(const std::string& from, const std::string& to);

// The whole text under its name, at no time half of it, replacing what is there; `durable`: on the disk before this
// returns. 0 or errno, and then what was there is as it was.
int ReplaceFile(const std::string& path, std::string_view text, mode_t mode, bool durable = false);
// The same for who is first: EEXIST if something has that name (see MoveNew).
int CreateFile(const std::string& path, std::string_view text, mode_t mode);

// "." of a name alone.
std::string DirectoryOf(const std::string& path);
// What is behind the last slash.
constexpr std::string_view BaseName(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// Directory entries of `path`'s directory reach the disk.
void SyncDirectoryOf(const std::string& path);

// Removes the files that CreateBeside made for `path` and whose makers are dead. Without locks this cannot be
// known, and the files stay. Returns those that were removed.
std::vector<std::string> RemoveDeadParts(const std::string& path);
// The same for whatever was made in a directory.
std::vector<std::string> RemoveDeadPartsIn(const std::string& directory);

// A regular file, opened; a link in the last place is not followed, a pipe is not waited for. Not open: errno says why
// (EINVAL: no regular file, ELOOP: a link).
OwnedFd OpenPlain(const std::string& path, int flags);
// The same of this user's (EPERM: another user's).
OwnedFd OpenOwn(const std::string& path, int flags);
// The beginning of such a file, `limit` bytes at most; "" if there is none.
std::string ReadPlain(const std::string& path, std::size_t limit);

// System calls may do a part of what they were asked for, or be interrupted; these do all of it. ReadAt: false at the
// end of the file and on errors. WriteAll: 0 or errno.
bool ReadAt(int fd, std::uint64_t offset, void* out, std::size_t bytes);
int WriteAll(int fd, std::string_view bytes);

// Removes a regular file of this user, by its name; nothing else. False: it was not there, or not ours.
bool RemoveOwn(const std::string& path);
// The same for a link of this user; what it points to stays.
bool RemoveOwnLink(const std::string& path);

// A directory of this user, itself and not by a link, that no other user may write to unless `shared`. "" or what is
// wrong with it, as part of a sentence.
std::string NotOwnDirectory(const std::string& path, bool shared);

}  // namespace lockstep
