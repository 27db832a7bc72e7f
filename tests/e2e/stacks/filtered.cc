// Executes a program under a filter of system calls (seccomp) that refuses some, as containers have it:
// filtered ptrace|process_vm_readv|both -- PROGRAM [ARGUMENTS]

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <string>

int main(int count, char** words) {
  if (count < 4) return 2;
  const std::string which = words[1];
  const unsigned first = which == "process_vm_readv" ? SYS_process_vm_readv : SYS_ptrace;
  const unsigned second = which == "both" ? SYS_process_vm_readv : first;
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, first, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, second, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  sock_fprog program{sizeof code / sizeof code[0], code};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 2;
  if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return 77;
  ::execvp(words[3], words + 3);
  return 127;
}
