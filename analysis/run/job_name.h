#pragma once
// What a job is called in its verdict.

#include <string>
#include <string_view>

namespace lockstep::analysis {

// Of its command, quoted as by a shell: "python3 -u train.py --lr 1" -> "train.py"; "./build/ddp_mpi --steps 9" ->
// "ddp_mpi". "" of an empty one.
std::string JobName(std::string_view command);

}  // namespace lockstep::analysis
