#include "allocator/runtime/device_plans.h"

namespace stalloc {

const DevicePlan* DevicePlans::Take(DeviceIndex device) {
  for (const DevicePlan& one : plan_.devices) {
    if (one.device != device) continue;
    taken_ = true;
    return &one;
  }
  if (!movable_ || taken_ || plan_.devices.size() != 1) return nullptr;
  DevicePlan& other = plan_.devices.front();
  if (device == kCpuDevice || other.device == kCpuDevice) return nullptr;
  other.device = device;
  for (StreamInfo& stream : other.streams) stream.device = device;
  taken_ = true;
  return &other;
}

}  // namespace stalloc
