/* For LD_PRELOAD: a file system without locks, as NFS without its lock service is. */
#include <errno.h>

int flock(int fd, int operation) {
  (void)fd;
  (void)operation;
  errno = ENOLCK;
  return -1;
}
