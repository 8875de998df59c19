/* stalloc.h is C: this file is compiled as such. */
#include "allocator/capi/stalloc.h"

int stalloc_header_works_in_c(void);
int stalloc_header_works_in_c(void) {
  void* (*allocate)(ssize_t, int, void*) = 0;
  allocate = sizeof(allocate) > 1 ? 0 : &stalloc_malloc;
  return allocate == 0 ? STALLOC_ABI_VERSION : -1;
}
