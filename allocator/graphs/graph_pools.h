// GraphPools: the pools of graphs that are followed, by their numbers, and each device's listener.
//
// Thread-safe. Pools stay where they are until the end. No lock of the table is held while a listener is called.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "allocator/base/spin_mutex.h"
#include "allocator/graphs/graph_pool.h"

namespace stalloc {

class GraphPools {
 public:
  // Makes it if need be. REQUIRES: number > 0. Throws std::bad_alloc.
  GraphPool& Get(std::uint32_t number, DeviceIndex device);
  // Null if there is none.
  [[nodiscard]] GraphPool* Find(std::uint32_t number) const noexcept;
  // In the order of their numbers. Both allocate: cold.
  [[nodiscard]] std::vector<GraphPool*> All() const;
  [[nodiscard]] std::vector<GraphPool*> OfDevice(DeviceIndex device) const;

  // The listener of the device's pools, present and future; null: nobody. The one before is notified no more
  // once this returns. Launches that were made before are in the device's streams: it is up to the listener to wait.
  void SetListener(DeviceIndex device, LaunchListener* listener);

 private:
  [[nodiscard]] LaunchListener* ListenerOf(DeviceIndex device) const noexcept;

  mutable SpinMutex mutex_;                        // guards both
  std::vector<std::unique_ptr<GraphPool>> pools_;  // by number; null: not followed
  std::vector<std::pair<DeviceIndex, LaunchListener*>> listeners_;
};

}  // namespace stalloc
