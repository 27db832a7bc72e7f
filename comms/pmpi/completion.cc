// Start, Wait, Test and what else is done with requests. Handles are copied before
// the call, because it sets them to MPI_REQUEST_NULL; no map of requests is kept
// (handles are not unique: two eager Isends may share one), the decoder pairs
// posts and completions as a multiset. Conventions: core/record.h.

#include <string.h>

#include "comms/pmpi/traced.h"

namespace lockstep::pmpi {
namespace {

constexpr int kInline = 32;        // Requests that are kept on the stack; larger calls use the thread's scratch memory.
constexpr int kPendingLimit = 32;  // Handles that get a record each when they are still incomplete.

// The records of one call with its completions, and the copies it needs. The memory belongs to the thread. A call that
// MPI makes from inside a call (generalised requests) and that is as large would overwrite it, so it gets no memory and
// writes no completions.
class Batch {
 public:
  Batch(const MPI_Request requests[], int count, bool statuses) : count_(count > 0 ? count : 0) {
    const auto n = static_cast<std::uint64_t>(count_);
    if (count_ > kInline) {
      const std::uint64_t bytes = sizeof(MpiRecord) + n * (sizeof(CompletionRecord) + sizeof(std::uint64_t) +
                                                           (statuses ? sizeof(MPI_Status) : 0));
      page_ = ring::Page();
      if (page_ != nullptr && page_->producer.scratch_busy != 0) page_ = nullptr;
      auto* memory = static_cast<std::byte*>(page_ != nullptr ? lockstep_scratch(bytes) : nullptr);
      if (memory == nullptr) {
        page_ = nullptr;
        count_ = 0;
        return;
      }
      page_->producer.scratch_busy = 1;
      records_ = reinterpret_cast<MpiRecord*>(memory);
      handles_ = reinterpret_cast<std::uint64_t*>(memory + sizeof(MpiRecord) + n * sizeof(CompletionRecord));
      statuses_ = statuses ? reinterpret_cast<MPI_Status*>(handles_ + n) : nullptr;
    } else {
      records_ = &small_.call;
      handles_ = small_.handles;
      statuses_ = small_.statuses;
    }
    for (int i = 0; i < count_; ++i) {
      handles_[i] = requests[i] != Pmpi().request_null ? HandleOf(requests[i]) : 0;
      given_ += handles_[i] != 0 ? 1 : 0;
    }
  }
  ~Batch() {
    if (page_ != nullptr) page_->producer.scratch_busy = 0;
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  MPI_Status* statuses() { return statuses_; }
  std::uint64_t handle(int i) const { return i >= 0 && i < count_ ? handles_[i] : 0; }
  int given() const { return given_; }  // The number of handles other than MPI_REQUEST_NULL.
  const std::uint64_t* handles() const { return handles_; }
  int count() const { return count_; }
  // The handles that are not null, moved to the front. After this handle(i) means nothing.
  const std::uint64_t* Compact() {
    if (given_ == count_) return handles_;
    int kept = 0;
    for (int i = 0; i < count_; ++i)
      if (handles_[i] != 0) handles_[kept++] = handles_[i];
    return handles_;
  }

  void Call(const MpiRecord& record) { *records_ = record; }
  MpiRecord& call() { return *records_; }
  void Add(std::uint8_t flags, int index, const MPI_Status* status) {
    if (handle(index) == 0) return;
    CompletionRecord record{};
    record.head = {RecordKind::kCompletion, flags, 1};
    record.request = handle(index);
    record.index = static_cast<std::uint32_t>(index);
    record.source = record.tag = -1;
    if (status != nullptr) {
      if (SaysInactive(*status)) return;
      record.head.flags |= kCompletionStatus;
      if (IsCancelled(*status)) record.head.flags |= kCompletionCancelled;
      record.source = status->MPI_SOURCE >= 0 ? status->MPI_SOURCE : -1;
      record.tag = status->MPI_TAG;
      record.bytes = BytesOf(*status);
    }
    auto* completions = reinterpret_cast<CompletionRecord*>(records_ + 1);
    completions[added_++] = record;
  }
  void Write(int result) {
    if (result != MPI_SUCCESS) records_->head.flags |= kMpiError;
    ring::Emit(records_, 2 + added_, 1 + added_);
  }

 private:
  struct {
    MpiRecord call;
    CompletionRecord completions[kInline];
    std::uint64_t handles[kInline];
    MPI_Status statuses[kInline];
  } small_;
  MpiRecord* records_ = &small_.call;
  std::uint64_t* handles_ = nullptr;
  MPI_Status* statuses_ = nullptr;
  int count_, given_ = 0;
  std::uint32_t added_ = 0;
  RingPage* page_ = nullptr;  // Its scratch memory is in use.
};

MpiRecord CompletionCall(MpiOp op, std::uint64_t begin, std::uint64_t end, int requests) {
  Shape shape;
  shape.bytes = static_cast<std::uint64_t>(requests > 0 ? requests : 0);
  return MakeRecord(op, begin, end, kNoComm, shape);
}

[[gnu::always_inline]] inline bool Recording() { return Active() && ring::Recording(); }

std::uint64_t PollKey(MpiOp op, std::uint64_t request) { return static_cast<std::uint64_t>(op) | request << 12; }

// Completed entries of a call on the whole array. With MPI_ERR_IN_STATUS each
// status says what became of its request; MPI_ERR_PENDING: nothing yet.
void AddAll(Batch& batch, int result, const MPI_Status* statuses) {
  for (int i = 0; i < batch.count(); ++i) {
    const MPI_Status* status = statuses != nullptr ? &statuses[i] : nullptr;
    std::uint8_t flags = 0;
    if (result == MPI_ERR_IN_STATUS && status != nullptr && status->MPI_ERROR != MPI_SUCCESS) {
      if (status->MPI_ERROR == MPI_ERR_PENDING) continue;
      flags = kCompletionError;
    }
    batch.Add(flags, i, status);
  }
}

// The only completed request, whose index is known (MPI_UNDEFINED: all requests were null).
void AddOne(Batch& batch, int result, int index, const MPI_Status* status) {
  if (index != MPI_UNDEFINED) batch.Add(result != MPI_SUCCESS ? kCompletionError : 0, index, status);
}

// The entries named by Waitsome or Testsome.
void AddSome(Batch& batch, int result, int completed, const int indices[], const MPI_Status* statuses) {
  if (completed == MPI_UNDEFINED) return;
  for (int i = 0; i < completed; ++i) {
    const MPI_Status* status = statuses != nullptr ? &statuses[i] : nullptr;
    const bool error = result == MPI_ERR_IN_STATUS && status != nullptr && status->MPI_ERROR != MPI_SUCCESS;
    batch.Add(error ? kCompletionError : 0, indices[i], status);
  }
}

// A query over several requests that found nothing.
[[gnu::always_inline]] inline void PollMany(MpiOp op, Batch& batch, std::uint64_t begin) {
  const int given = batch.given();
  const bool each_incomplete = op != MpiOp::kTestall;  // Testall does not report which request is incomplete.
  if (given == 1) {
    ring::Poll(PollKey(op, *batch.Compact()), begin);
  } else if (each_incomplete && given <= kPendingLimit && batch.count() > 0) {
    ring::Poll(PollKey(op, 0), batch.Compact(), static_cast<std::uint32_t>(given), begin, ring::Ticks);
  } else {
    ring::Poll(PollKey(op, 0), begin);
  }
}

// Statuses are written to the caller's array, or to one of ours if the caller wants none. `each`: one per request, else
// one per call.
MPI_Status* StatusesFor(Batch& batch, bool each, MPI_Status* wanted, MPI_Status* own) {
  if (wanted != MPI_STATUS_IGNORE) return wanted;
  return each ? batch.statuses() : own;
}

// A call that waits for requests. `call` gets the statuses to use; `add` the completions. Inlined, so that a wrapper is
// one function.
template <typename Call, typename Add>
[[gnu::always_inline]] inline int WaitFor(MpiOp op, MPI_Request requests[], int count, bool each, MPI_Status* wanted,
                                          Call&& call, Add&& add) {
  if (!Recording()) return call(wanted);
  Batch batch(requests, count, each && wanted == MPI_STATUSES_IGNORE);
  MPI_Status own;
  MPI_Status* used = StatusesFor(batch, each, wanted, &own);
  Blocking blocking(op, batch.handles(), batch.count(), batch.given());
  const int result = call(used);
  const std::uint64_t end = blocking.End();
  batch.Call(CompletionCall(op, blocking.begin(), end, count));
  add(batch, result, used);
  batch.Write(result);
  return result;
}

// A query over several requests. `nothing`: it found none that had completed.
template <typename Call, typename Nothing, typename Add>
[[gnu::always_inline]] inline int TestFor(MpiOp op, MPI_Request requests[], int count, bool each, MPI_Status* wanted,
                                          Call&& call, Nothing&& nothing, Add&& add) {
  if (!Recording()) return call(wanted);
  Batch batch(requests, count, each && wanted == MPI_STATUSES_IGNORE);
  MPI_Status own;
  MPI_Status* used = StatusesFor(batch, each, wanted, &own);
  const std::uint64_t begin = ring::Ticks();
  const int result = call(used);
  if (result == MPI_SUCCESS && nothing()) {
    PollMany(op, batch, begin);
    return result;
  }
  batch.Call(CompletionCall(op, begin, ring::Ticks(), count));
  add(batch, result, used);
  batch.Write(result);
  return result;
}

// A query that leaves the requests as they are. `nothing`: it found none that had completed.
template <typename Call, typename Nothing>
int AskFor(MpiOp op, int requests, Call&& call, Nothing&& nothing) {
  if (!Recording()) return call();
  const std::uint64_t begin = ring::Ticks();
  const int result = call();
  if (result == MPI_SUCCESS && nothing()) {
    ring::Poll(PollKey(op, 0), begin);
    return result;
  }
  MpiRecord record = CompletionCall(op, begin, ring::Ticks(), requests);
  Write(record, result);
  return result;
}

// Start and Request_free are also written while recording is off, because later completions depend on them.
void MarkUnrecorded(MpiRecord& record) {
  if (!ring::Recording()) record.head.flags |= kMpiUnrecorded;
}

}  // namespace

LS_EXPORT int MPI_Start(MPI_Request* request) {
  if (!Active()) return LS_PMPI(Start, request);
  const std::uint64_t begin = ring::Ticks();
  const int result = LS_PMPI(Start, request);
  const std::uint64_t end = ring::Ticks();
  Batch batch(request, 1, false);  // Starting does not change the handle.
  batch.Call(CompletionCall(MpiOp::kStart, begin, end, 1));
  MarkUnrecorded(batch.call());
  batch.Add(kCompletionStarted, 0, nullptr);
  batch.Write(result);
  return result;
}

LS_EXPORT int MPI_Startall(int count, MPI_Request requests[]) {
  if (!Active()) return LS_PMPI(Startall, count, requests);
  const std::uint64_t begin = ring::Ticks();
  const int result = LS_PMPI(Startall, count, requests);
  const std::uint64_t end = ring::Ticks();
  Batch batch(requests, count, false);
  batch.Call(CompletionCall(MpiOp::kStartall, begin, end, count));
  MarkUnrecorded(batch.call());
  for (int i = 0; i < batch.count(); ++i) batch.Add(kCompletionStarted, i, nullptr);
  batch.Write(result);
  return result;
}

LS_EXPORT int MPI_Wait(MPI_Request* request, MPI_Status* status) {
  return WaitFor(
      MpiOp::kWait, request, 1, false, status, [&](MPI_Status* used) { return LS_PMPI(Wait, request, used); },
      [&](Batch& batch, int result, const MPI_Status* used) { AddOne(batch, result, 0, used); });
}

LS_EXPORT int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[]) {
  return WaitFor(
      MpiOp::kWaitall, requests, count, true, statuses,
      [&](MPI_Status* used) { return LS_PMPI(Waitall, count, requests, used); }, AddAll);
}

LS_EXPORT int MPI_Waitany(int count, MPI_Request requests[], int* index, MPI_Status* status) {
  return WaitFor(
      MpiOp::kWaitany, requests, count, false, status,
      [&](MPI_Status* used) { return LS_PMPI(Waitany, count, requests, index, used); },
      [&](Batch& batch, int result, const MPI_Status* used) { AddOne(batch, result, *index, used); });
}

LS_EXPORT int MPI_Waitsome(int count, MPI_Request requests[], int* completed, int indices[], MPI_Status statuses[]) {
  return WaitFor(
      MpiOp::kWaitsome, requests, count, true, statuses,
      [&](MPI_Status* used) { return LS_PMPI(Waitsome, count, requests, completed, indices, used); },
      [&](Batch& batch, int result, const MPI_Status* used) { AddSome(batch, result, *completed, indices, used); });
}

LS_EXPORT int MPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  if (!Recording()) return LS_PMPI(Test, request, flag, status);
  const std::uint64_t handle = *request != Pmpi().request_null ? HandleOf(*request) : 0;
  MPI_Status own;
  MPI_Status* used = status != MPI_STATUS_IGNORE ? status : &own;
  const std::uint64_t begin = ring::Ticks();
  const int result = LS_PMPI(Test, request, flag, used);
  if (result == MPI_SUCCESS && *flag == 0) {
    ring::Poll(PollKey(MpiOp::kTest, handle), begin);
    return result;
  }
  const std::uint64_t end = ring::Ticks();
  const MPI_Request copy = RequestOf(handle);
  Batch batch(&copy, 1, false);
  batch.Call(CompletionCall(MpiOp::kTest, begin, end, 1));
  if (handle != 0) batch.Add(result != MPI_SUCCESS ? kCompletionError : 0, 0, used);
  batch.Write(result);
  return result;
}

