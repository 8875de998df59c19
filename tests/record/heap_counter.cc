#include "tests/record/heap_counter.h"

#include <cstdlib>
#include <new>

namespace {

thread_local std::uint64_t requests = 0;

}  // namespace

// Apart from the tests, so that no compiler sees through a pair of them.
void* operator new(std::size_t size) {
  ++requests;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
// The library's buffers (std::stable_sort) come from here; left to a sanitizer, it would miss this operator's delete.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++requests;
  return std::malloc(size == 0 ? 1 : size);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace stalloc {

std::uint64_t HeapRequestsOfThisThread() noexcept { return requests; }

}  // namespace stalloc
