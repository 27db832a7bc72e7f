#pragma once
// Errors are values. Nothing in Lockstep throws across a function that a
// profiled application can see, and in-process code is built -fno-exceptions.

#include <string>
#include <utility>
#include <variant>

namespace lockstep {

enum class ErrorCode : unsigned char {
  kUsage,        // The request makes no sense.
  kNotFound,     // A file, symbol or dataset does not exist.
  kMalformed,    // The input exists but breaks its own format.
  kUnsupported,  // Valid, but this build or this machine cannot do it.
  kDataLoss,     // Some records are lost; what remains is usable.
  kIo,           // A system call failed: no space, no permission, no descriptor.
  kInternal,     // A Lockstep bug.
};

// An error message of three lines: what happened, where, and what to do.
struct [[nodiscard]] Error {
  ErrorCode code;
  std::string what;   // One sentence: what went wrong. No newline.
  std::string where;  // The file, rank, table or option. May be empty.
  std::string hint;   // What the user can do. May be empty, never vague.
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return state_.index() == 0; }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

using Status = Result<std::monostate>;
inline Status Ok() { return std::monostate{}; }

#define LS_CONCAT_(a, b) a##b
#define LS_CONCAT(a, b) LS_CONCAT_(a, b)
// LS_TRY(auto file, Open(path)); unwraps, or returns the error to the caller.
#define LS_TRY(decl, expr)                                                                   \
  auto LS_CONCAT(ls_result_, __LINE__) = (expr);                                             \
  if (!LS_CONCAT(ls_result_, __LINE__).ok()) return LS_CONCAT(ls_result_, __LINE__).error(); \
  decl = std::move(LS_CONCAT(ls_result_, __LINE__)).value()
// LS_CHECK(Write(x)); for a Status, whose value is not needed.
#define LS_CHECK(expr) \
  if (auto ls_status = (expr); !ls_status.ok()) return ls_status.error()

}  // namespace lockstep
