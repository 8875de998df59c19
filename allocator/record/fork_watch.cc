#include "allocator/record/fork_watch.h"

#include <pthread.h>

#include <mutex>
#include <vector>

namespace stalloc {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<ForkWatch*> watches;
};

// Never destroyed: fork() may come after static destructors have begun.
Registry& TheRegistry() {
  static Registry& registry = *new Registry;
  return registry;
}

void Prepare() {
  TheRegistry().mutex.lock();
  for (ForkWatch* watch : TheRegistry().watches) watch->BeforeFork();
}

void Parent() { TheRegistry().mutex.unlock(); }

void Child() {
  for (ForkWatch* watch : TheRegistry().watches) watch->InChild();
  TheRegistry().mutex.unlock();
}

}  // namespace

void ForkWatch::StartWatching() {
  static const bool installed = pthread_atfork(&Prepare, &Parent, &Child) == 0;
  static_cast<void>(installed);  // fails for lack of memory only; then a child would have to do without
  const std::lock_guard lock(TheRegistry().mutex);
  TheRegistry().watches.push_back(this);
}

void ForkWatch::StopWatching() noexcept {
  const std::lock_guard lock(TheRegistry().mutex);
  std::erase(TheRegistry().watches, this);
}

}  // namespace stalloc
