#pragma once
// Creates, replaces and removes files in directories where other users may have put something: never follows a link
// that another user planted, never uses a predictable name, and never removes what is not this user's.

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/file_lock.h"

namespace lockstep {

// Creates a new, empty file in the directory of `path`: ".NAME.<16 hex digits>.part" for its NAME, locked exclusively
// where locks exist. `mode` is reduced by the umask. *name is set to its path. If it is not open, errno says why.
OwnedFd CreateBeside(const std::string& path, mode_t mode, std::string* name);

// Whether a file of this name may have been made by CreateBeside.
bool IsPartName(std::string_view name);

// Renames a file made by CreateBeside to its final name and replaces what is there; a link is replaced, not followed.
// Returns 0 or errno.
int MoveOver(const std::string& from, const std::string& to);
// The same without replacing anything: EEXIST. Atomic where the file system has hard links or RENAME_NOREPLACE.
int MoveNew(const std::string& from, const std::string& to);

// Writes the whole text under this name and replaces what is there; a reader never sees a part of it. `durable`: it is
// on the disk before this returns. Returns 0, or errno with the old file unchanged.
int ReplaceFile(const std::string& path, std::string_view text, mode_t mode, bool durable = false);
// The same for the first writer only: EEXIST if the name exists (see MoveNew).
int CreateFile(const std::string& path, std::string_view text, mode_t mode);

// "." for a name without a directory.
std::string DirectoryOf(const std::string& path);
// The part after the last slash.
constexpr std::string_view BaseName(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// Writes the entries of `path`'s directory to the disk.
void SyncDirectoryOf(const std::string& path);

// Removes the files that CreateBeside made for `path` and whose makers have ended. Without locks this cannot be known,
// and the files stay. Returns the removed ones.
std::vector<std::string> RemoveDeadParts(const std::string& path);
// The same for all such files of a directory.
std::vector<std::string> RemoveDeadPartsIn(const std::string& directory);

// Opens a regular file; a link as the last component is not followed, and a pipe is not waited for. If it is not open,
// errno says why (EINVAL: not a regular file, ELOOP: a link).
OwnedFd OpenPlain(const std::string& path, int flags);
// The same for a file of this user (EPERM: another user's).
OwnedFd OpenOwn(const std::string& path, int flags);
// Reads the beginning of such a file, `limit` bytes at most; "" if it cannot be opened.
std::string ReadPlain(const std::string& path, std::size_t limit);

// What a file holds from `offset` on, `limit` bytes at most; less at its end, and on an error, which is then in *error.
std::string ReadUpTo(int fd, std::uint64_t offset, std::size_t limit, int* error = nullptr);

// System calls may do only a part of what was requested, or be interrupted; these functions do all of it. ReadAt
// returns false at the end of the file and on errors. WriteAll returns 0 or errno.
bool ReadAt(int fd, std::uint64_t offset, void* out, std::size_t bytes);
int WriteAll(int fd, std::string_view bytes);

// Removes a regular file of this user by its name. Returns false if it did not exist or was not this user's.
bool RemoveOwn(const std::string& path);
// The same for a link of this user; the file it points to stays.
bool RemoveOwnLink(const std::string& path);

// Checks that `path` is a directory of this user, not a link, and that no other user may write to it unless `shared`.
// Returns "" or what is wrong with it, as part of a sentence.
std::string NotOwnDirectory(const std::string& path, bool shared);

}  // namespace lockstep
