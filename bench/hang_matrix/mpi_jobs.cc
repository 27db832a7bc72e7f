// Small MPI programs of which one rank does one thing wrong: bench/hang_matrix/run has the table of what is what.
// usage: mpi_jobs stencil|train|pairs FAULT RANK DIRECTORY     what RANK does wrong begins in step kWrong; FAULT may be
// "none"

#include <fcntl.h>
#include <mpi.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kWrong = 8, kSteps = 100000;

int g_rank = 0, g_size = 0;
std::string g_fault, g_directory;
bool g_chosen = false;

// The wrong rank, in the wrong step: what the answer's delay counts from.
void TellStop() {
  if (!g_chosen) return;
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::ofstream(g_directory + "/stop") << std::fixed << now << "\n";
}

// For signals from outside.
void TellProcess() {
  const std::string path = g_directory + "/pid." + std::to_string(g_rank);
  std::ofstream(path + ".part") << getpid() << " " << getppid() << "\n";
  std::rename((path + ".part").c_str(), path.c_str());
}

struct Faults {
  int step;
  // For all ranks: the step in which something goes wrong.
  bool All(const char* fault) const { return step == kWrong && g_fault == fault; }
  bool Mine(const char* fault) const { return g_chosen && All(fault); }
};

void Compute(double ms) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double, std::milli>(ms);
  volatile double x = 1;
  while (std::chrono::steady_clock::now() < end)
    for (int i = 0; i < 1000; ++i) x = std::sqrt(x + i);
}

// Ways to stand still on one's own -----------------------------------------------------------------------------------

std::mutex g_queue, g_log;

[[noreturn]] void SolveUntilConverged() {
  volatile double residual = 1;
  while (residual > 0) residual = residual * 0.5 + 1e-9;
  std::abort();
}

// Its thread holds the lock and waits for what nobody says.
void WaitForLogger() {
  std::thread([] {
    const std::lock_guard<std::mutex> held(g_log);
    std::mutex mine;
    std::unique_lock<std::mutex> lock(mine);
    std::condition_variable said;
    said.wait(lock, [] { return false; });
  }).detach();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const std::lock_guard<std::mutex> log(g_log);
}

void LockInTheOtherOrder() {
  std::thread([] {
    const std::lock_guard<std::mutex> log(g_log);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const std::lock_guard<std::mutex> queue(g_queue);
  }).detach();
  const std::lock_guard<std::mutex> queue(g_queue);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const std::lock_guard<std::mutex> log(g_log);
}

void ReadShard() {
  std::ifstream shard(g_directory + "/pipe");
  std::string line;
  std::getline(shard, line);
}

// Somebody has it open and does not read.
void WriteRestart() {
  const int pipe = ::open((g_directory + "/pipe").c_str(), O_RDWR);
  const std::vector<char> state(1 << 20);
  if (::write(pipe, state.data(), state.size()) < 0) std::perror("write");
}

void StandStill(const Faults& now) {
  if (now.Mine("loop")) SolveUntilConverged();
  if (now.Mine("mutex")) WaitForLogger();
  if (now.Mine("two_mutexes")) LockInTheOtherOrder();
  if (now.Mine("pipe_read")) ReadShard();
  if (now.Mine("pipe_write")) WriteRestart();
}

// A stencil: neighbours exchange their borders, the residual is summed, every fourth step rank 0 gathers a picture.
// ----

int Neighbour(int by) { return (g_rank + by + g_size) % g_size; }

void ExchangeBorders(std::vector<double>& field) {
  constexpr int kBorder = 2000;
  MPI_Request requests[4];
  MPI_Irecv(field.data(), kBorder, MPI_DOUBLE, Neighbour(-1), 1, MPI_COMM_WORLD, &requests[0]);
  MPI_Irecv(field.data() + kBorder, kBorder, MPI_DOUBLE, Neighbour(1), 2, MPI_COMM_WORLD, &requests[1]);
  MPI_Isend(field.data() + 2 * kBorder, kBorder, MPI_DOUBLE, Neighbour(1), 1, MPI_COMM_WORLD, &requests[2]);
  MPI_Isend(field.data() + 3 * kBorder, kBorder, MPI_DOUBLE, Neighbour(-1), 2, MPI_COMM_WORLD, &requests[3]);
  MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
}