LS_EXPORT int MPI_Testall(int count, MPI_Request requests[], int* flag, MPI_Status statuses[]) {
  return TestFor(
      MpiOp::kTestall, requests, count, true, statuses,
      [&](MPI_Status* used) { return LS_PMPI(Testall, count, requests, flag, used); }, [&] { return *flag == 0; },
      AddAll);
}

LS_EXPORT int MPI_Testany(int count, MPI_Request requests[], int* index, int* flag, MPI_Status* status) {
  return TestFor(
      MpiOp::kTestany, requests, count, false, status,
      [&](MPI_Status* used) { return LS_PMPI(Testany, count, requests, index, flag, used); },
      [&] { return *flag == 0; },
      [&](Batch& batch, int result, const MPI_Status* used) { AddOne(batch, result, *index, used); });
}

LS_EXPORT int MPI_Testsome(int count, MPI_Request requests[], int* completed, int indices[], MPI_Status statuses[]) {
  return TestFor(
      MpiOp::kTestsome, requests, count, true, statuses,
      [&](MPI_Status* used) { return LS_PMPI(Testsome, count, requests, completed, indices, used); },
      [&] { return *completed == 0; },
      [&](Batch& batch, int result, const MPI_Status* used) { AddSome(batch, result, *completed, indices, used); });
}

