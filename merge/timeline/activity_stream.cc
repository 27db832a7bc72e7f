#include "merge/timeline/activity_stream.h"

#include <algorithm>
#include <utility>

#include "core/collective.h"
#include "core/mpi_ops.h"
#include "merge/timeline/hta_window.h"

namespace lockstep::merge {
namespace {

constexpr schema::Columns<schema::MpiCalls> kCallTimes(&schema::MpiCalls::begin_ns, &schema::MpiCalls::duration_ns);
constexpr schema::Columns<schema::Kernels> kKernelKinds(&schema::Kernels::begin_ns, &schema::Kernels::duration_ns,
                                                        &schema::Kernels::name, &schema::Kernels::work,
                                                        &schema::Kernels::work_rule);
constexpr schema::Columns<schema::Ranges> kRangeCategory(&schema::Ranges::category);
constexpr schema::Columns<schema::Ranges> kRangeColumns(&schema::Ranges::begin_ns, &schema::Ranges::duration_ns,
                                                        &schema::Ranges::thread, &schema::Ranges::category,
                                                        &schema::Ranges::name);

template <typename Table>
Interval TimeOf(const Table& table, std::size_t row) {
  return {table.begin_ns[row], table.begin_ns[row] + table.duration_ns[row]};
}

constexpr Activity kActivityOf[] = {Activity::kBusy,     Activity::kBusy,    Activity::kBusy,      Activity::kBusy,
                                    Activity::kCertain,  Activity::kCertain, Activity::kCertain,   Activity::kPossible,
                                    Activity::kTransfer, Activity::kWait,    Activity::kInsideMpi, Activity::kCopy,
                                    Activity::kCopy,     Activity::kCopy,    Activity::kMpiOther,  Activity::kMpiOther,
                                    Activity::kMpiIo,    Activity::kMpiIo,   Activity::kMpiRma,    Activity::kMpiRma,
                                    Activity::kMpiSetup, Activity::kInput,   Activity::kBlocked,   Activity::kAwaited,
                                    Activity::kMessage,  Activity::kBeside};

}  // namespace

MpiClass ClassOf(std::uint16_t op) {
  static const std::vector<MpiClass> kClasses = [] {
    std::vector<MpiClass> classes;
    for (const MpiOpInfo& info : kMpiOps) {
      const auto number = static_cast<std::size_t>(info.op);
      if (number >= classes.size()) classes.resize(number + 1, MpiClass::kOther);
      classes[number] = info.cls;
    }
    return classes;
  }();
  return op < kClasses.size() ? kClasses[op] : MpiClass::kOther;
}

EventTables::EventTables(ingest::EventReader& events)
    : reader(events), calls(events), kernels(events), copies(events), sync(events), api(events), samples(events) {}

void EventTables::OnlyTimes() {
  calls.Choose<kCallTimes>();
  kernels.Choose<kKernelTimes>();
}

void EventTables::AllColumns(bool launches) {
  calls.Choose<kCallColumns>();
  if (launches)
    kernels.Choose<kKernelColumns>();
  else
    kernels.Choose<kKernelKinds>();
}

bool IsPosted(std::uint8_t mode) {
  return mode == static_cast<std::uint8_t>(CollectiveMode::kNonBlocking) ||
         mode == static_cast<std::uint8_t>(CollectiveMode::kPersistent);
}

void Watermarks::Run() {
  while (true) {
    Table* behind = nullptr;
    for (Table& table : tables_)
      if (!table.done && (behind == nullptr || table.settled < behind->settled)) behind = &table;
    if (behind == nullptr) return;
    const std::int64_t before = behind->latest;
    if (behind->next(behind->latest)) {
      behind->settled = before;
    } else {
      behind->done = true;
    }
    std::int64_t until = INT64_MAX;
    for (const Table& table : tables_)
      if (!table.done) until = std::min(until, table.settled);
    if (!whole_ && until != INT64_MAX) advance_(until);
  }
}

ActivityStream::ActivityStream(const schema::RankTables& head, EventTables& tables, std::uint32_t training,
                               bool hta_classes, const std::vector<Interval>& windows, const HtaWindow* hta_window,
                               bool whole)
    : head_(head),
      tables_(tables),
      training_(training),
      gpu_(tables.kernels.rows() > 0),
      hta_classes_(hta_classes),
      hta_window_(hta_window),
      classifier_(head, hta_classes),
      all_(gpu_, windows),
      kept_(gpu_, hta_window == nullptr ? std::vector<Interval>() : std::vector<Interval>{hta_window->extent}),
      marks_(whole, [this](std::int64_t until) {
        all_.Advance(until);
        kept_.Advance(until);
      }) {
  static_assert(std::size(kActivityOf) == kSources);
  for (const Activity activity : kActivityOf) {
    all_.AddSource(activity);
    kept_.AddSource(activity);
  }
  for (const std::uint8_t mode : head_.collectives.mode) posted_ |= IsPosted(mode);
  for (const std::uint8_t mode : head_.p2p.mode) posted_ |= IsPosted(mode);
  tables_.calls.Rewind();
  tables_.kernels.Rewind();
  tables_.copies.Rewind();
  tables_.sync.Rewind();
  FindCarriers();
  AddRequests();
}

void ActivityStream::AddRows(const std::vector<std::int64_t>& begin_ns, std::function<void(std::size_t)> add) {
  marks_.Add([&begin_ns, add = std::move(add), next = std::size_t{0}](std::int64_t& latest) mutable {
    const std::size_t end = std::min<std::size_t>(begin_ns.size(), next + ingest::kPieceRows);
    if (next == end) return false;
    for (; next < end; ++next) {
      latest = std::max(latest, begin_ns[next]);
      add(next);
    }
    return true;
  });
}

bool ActivityStream::Run(std::vector<Terms>& terms) {
  marks_.Add([this](std::int64_t& latest) { return NextCalls(latest); });
  marks_.Add([this](std::int64_t& latest) { return NextRanges(latest); });
  if (gpu_) {
    marks_.Add([this](std::int64_t& latest) { return NextKernels(latest); });
    marks_.Add([this](std::int64_t& latest) { return NextCopies(latest); });
    if (hta_window_ != nullptr) marks_.Add([this](std::int64_t& latest) { return NextSyncs(latest); });
  }
  marks_.Run();
  if (all_.came_late() || kept_.came_late()) return false;
  terms = all_.Finish();
  if (hta_window_ != nullptr) terms.back() = kept_.Finish()[0];
  return true;
}

// Finds which kernels carried recorded operations and, where it matters, what they are.
void ActivityStream::FindCarriers() {
  if (!gpu_) return;
  for (const std::uint32_t row : head_.collectives.kernel)
    if (row < tables_.kernels.rows()) carriers_.push_back({row, KernelClass::kComm, true});
  // By HTA's rules messages are recognised by their kernels' names.
  if (!hta_classes_)
    for (const std::uint32_t row : head_.p2p.kernel)
      if (row < tables_.kernels.rows()) carriers_.push_back({row, KernelClass::kComm, true});
  std::sort(carriers_.begin(), carriers_.end(), [](const Carrier& a, const Carrier& b) { return a.row < b.row; });
  carriers_.erase(std::unique(carriers_.begin(), carriers_.end(),
                              [](const Carrier& a, const Carrier& b) { return a.row == b.row; }),
                  carriers_.end());
  if (carriers_.empty() || (!hta_classes_ && hta_window_ == nullptr)) return;
  auto at = carriers_.begin();
  while (const auto* rows = tables_.kernels.Next()) {
    const std::uint64_t first = tables_.kernels.first_row();
    for (; at != carriers_.end() && at->row < first + rows->rows(); ++at) {
      if (at->row < first) continue;  // Belongs to a piece that cannot be read.
      const std::size_t i = at->row - first;
      if (hta_classes_) at->cls = classifier_.Of(rows->name[i], rows->work[i], rows->work_rule[i]);
      if (hta_window_ != nullptr) at->kept = hta_window_->Keeps(rows->correlation[i]);
    }
  }
  tables_.kernels.Rewind();
}

const ActivityStream::Carrier* ActivityStream::CarrierOf(std::uint64_t kernel) const {
  const auto at = std::lower_bound(carriers_.begin(), carriers_.end(), kernel,
                                   [](const Carrier& carrier, std::uint64_t row) { return carrier.row < row; });
  return at != carriers_.end() && at->row == kernel ? &*at : nullptr;
}

bool ActivityStream::Counts(std::uint32_t kernel, bool& kept) const {
  if (!gpu_ || (!hta_classes_ && hta_window_ == nullptr)) return true;
  const Carrier* carrier = CarrierOf(kernel);
  // Attributed to the GPU only if its kernel counts as communication.
  if (hta_classes_ && (carrier == nullptr || carrier->cls != KernelClass::kComm)) return false;
  if (carrier != nullptr) kept = carrier->kept;
  return true;
}

void ActivityStream::AddMessageWait(Interval wait, std::uint32_t kernel) {
  bool kept = true;
  if (Counts(kernel, kept)) Put(kMessage, wait, kept);
}

void ActivityStream::AddOp(const CommOp& op, std::uint32_t kernel) {
  bool kept = true;
  if (!Counts(kernel, kept)) return;
  Put(op.certain ? kOpsCertain : kPossible, {op.begin_ns, op.end_ns}, kept);
  Put(kWait, {op.begin_ns, op.wait_end_ns}, kept);
  Put(kTransfer, {op.transfer_begin_ns, op.end_ns}, kept);
}

void ActivityStream::AddBlocked(const BlockedTime& blocked) {
  for (const BlockedTime::Own& own : blocked.own) Put(kBlocked, own.at);
  for (const Interval& wait : blocked.awaited) Put(kAwaited, wait);
}

void ActivityStream::AddUnrecorded(const UnrecordedComm& comm) {
  if (!gpu_)
    for (const Interval& waiting : comm.waiting) Put(kUnrecordedBusy, waiting);
  for (const Interval& waiting : gpu_ ? comm.AwaitedOperations() : comm.waiting) Put(kUnrecordedCertain, waiting);
  for (const Interval& beside : Subtract(comm.operations, comm.waiting)) Put(kBeside, beside);
}

// Waiting for a non-blocking transfer counts as time of the transfer's class.
void ActivityStream::AddRequests() {
  const schema::MpiRequests& requests = head_.mpi_requests;
  for (std::size_t i = 0; i < requests.rows(); ++i) {
    if (requests.wait_thread[i] != training_ || requests.end_ns[i] == schema::kNoTime) continue;
    const Interval wait{requests.wait_begin_ns[i], requests.end_ns[i]};
    Put(kRequestsOther, wait);
    Put(IsIo(ClassOf(requests.op[i])) ? kRequestsIo : kRequestsRma, wait);
  }
}

bool ActivityStream::NextCalls(std::int64_t& latest) {
  const auto* calls = tables_.calls.Next();
  if (calls == nullptr) return false;
  for (std::size_t i = 0; i < calls->rows(); ++i) {
    latest = std::max(latest, calls->begin_ns[i]);
    const Interval call = TimeOf(*calls, i);
    if (posted_) Put(kInside, call);
    if (calls->thread[i] != training_) continue;
    if (!gpu_) Put(kCallsBusy, call);
    const MpiClass cls = ClassOf(calls->op[i]);
    if (!IsMpiOther(cls)) continue;
    Put(kOther, call);
    if (IsIo(cls)) Put(kIo, call);
    if (IsRma(cls)) Put(kRma, call);
    if (IsSetup(cls)) Put(kSetup, call);
  }
  return true;
}

// Only ranges with a category matter here, so most pieces are skipped after that test.
bool ActivityStream::NextRanges(std::int64_t& latest) {
  const std::uint64_t rows = tables_.reader.Rows(schema::Ranges::kInfo.name);
  if (next_range_ >= rows) return false;
  const std::uint64_t first = next_range_, count = std::min(ingest::kPieceRows, rows - first);
  next_range_ += count;
  if (!tables_.reader.Read(kRangeCategory, first, count, ranges_)) return true;
  if (std::all_of(ranges_.category.begin(), ranges_.category.end(), [](std::uint8_t c) { return c == 0; })) return true;
  if (!tables_.reader.Read(kRangeColumns, first, count, ranges_)) return true;
  for (std::size_t i = 0; i < ranges_.rows(); ++i) {
    latest = std::max(latest, ranges_.begin_ns[i]);
    if (ranges_.category[i] != schema::Category::kInput || ranges_.thread[i] != training_) continue;
    Put(kInput, TimeOf(ranges_, i));
    if (!gpu_) Put(kInputBusy, TimeOf(ranges_, i));
  }
  if (on_ranges_) on_ranges_(ranges_);
  return true;
}

bool ActivityStream::NextKernels(std::int64_t& latest) {
  const auto* kernels = tables_.kernels.Next();
  if (kernels == nullptr) return false;
  const std::uint64_t first = tables_.kernels.first_row();
  for (std::size_t i = 0; i < kernels->rows(); ++i) {
    latest = std::max(latest, kernels->begin_ns[i]);
    while (carrier_ < carriers_.size() && carriers_[carrier_].row < first + i) ++carrier_;
    const bool carried = carrier_ < carriers_.size() && carriers_[carrier_].row == first + i;
    KernelClass cls = classifier_.Of(kernels->name[i], kernels->work[i], kernels->work_rule[i]);
    if (carried && !hta_classes_) cls = KernelClass::kComm;
    const bool kept = hta_window_ == nullptr || hta_window_->Keeps(kernels->correlation[i]);
    switch (cls) {
      case KernelClass::kCompute:
        Put(kCompute, TimeOf(*kernels, i), kept);
        break;
      case KernelClass::kComm:
        // No recorded collective shows which rank waited for which.
        if (!carried) Put(kKernelsCertain, TimeOf(*kernels, i), kept);
        break;
      case KernelClass::kMemory:
        Put(kKernelsCopy, TimeOf(*kernels, i), kept);
        break;
      case KernelClass::kNone:
        // HTA's OTHER keeps the device busy and is not compute: the identity treats it like a copy.
        if (hta_classes_) Put(kKernelsCopy, TimeOf(*kernels, i), kept);
        break;
    }
  }
  return true;
}

bool ActivityStream::NextCopies(std::int64_t& latest) {
  const auto* copies = tables_.copies.Next();
  if (copies == nullptr) return false;
  for (std::size_t i = 0; i < copies->rows(); ++i) {
    latest = std::max(latest, copies->begin_ns[i]);
    Put(kCopies, TimeOf(*copies, i), hta_window_ == nullptr || hta_window_->Keeps(copies->correlation[i]));
  }
  return true;
}

// For HTA a wait for one stream keeps the device busy like its OTHER.
bool ActivityStream::NextSyncs(std::int64_t& latest) {
  const auto* syncs = tables_.sync.Next();
  if (syncs == nullptr) return false;
  for (std::size_t i = 0; i < syncs->rows(); ++i) {
    latest = std::max(latest, syncs->begin_ns[i]);
    if (syncs->stream[i] != schema::kNone && hta_window_->Keeps(syncs->correlation[i]))
      kept_.Add(kSyncs, TimeOf(*syncs, i));
  }
  return true;
}

}  // namespace lockstep::merge