void SumResidual() {
  double mine = 1, all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

void Stencil() {
  constexpr int kPicture = 1 << 17;
  std::vector<double> field(8000, 1), mine(kPicture, 1), picture;
  picture.resize(static_cast<std::size_t>(kPicture) * static_cast<std::size_t>(g_size));
  for (int step = 0; step < kSteps; ++step) {
    const Faults now{step};
    if (step == kWrong - 2) TellProcess();
    if (now.Mine("stencil_leaves")) {
      TellStop();
      break;
    }
    ExchangeBorders(field);
    Compute(5);
    if (step == kWrong) TellStop();
    StandStill(now);
    // Too large to be sent before the receiver is there.
    if (now.Mine("sends_for_nobody")) MPI_Send(mine.data(), kPicture, MPI_DOUBLE, Neighbour(1), 9, MPI_COMM_WORLD);
    if (now.All("sends_in_a_circle")) MPI_Send(mine.data(), kPicture, MPI_DOUBLE, Neighbour(1), 9, MPI_COMM_WORLD);
    if (now.All("receives_in_a_circle"))
      MPI_Recv(field.data(), 1, MPI_DOUBLE, Neighbour(-1), 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (now.All("two_send_to_each_other") && (g_rank == 2 || g_rank == 3))
      MPI_Send(mine.data(), kPicture, MPI_DOUBLE, 5 - g_rank, 9, MPI_COMM_WORLD);
    if (now.Mine("waits_for_a_message"))
      MPI_Recv(field.data(), 1, MPI_DOUBLE, Neighbour(1), 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (!now.Mine("stencil_skips")) SumResidual();
    if (step % 4 == 0) {
      const int root = now.Mine("gathers_at_itself") ? g_rank : 0;
      MPI_Gather(mine.data(), kPicture, MPI_DOUBLE, picture.data(), kPicture, MPI_DOUBLE, root, MPI_COMM_WORLD);
    }
  }
}

// Training: parameters of the step from rank 0, gradients in three buckets, the loss of all, a barrier per epoch.
// ------

void Reduce(const std::vector<double>& in, std::vector<double>& out, std::size_t count) {
  MPI_Allreduce(in.data(), out.data(), static_cast<int>(count), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

void AveragedGradients(const std::vector<double>& gradients, std::vector<double>& sums) {
  MPI_Request requests[3];
  std::size_t at = 0;
  for (int bucket = 0; bucket < 3; ++bucket) {
    const std::size_t count = std::size_t{4000} << (2 * bucket);
    MPI_Iallreduce(gradients.data() + at, sums.data() + at, static_cast<int>(count), MPI_DOUBLE, MPI_SUM,
                   MPI_COMM_WORLD, &requests[bucket]);
    at += count;
  }
  MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
}

void Train() {
  constexpr std::size_t kWeights = 1 << 18, kWords = 1000;
  std::vector<double> gradients(100000, 1), sums(100000), weights(2 * kWeights), shards(2 * kWeights), loss(1, 1),
      mean(1);
  std::vector<double> all(1000 * static_cast<std::size_t>(g_size));
  MPI_Comm saved;
  MPI_Comm_dup(MPI_COMM_WORLD, &saved);
  for (int step = 0; step < kSteps; ++step) {
    const Faults now{step};
    if (step == kWrong - 2) TellProcess();
    Compute(10);
    if (step == kWrong) TellStop();
    StandStill(now);
    if (now.Mine("train_leaves")) break;
    AveragedGradients(gradients, sums);
    if (now.Mine("extra_barrier")) MPI_Barrier(MPI_COMM_WORLD);
    if (now.Mine("extra_gather"))
      MPI_Allgather(gradients.data(), 1000, MPI_DOUBLE, all.data(), 1000, MPI_DOUBLE, MPI_COMM_WORLD);
    if (now.Mine("loss_after_barrier")) {
      MPI_Barrier(MPI_COMM_WORLD);
      Reduce(loss, mean, 1);
    }
    if (!now.Mine("skips_loss")) Reduce(loss, mean, 1);
    if (step % 4 == 0) {
      MPI_Barrier(MPI_COMM_WORLD);
      // One rank believes something else of their sizes or their root.
      const int words = static_cast<int>(now.Mine("larger_broadcast") ? 2 * kWords : kWords);
      MPI_Bcast(gradients.data(), words, MPI_DOUBLE, 0, MPI_COMM_WORLD);
      Reduce(gradients, sums, now.Mine("larger_sum") ? 2 * kWords : kWords);
      const int shard = static_cast<int>(now.Mine("larger_shards") ? 2 * kWeights : kWeights) / g_size;
      MPI_Reduce_scatter_block(weights.data(), shards.data(), shard, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
      MPI_Bcast(weights.data(), kWeights, MPI_DOUBLE, now.Mine("other_root") ? g_rank : 0, MPI_COMM_WORLD);
      MPI_Reduce(weights.data(), shards.data(), kWeights, MPI_DOUBLE, MPI_SUM,
                 now.Mine("other_reduce_root") ? g_rank : 0, MPI_COMM_WORLD);
      // The same two sums on two communicators, in another order on one rank.
      const bool swaps = now.Mine("two_communicators");
      MPI_Allreduce(loss.data(), mean.data(), 1, MPI_DOUBLE, MPI_SUM, swaps ? saved : MPI_COMM_WORLD);
      MPI_Allreduce(loss.data(), mean.data(), 1, MPI_DOUBLE, MPI_SUM, swaps ? MPI_COMM_WORLD : saved);
    }
  }
  MPI_Comm_free(&saved);
}

// Pairs of neighbours, each pair with a communicator of its own: (0 1), (1 2), ... (n-1 0).
// --------------------------------

void Pairs() {
  std::vector<MPI_Comm> pairs(static_cast<std::size_t>(g_size), MPI_COMM_NULL);
  for (int first = 0; first < g_size; ++first) {
    const bool mine = g_rank == first || g_rank == (first + 1) % g_size;
    MPI_Comm_split(MPI_COMM_WORLD, mine ? 0 : MPI_UNDEFINED, g_rank, &pairs[static_cast<std::size_t>(first)]);
  }
  const auto before = static_cast<std::size_t>(Neighbour(-1)), after = static_cast<std::size_t>(g_rank);
  double mine = 1, sum = 0;
  for (int step = 0; step < kSteps; ++step) {
    Compute(5);
    if (step == kWrong - 2) TellProcess();
    if (step == kWrong) TellStop();
    // Somebody must begin with the other one of their two.
    const bool circle = Faults{step}.All("pairs_in_a_circle");
    const bool other = g_rank == 0 && !circle;
    MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, pairs[other ? before : after]);
    MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, pairs[other ? after : before]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &g_size);
  const std::string job = argv[1];
  g_fault = argv[2];
  g_chosen = g_rank == std::atoi(argv[3]);
  g_directory = argv[4];
  if (job == "stencil") Stencil();
  if (job == "train") Train();
  if (job == "pairs") Pairs();
  MPI_Finalize();
  return 0;
}
