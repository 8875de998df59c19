#include "allocator/runtime/sleep_tags.h"

#include <algorithm>
#include <utility>

#include "allocator/base/mutex.h"
#include "allocator/engine/bytes/occupancy.h"

namespace stalloc {
namespace {

struct Registry {
  Mutex mutex;
  std::vector<SleepTags::Tag> tags STALLOC_GUARDED_BY(mutex){{}};  // guarded by mutex
};

// Never destroyed: threads may allocate until the process is gone.
Registry& TheRegistry() {
  static Registry* const registry = new Registry;
  return *registry;
}

thread_local unsigned t_present = 0;

}  // namespace

std::optional<unsigned> SleepTags::Number(const std::string& name, bool kept) {
  Registry& registry = TheRegistry();
  const LockGuard lock(registry.mutex);
  auto& tags = registry.tags;
  const auto found =
      std::find_if(tags.begin(), tags.end(), [&](const Tag& tag) { return tag.name == name && tag.kept == kept; });
  const auto number = static_cast<unsigned>(found - tags.begin());
  if (found != tags.end()) return number;
  if (number > LiveRecord::kMostTags) return std::nullopt;
  tags.push_back({name, kept});
  return number;
}

std::vector<SleepTags::Tag> SleepTags::All() {
  Registry& registry = TheRegistry();
  const LockGuard lock(registry.mutex);
  return registry.tags;
}

unsigned SleepTags::Enter(unsigned tag) noexcept {
  any_.store(true, std::memory_order_relaxed);
  return std::exchange(t_present, tag);
}

unsigned SleepTags::PresentHere() noexcept { return t_present; }

}  // namespace stalloc
