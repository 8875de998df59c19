#include "allocator/torch/uncounted_bytes.h"

namespace stalloc {
namespace {

thread_local int t_depth = 0;

bool IsValid(c10::DeviceIndex device) noexcept { return device >= 0 && device < C10_COMPILE_TIME_MAX_GPUS; }

}  // namespace

UncountedBytes::Span::Span(UncountedBytes& owner, Cause cause) noexcept : owner_(owner), cause_(cause) {
  if (t_depth++ == 0) before_ = owner_.measure_();
}

UncountedBytes::Span::~Span() {
  if (--t_depth > 0 || !before_.has_value() || !IsValid(before_->device)) return;
  const std::optional<Sample> after = owner_.measure_();
  if (!after.has_value() || after->device != before_->device || after->bytes <= before_->bytes) return;
  owner_.bytes_[static_cast<std::size_t>(after->device)][static_cast<std::size_t>(cause_)].fetch_add(
      static_cast<Bytes>(after->bytes - before_->bytes), std::memory_order_relaxed);
}

Bytes UncountedBytes::Of(c10::DeviceIndex device, Cause cause) const noexcept {
  if (!IsValid(device)) return 0;
  return bytes_[static_cast<std::size_t>(device)][static_cast<std::size_t>(cause)].load(std::memory_order_relaxed);
}

}  // namespace stalloc