LS_EXPORT int MPI_Request_get_status(MPI_Request request, int* flag, MPI_Status* status) {
  if (!Recording()) return LS_PMPI(Request_get_status, request, flag, status);
  const std::uint64_t begin = ring::Ticks();
  const int result = LS_PMPI(Request_get_status, request, flag, status);
  const std::uint64_t handle = request != Pmpi().request_null ? HandleOf(request) : 0;
  if (result == MPI_SUCCESS && *flag == 0) {
    ring::Poll(PollKey(MpiOp::kRequest_get_status, handle), begin);
    return result;
  }
  MpiRecord record = CompletionCall(MpiOp::kRequest_get_status, begin, ring::Ticks(), 1);
  record.request = handle;
  Write(record, result);
  return result;
}

LS_EXPORT int MPI_Request_get_status_all(int count, const MPI_Request requests[], int* flag, MPI_Status statuses[]) {
  return AskFor(
      MpiOp::kRequest_get_status_all, count,
      [&] { return LS_PMPI(Request_get_status_all, count, requests, flag, statuses); }, [&] { return *flag == 0; });
}
LS_EXPORT int MPI_Request_get_status_any(int count, const MPI_Request requests[], int* index, int* flag,
                                         MPI_Status* status) {
  return AskFor(
      MpiOp::kRequest_get_status_any, count,
      [&] { return LS_PMPI(Request_get_status_any, count, requests, index, flag, status); },
      [&] { return *flag == 0; });
}
LS_EXPORT int MPI_Request_get_status_some(int count, const MPI_Request requests[], int* completed, int indices[],
                                          MPI_Status statuses[]) {
  return AskFor(
      MpiOp::kRequest_get_status_some, count,
      [&] { return LS_PMPI(Request_get_status_some, count, requests, completed, indices, statuses); },
      [&] { return *completed == 0; });
}

LS_EXPORT int MPI_Request_free(MPI_Request* request) {
  if (!Active()) return LS_PMPI(Request_free, request);
  const std::uint64_t handle = HandleOf(*request);
  const std::uint64_t begin = ring::Ticks();
  const int result = LS_PMPI(Request_free, request);
  MpiRecord record = CompletionCall(MpiOp::kRequest_free, begin, ring::Ticks(), 1);
  record.request = handle;
  MarkUnrecorded(record);
  Write(record, result);
  return result;
}

LS_EXPORT int MPI_Cancel(MPI_Request* request) {
  if (!Recording()) return LS_PMPI(Cancel, request);
  const std::uint64_t handle = HandleOf(*request);
  const std::uint64_t begin = ring::Ticks();
  const int result = LS_PMPI(Cancel, request);
  MpiRecord record = CompletionCall(MpiOp::kCancel, begin, ring::Ticks(), 1);
  record.request = handle;
  Write(record, result);
  return result;
}

}  // namespace lockstep::pmpi
