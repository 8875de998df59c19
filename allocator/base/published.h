// Published: an object that comes into being while other threads look, and then stays: null before, there afterwards.
//
// Thread-safe but for Publish, which is called once.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace stalloc {

template <typename Object>
class Published {
 public:
  void Publish(std::unique_ptr<Object> object) noexcept {
    owner_ = std::move(object);
    seen_.store(owner_.get(), std::memory_order_release);
  }
  [[nodiscard]] Object* get() const noexcept { return seen_.load(std::memory_order_acquire); }
  Object* operator->() const noexcept { return get(); }
  [[nodiscard]] bool operator==(std::nullptr_t) const noexcept { return get() == nullptr; }

 private:
  std::unique_ptr<Object> owner_;
  std::atomic<Object*> seen_{nullptr};
};

}  // namespace stalloc
