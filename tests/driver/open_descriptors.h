// How many descriptors this process has open: for tests that look for leaks.
#pragma once

#include <filesystem>
#include <iterator>

namespace stalloc {

inline long OpenDescriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator{});
}

}  // namespace stalloc
