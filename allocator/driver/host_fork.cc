// What fork() does to the memory of HostDrivers: the child gets private copies, the parent waits until it has them.
//
//   forking thread     prepare: lock every driver, open a pipe     parent: wait for the pipe's end, unlock
//   child                                                          child:  copy, close the pipe, unlock
//
// The child's handler takes no heap memory and calls only mmap, mremap, pread and the like, so it is safe whatever
// other threads of the parent were doing. Only bytes that were ever touched are copied.
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <vector>

#include "allocator/base/log.h"
#include "allocator/driver/host_driver_state.h"

namespace stalloc {
namespace {

using State = HostDriver::State;
using Clock = std::chrono::steady_clock;

struct ForkRegistry {
  std::mutex mutex;  // held across a fork, so forks of several threads run one by one
  std::vector<State*> states;
  int done_read = -1;  // the pipe whose end shows that the child has copied
  int done_write = -1;
};

// Never destroyed: a fork may come as late as it likes.
ForkRegistry& Registry() {
  static ForkRegistry* registry = new ForkRegistry();
  return *registry;
}

// A child that hangs (stopped in a debugger, starved) must not hang the parent for good.
Clock::duration PatienceFor(Bytes resident) {
  constexpr Bytes kSlowestCopyPerSecond = Bytes{128} << 20;
  return std::chrono::seconds(10 + resident / kSlowestCopyPerSecond);
}

void CloseIfOpen(int* descriptor) {
  if (*descriptor >= 0) {
    close(*descriptor);
    *descriptor = -1;
  }
}

void Prepare() noexcept {
  ForkRegistry& registry = Registry();
  registry.mutex.lock();
  bool any_mapped = false;
  for (State* state : registry.states) {
    state->mutex.lock();
    any_mapped = any_mapped || !state->mappings.empty();
  }
  int ends[2];
  if (any_mapped && pipe2(ends, O_CLOEXEC) == 0) {
    registry.done_read = ends[0];
    registry.done_write = ends[1];
  }
}

void UnlockAll(ForkRegistry* registry) {
  for (State* state : registry->states) state->mutex.unlock();
  registry->mutex.unlock();
}

// Also runs when fork() failed: then the pipe's last writer is this process, and its end comes at once.
void InParent() noexcept {
  ForkRegistry& registry = Registry();
  CloseIfOpen(&registry.done_write);
  if (registry.done_read >= 0) {
    Bytes resident = 0;
    for (const State* state : registry.states) {
      resident += state->forked ? 0 : state->file.ResidentBytes();
    }
    const Clock::time_point deadline = Clock::now() + PatienceFor(resident);
    int ready = 0;
    do {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
      pollfd wait{registry.done_read, POLLIN, 0};
      ready = poll(&wait, 1, static_cast<int>(std::max<long long>(left, 0)));
    } while (ready < 0 && errno == EINTR);
    if (ready == 0) {
      Log(LogSeverity::kWarning,
          "fork: the child has not copied %llu bytes of host memory in time; it may see later writes",
          static_cast<unsigned long long>(resident));
    }
    CloseIfOpen(&registry.done_read);
  }
  UnlockAll(&registry);
}

bool ReadFully(int descriptor, Offset from, Bytes bytes, char* to) {
  while (bytes > 0) {
    const ssize_t got = pread(descriptor, to, bytes, static_cast<off_t>(from));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    from += static_cast<Bytes>(got);
    to += got;
    bytes -= static_cast<Bytes>(got);
  }
  return true;
}

// Copies what the file holds in [offset, offset + bytes); holes read as zero, as the fresh pages at `to` do.
bool CopyExtents(int descriptor, Offset offset, Bytes bytes, char* to) {
  const Offset end = offset + bytes;
  Offset position = offset;
  while (position < end) {
    const off_t data = lseek(descriptor, static_cast<off_t>(position), SEEK_DATA);
    if (data < 0) {
      return errno == ENXIO;  // nothing but a hole after this place
    }
    const auto begin = static_cast<Offset>(data);
    if (begin >= end) return true;
    const off_t hole = lseek(descriptor, data, SEEK_HOLE);
    if (hole < 0) return false;
    position = std::min(end, static_cast<Offset>(hole));
    if (!ReadFully(descriptor, begin, position - begin, to + (begin - offset))) return false;
  }
  return true;
}

// Puts a private copy of the mapping in its place.
bool MakePrivate(const State& state, Address address, const State::Mapping& mapping) {
  void* const copy = mmap(nullptr, mapping.bytes, mapping.usable ? PROT_READ | PROT_WRITE : PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (copy == MAP_FAILED) return false;
  const State::Handle& handle = state.handles.at(mapping.handle);
  if (mapping.usable && !CopyExtents(state.file.descriptor(), handle.offset, handle.bytes, static_cast<char*>(copy))) {
    munmap(copy, mapping.bytes);
    return false;
  }
  return mremap(copy, mapping.bytes, mapping.bytes, MREMAP_MAYMOVE | MREMAP_FIXED, reinterpret_cast<void*>(address)) !=
         MAP_FAILED;
}

void InChild() noexcept {
  ForkRegistry& registry = Registry();
  for (State* state : registry.states) {
    for (const auto& [address, mapping] : state->mappings) {
      if (!state->forked && !MakePrivate(*state, address, mapping)) {
        // Sharing bytes with the parent would corrupt both; a fault at the first access is the lesser evil.
        Log(LogSeverity::kError, "fork: no memory for a private copy of %llu bytes of host memory; they are lost",
            static_cast<unsigned long long>(mapping.bytes));
        (void)mmap(reinterpret_cast<void*>(address), mapping.bytes, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
      }
    }
    state->forked = true;
    state->file.Close();
  }
  CloseIfOpen(&registry.done_read);
  CloseIfOpen(&registry.done_write);
  UnlockAll(&registry);
}

}  // namespace

void RegisterForFork(State* state) {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(&Prepare, &InParent, &InChild); });
  ForkRegistry& registry = Registry();
  const std::lock_guard lock(registry.mutex);
  registry.states.push_back(state);
}

void UnregisterForFork(State* state) noexcept {
  ForkRegistry& registry = Registry();
  const std::lock_guard lock(registry.mutex);
  std::erase(registry.states, state);
}

}  // namespace stalloc
