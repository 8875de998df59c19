// Counts requests for heap memory. Linking heap_counter.cc replaces operator new of the whole program.
#pragma once

#include <cstdint>

namespace stalloc {

[[nodiscard]] std::uint64_t HeapRequestsOfThisThread() noexcept;

}  // namespace stalloc
