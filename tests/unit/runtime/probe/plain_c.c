/* lockstep.h in C89, in an executable that is not position-independent: the
 * preloaded library must be found there too. */
#include <stdio.h>

#include "runtime/lockstep.h"

int main(void) {
  lockstep_step();
  lockstep_range_push("c89");
  lockstep_range_pop();
  lockstep_step_end();
  printf("%d\n", lockstep_recording());
  return 0;
}
