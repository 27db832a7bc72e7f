#pragma once
// Rank, size and NCCL's unique id without MPI: from the environment of torchrun, mpirun or srun, and over a
// TCP connection to rank 0 at MASTER_ADDR:MASTER_PORT (default 127.0.0.1:29514).

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

namespace example {

struct Place {
  int rank = 0, size = 1, local_rank = 0;
};

inline int FromEnvironment(std::initializer_list<const char*> names, int otherwise) {
  for (const char* name : names)
    if (const char* value = std::getenv(name); value != nullptr && *value != 0) return std::atoi(value);
  return otherwise;
}

inline Place FindPlace() {
  Place place;
  place.rank = FromEnvironment({"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}, 0);
  place.size = FromEnvironment({"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"}, 1);
  place.local_rank = FromEnvironment({"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"}, place.rank);
  return place;
}

inline void Whole(int socket, void* data, std::size_t bytes, bool send) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = send ? ::send(socket, at, bytes, MSG_NOSIGNAL) : ::recv(socket, at, bytes, 0);
    if (n <= 0) throw std::runtime_error("the connection to rank 0 broke");
    at += n;
    bytes -= static_cast<std::size_t>(n);
  }
}

// Rank 0's `bytes` of data on all ranks.
inline void BroadcastOverTcp(const Place& place, void* data, std::size_t bytes) {
  if (place.size == 1) return;
  const char* address = std::getenv("MASTER_ADDR");
  const char* port = std::getenv("MASTER_PORT");
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(address != nullptr ? address : "127.0.0.1", port != nullptr ? port : "29514", &hints, &found) != 0)
    throw std::runtime_error("MASTER_ADDR cannot be resolved");
  if (place.rank == 0) {
    const int listener = ::socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    reinterpret_cast<sockaddr_in*>(found->ai_addr)->sin_addr.s_addr = INADDR_ANY;
    if (::bind(listener, found->ai_addr, found->ai_addrlen) != 0 || ::listen(listener, place.size) != 0)
      throw std::runtime_error("MASTER_PORT is taken: name another");
    for (int other = 1; other < place.size; ++other) {
      const int socket = ::accept(listener, nullptr, nullptr);
      Whole(socket, data, bytes, true);
      ::close(socket);
    }
    ::close(listener);
  } else {
    int socket = -1;
    for (int attempt = 0; attempt < 600; ++attempt) {  // A minute.
      socket = ::socket(AF_INET, SOCK_STREAM, 0);
      if (::connect(socket, found->ai_addr, found->ai_addrlen) == 0) break;
      ::close(socket);
      socket = -1;
      ::usleep(100'000);
    }
    if (socket < 0) throw std::runtime_error("rank 0 cannot be reached: set MASTER_ADDR and MASTER_PORT");
    Whole(socket, data, bytes, false);
    ::close(socket);
  }
  ::freeaddrinfo(found);
}

}  // namespace example
