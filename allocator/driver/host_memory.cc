#include "allocator/driver/host_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <limits>

namespace stalloc {
namespace {

constexpr Bytes kUnknown = std::numeric_limits<Bytes>::max();

// The number in a file of one; kUnknown where there is none ("max", no such file).
Bytes NumberIn(const char* path) noexcept {
  std::FILE* const file = std::fopen(path, "re");
  if (file == nullptr) return kUnknown;
  unsigned long long number = 0;
  const bool found = std::fscanf(file, "%llu", &number) == 1;
  std::fclose(file);
  return found ? number : kUnknown;
}

Bytes MemAvailable() noexcept {
  std::FILE* const file = std::fopen("/proc/meminfo", "re");
  if (file == nullptr) return kUnknown;
  char line[128];
  unsigned long long kibibytes = 0;
  bool found = false;
  while (!found && std::fgets(line, sizeof(line), file) != nullptr) {
    found = std::sscanf(line, "MemAvailable: %llu kB", &kibibytes) == 1;
  }
  std::fclose(file);
  return found ? Bytes{kibibytes} * 1024 : kUnknown;
}

// In a container the group's own files are at the root.
Bytes LeftInGroup(const char* limit_file, const char* usage_file) noexcept {
  const Bytes limit = NumberIn(limit_file);
  const Bytes used = NumberIn(usage_file);
  return limit == kUnknown || used == kUnknown ? kUnknown : limit - std::min(limit, used);
}

void Populate(std::byte* begin, Bytes bytes) noexcept {
#ifdef MADV_POPULATE_WRITE
  if (madvise(begin, bytes, MADV_POPULATE_WRITE) == 0) return;
#endif
  const auto page = static_cast<Bytes>(sysconf(_SC_PAGESIZE));
  for (Bytes at = 0; at < bytes; at += page) *static_cast<volatile std::byte*>(begin + at) = std::byte{0};
}

}  // namespace

Bytes AvailableHostBytes() noexcept {
  const Bytes left = std::min(
      LeftInGroup("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
      LeftInGroup("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"));
  return std::min(left, MemAvailable());
}

void* MapHostMemory(Bytes bytes) noexcept {
  if (bytes > AvailableHostBytes()) {
    errno = ENOMEM;
    return nullptr;
  }
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  (void)madvise(memory, bytes, MADV_HUGEPAGE);
  (void)madvise(memory, bytes, MADV_DONTFORK);
  Populate(static_cast<std::byte*>(memory), bytes);
  return memory;
}

void UnmapHostMemory(void* memory, Bytes bytes) noexcept { munmap(memory, bytes); }

}  // namespace stalloc
